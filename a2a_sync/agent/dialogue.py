"""Questions that a handler asks in the middle of its code, over several runs of one task.

Each question ends its run. The next message runs the handler again from the top; the answers so far stand in the task's
history, each behind its question, and are given again in the same order. So nothing waits in memory, and any process may go
on. Questions are known by a mark in their metadata, which also says what may be answered. This room only reads a history and
understands answers; asking is the context's.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Sequence

from a2a_sync.errors import PublicError
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import JSON, Message, Metadata, Role

logger = get_logger(__name__)

#: In the metadata of a question: its ``number`` in the dialogue, and ``options`` where there are some. In that of its task:
#: the number of the question that was asked last.
MARK = "urn:a2a-sync:ask:1"
YES = ("yes", "y", "yeah", "yep", "ok", "okay", "sure", "true")
NO = ("no", "n", "nope", "nah", "false")


class AskError(RuntimeError):
    """`ask` was called where it cannot work: after something was emitted, or not by the handler itself."""


class DialogueChanged(PublicError):
    """The handler asks something else than it did before with the same answers. The task fails, with this reason."""


class WaitsForAnswer(BaseException):
    """A question was asked and the run is over; it leaves the user's code. Not an `Exception`, as `TaskCancelled`."""


class Answer(str):
    """The text of an answer; ``message`` is all of it."""

    message: Message

    def __new__(cls, message: Message) -> Answer:
        answer = super().__new__(cls, message.text)
        answer.message = message
        return answer


class Dialogue:
    """The questions of one run. `beginning` is the message that the handler is called with, in each run of the dialogue."""

    def __init__(self, beginning: Message, recorded: Sequence[tuple[Message, Message]] = ()) -> None:
        self.beginning = beginning
        self._recorded = recorded
        self._asked = 0

    @classmethod
    def of(cls, history: Sequence[Message], incoming: Message) -> Dialogue:
        """The dialogue that `incoming` goes on with; a new one where it answers no question that `ask` has asked."""
        place = max((n for n, told in enumerate(history) if told.message_id == incoming.message_id), default=0)
        recorded: list[tuple[Message, Message]] = []
        while place >= 2 and (number := _number(history[place - 1])):
            recorded.insert(0, (history[place - 1], history[place]))
            place -= 2
            if number == 1:
                return cls(history[place], recorded)
        return cls(incoming)

    def next(self, question: Message) -> Answer | None:
        """The answer that `question` got in an earlier run; None: it is to be asked now, with `mark`.

        Raises:
            DialogueChanged: another question was asked here.
        """
        self._asked += 1
        if self._asked > len(self._recorded):
            return None
        asked, answer = self._recorded[self._asked - 1]
        if asked.text != question.text:
            change = f"question {self._asked} was {_short(asked.text)} and is now {_short(question.text)}"
            logger.error("a dialogue cannot go on: %s", change)
            raise DialogueChanged(f"This dialogue cannot go on: {change}. Please begin again.")
        return Answer(answer)

    def mark(self, options: Sequence[str] = ()) -> dict[str, JSON]:
        """What the metadata of the question says of it."""
        return {"number": self._asked, **({"options": list(options)} if options else {})}

    @property
    def asked(self) -> int:
        """The number of the newest question."""
        return self._asked


def asks(metadata: Metadata) -> bool:
    """A handler of the task with this metadata has asked something."""
    return MARK in metadata


def _number(message: Message) -> int:
    mark = message.metadata.get(MARK) if message.role is Role.AGENT else None
    number = mark.get("number") if isinstance(mark, dict) else None
    # JSON knows no integers, and some stores give back what JSON says.
    return int(number) if isinstance(number, (int, float)) else 0


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def here() -> object:
    """Where this is called: the thread, and the task of asyncio. What a handler started is somewhere else."""
    try:
        # Where there is a task, asyncio is loaded; loading it costs more than all of this room.
        asyncio = sys.modules.get("asyncio")
        task = asyncio.current_task() if asyncio is not None else None
    except RuntimeError:
        task = None
    return threading.get_ident(), task


# -- understanding answers ----------------------------------------------------------------------------------------------


def yes_or_no(text: str, yes: Iterable[str], no: Iterable[str]) -> bool | None:
    """What `text` says by its words; None where it says neither, or both."""
    words = set(re.findall(r"\w+", text.casefold()))
    agrees, declines = (any(word.casefold() in words for word in side) for side in (yes, no))
    return None if agrees == declines else agrees


def chosen(text: str, options: Sequence[str]) -> str | None:
    """The option that `text` is, or the only one that it names; of two that lie in each other, the longer one."""
    said = text.strip().casefold()
    exact = [option for option in options if option.casefold() == said.strip(".,;:!?\"'")]
    if exact:
        return exact[0]
    named = [option for option in options if re.search(rf"(?<!\w){re.escape(option.casefold())}(?!\w)", said)]
    named = [one for one in named if not any(one != other and one.casefold() in other.casefold() for other in named)]
    return named[0] if len(named) == 1 else None


def checked(options: Iterable[str]) -> tuple[str, ...]:
    """Options that can be told apart.

    Raises:
        ValueError: there are none, or two are the same but for case.
    """
    given = tuple(options)
    if not given or not all(option.strip() for option in given):
        raise ValueError("choose needs at least one option, and none that is empty")
    if len({option.strip().casefold() for option in given}) < len(given):
        raise ValueError(f"two options are the same: {', '.join(given)}")
    return given
