"""Questions that a handler asks in the middle of its code, over several runs of one task.

Each question ends its run. The next message runs the handler again from the top. Earlier answers are read from the
history of the task, where each follows its question, and are replayed in the same order. No state is held in memory, so
that any process can continue a dialogue. Questions are marked in their metadata, with the allowed options. This module
reads histories and parses answers; `RequestContext` asks the questions.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from a2a_sync.errors import A2AError, PublicError
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import JSON, Message, Metadata, Role

logger: Final = get_logger(__name__)

#: The metadata key: in a question, of its ``number`` in the dialogue and its ``options``; in a task, of the number of
#: the last question.
MARK = "urn:a2a-sync:ask:1"
#: The metadata key of the questions of a bridge: their ids, and the artifact that the answer continues.
INTERRUPT = "urn:a2a-sync:interrupt:1"
YES = ("yes", "y", "yeah", "yep", "ok", "okay", "sure", "true")
NO = ("no", "n", "nope", "nah", "false")
#: Words beside an agreement that leave it one. With any other the text may mean something else: "ok, what would that delete".
_POLITE = {"please", "thanks", "thank", "you", "go", "ahead", "do", "it", "that", "so"}
_POLITE |= {"i", "agree", "approve", "confirm", "of", "course", "fine"}


class AskError(A2AError, RuntimeError):
    """`ask` was called after an event was emitted, or from code other than the handler itself."""


class DialogueChanged(PublicError):
    """A replayed handler asked a different question than in the run before. The task fails with this text."""


class WaitsForAnswer(BaseException):
    """Ends the run of a handler that has asked a question. Like `TaskCancelled`, not an `Exception`."""


class Answer(str):
    """The text of an answer; ``message`` is the whole message."""

    message: Message

    def __new__(cls, message: Message) -> Answer:
        answer = super().__new__(cls, message.text)
        answer.message = message
        return answer


class Dialogue:
    """The questions of one run.

    `beginning` is the first message of the dialogue, which the handler receives in each run.

    `recorded` has the earlier questions of the dialogue with their answers.
    """

    def __init__(self, beginning: Message, recorded: Sequence[tuple[Message, Message]] = ()) -> None:
        self.beginning = beginning
        self._recorded = recorded
        #: How many questions have been asked.
        self.asked: int = 0

    @classmethod
    def of(cls, history: Sequence[Message], incoming: Message) -> Dialogue:
        """The dialogue that `incoming` continues, or a new one if it does not answer a question of `ask`."""
        index = max((n for n, turn in enumerate(history) if turn.message_id == incoming.message_id), default=0)
        recorded: list[tuple[Message, Message]] = []
        while index >= 2 and (number := _number(history[index - 1])):
            recorded.insert(0, (history[index - 1], history[index]))
            index -= 2
            if number == 1:
                return cls(history[index], recorded)
        return cls(incoming)

    def next(self, question: Message) -> Answer | None:
        """The answer to `question` from an earlier run; None if the question has to be asked now, with `mark`.

        Raises:
            DialogueChanged: the earlier run asked another question at this point.
        """
        self.asked += 1
        if self.asked > len(self._recorded):
            return None
        asked, answer = self._recorded[self.asked - 1]
        if asked.text != question.text:
            change = f"question {self.asked} was {_abbreviated(asked.text)} and is now {_abbreviated(question.text)}"
            logger.error("a dialogue cannot continue: %s", change)
            raise DialogueChanged(f"This dialogue cannot continue: {change}. Please begin again.")
        return Answer(answer)

    def mark(self, options: Sequence[str] = ()) -> dict[str, JSON]:
        """The metadata of the newest question: its number and `options`."""
        return {"number": self.asked, **({"options": list(options)} if options else {})}


def asks(metadata: Metadata) -> bool:
    """Whether a handler of the task with this metadata has asked a question."""
    return MARK in metadata


def question_id(message: Message | None) -> str:
    """The id of a status message that is a question of `ask` or of a bridge; ``""`` of any other."""
    asked = message is not None and (MARK in message.metadata or INTERRUPT in message.metadata)
    return message.message_id if message is not None and asked else ""


def _number(message: Message) -> int:
    mark = message.metadata.get(MARK) if message.role is Role.AGENT else None
    number = mark.get("number") if isinstance(mark, dict) else None
    # JSON has no integers, and some stores return floats.
    return int(number) if isinstance(number, (int, float)) else 0


def _abbreviated(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def current_flow_id() -> object:
    """Identifies the caller: its thread and its asyncio task.

    Threads and tasks that a handler starts have other ids.
    """
    try:
        # A current task implies that asyncio is loaded; importing it would cost more than this module.
        asyncio = sys.modules.get("asyncio")
        task = asyncio.current_task() if asyncio is not None else None
    except RuntimeError:
        task = None
    return threading.get_ident(), task


# -- understanding answers ----------------------------------------------------------------------------------------------


def yes_or_no(text: str, yes: Iterable[str] = YES, no: Iterable[str] = NO) -> bool | None:
    """True if `text` agrees: a word of `yes`, and beside it only polite English ones. False if it has a word of `no`.

    None if it has words of both or of neither, or agrees in other words too, or in a question: what it agrees to is not certain.
    """
    folded = text.casefold()
    words = set(re.findall(r"[\w'\u2019]+", folded))
    agreeing, declining = ({word.casefold() for word in side} for side in (yes, no))
    if words & declining:
        return None if words & agreeing else False
    return True if words & agreeing and words <= agreeing | _POLITE and "?" not in folded else None


def chosen_option(text: str, options: Sequence[str]) -> str | None:
    """The option that equals `text`, or the only one that it contains; None if there is no such option.

    Case is ignored. If one of two contained options contains the other, the longer one counts.
    """
    answer = text.strip().casefold()
    exact = [option for option in options if option.casefold() == answer.strip(".,;:!?\"'")]
    if exact:
        return exact[0]
    named = [option for option in options if re.search(rf"(?<!\w){re.escape(option.casefold())}(?!\w)", answer)]
    named = [one for one in named if not any(one != other and one.casefold() in other.casefold() for other in named)]
    return named[0] if len(named) == 1 else None


def check_options(options: Iterable[str]) -> tuple[str, ...]:
    """Check that options are distinct, and return them.

    Raises:
        ValueError: there are none, one is empty, or two differ only in case.
    """
    given = tuple(options)
    if not given or not all(option.strip() for option in given):
        raise ValueError("choose needs at least one option, and none that is empty")
    if len({option.strip().casefold() for option in given}) < len(given):
        raise ValueError(f"two options are the same: {', '.join(given)}")
    return given
