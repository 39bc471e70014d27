"""An agent that does what a test says: for programs that call agents, and for what is hard to bring about otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from a2a_sync.agent.agent import Agent
from a2a_sync.agent.executor import RequestContext
from a2a_sync.agent.results import AuthRequired, Failed, InputRequired, Rejected
from a2a_sync.engine.hub import Subscription
from a2a_sync.types import Message

#: Nothing here waits for a test longer, in seconds.
_PATIENCE = 30.0
#: Nor for the streams that a cut ends: those that nobody reads do not end.
_CUT_PATIENCE = 5.0
_LOOK = 0.002
_ENDINGS = (InputRequired, AuthRequired, Rejected, Failed, Message)


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: wait so many seconds, or until the task is cancelled (`RequestContext.sleep`)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A step: wait until the test says `release`, for 30 seconds at most, or until the task is cancelled.

    ``reached`` is set when the agent has come here::

        hold = Hold()
        task = a2a_client(ScriptedAgent([hold, "done"])).send("go", return_immediately=True)
        assert hold.reached.wait(5)
        hold.release()
    """

    reached: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let the agent go on, here and at each further pass. From any thread."""
        self._released.set()

    def _pass(self, context: RequestContext) -> None:
        context.on_cancel(self._released.set)
        self.reached.set()
        if not self._released.wait(_PATIENCE):
            raise AssertionError(f"nobody released the hold within {_PATIENCE:g} seconds")
        context.check_cancelled()


@dataclass(frozen=True, slots=True)
class Cut:
    """A step: every stream that is open on the task ends here, and the task goes on: as a server that restarts, or a proxy
    that has waited for too long, would do it.

    A client takes its stream up again where it was cut; without ``retry`` it raises `StreamInterruptedError`. The next step waits
    until the streams have been read up to here, for 5 seconds at most.
    """

    def _do(self, context: RequestContext) -> None:
        run: Any = context._run
        hub, task_id = run.hub, context.task_id
        streams = [listener for listener in hub.listeners(task_id) if isinstance(listener, Subscription)]
        for stream in streams:
            stream.stop()
        until = time.monotonic() + _CUT_PATIENCE
        while set(streams) & set(hub.listeners(task_id)) and time.monotonic() < until:
            context.sleep(_LOOK)


class ScriptedAgent(Agent):
    """Answers the first message with the first of `turns`, the second with the second, and all that follow with the last one.

    A turn is one step or a list of steps. A step is

    - whatever a handler may yield or return: text, a part, data, an `Artifact`, an event, `InputRequired`, a `Message` …;
    - an exception: it is raised. Only of a `PublicError` and an `AgentError` does the client read the text;
    - a `Pause`, a `Hold` or a `Cut`;
    - a function: it is called with the run's `RequestContext`, and what it returns is a step, unless it is None.

    Text, parts and data are chunks of one artifact, as they are of a handler that yields. What ends a run is its turn's last
    step. `attributes` are those of `Agent`. Messages are counted per agent and process, from any thread::

        ScriptedAgent("Hello!")
        ScriptedAgent(["one ", Cut(), "two"])
        ScriptedAgent(InputRequired("Which size?"), "One large pizza.")
        ScriptedAgent(PublicError("no more flour"), "Done")
    """

    name = "scripted"
    description = "Does what a test says"

    def __init__(self, *turns: Any, name: str = "", **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self._turns = [list(turn) if isinstance(turn, (list, tuple)) else [turn] for turn in turns] or [[]]
        for number, turn in enumerate(self._turns):
            for place, step in enumerate(turn[:-1]):
                if isinstance(step, (*_ENDINGS, BaseException)) and not isinstance(step, Message):
                    raise ValueError(f"turns[{number}][{place}]: nothing follows {type(step).__name__}")
        self._counting = threading.Lock()
        self._received: list[Message] = []

    @property
    def received(self) -> tuple[Message, ...]:
        """The messages that were sent to it, in the order in which their runs began."""
        return tuple(self._received)

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        """Do the next turn. On the run's thread."""
        with self._counting:
            self._received.append(message)
            turn = self._turns[min(len(self._received), len(self._turns)) - 1]
        return _play(turn, context) if len(turn) > 1 else _only(turn, context)


def _only(turn: list[Any], context: RequestContext) -> Any:
    """What a turn of one step returns: an answer without a task is possible only so."""
    result = _do(turn[0], context) if turn else None
    return _play([result], context) if _is_chunk(result) else result


def _play(turn: list[Any], context: RequestContext) -> Generator[Any, None, Any]:
    for step in turn:
        value = _do(step, context)
        if isinstance(value, _ENDINGS) and step is turn[-1]:
            return value
        if value is not None:
            yield value
    return None


def _is_chunk(value: Any) -> bool:
    """A client that streams sees it come before the end."""
    return isinstance(value, str)


def _do(step: Any, context: RequestContext) -> Any:
    """Do one step; what is left to be sent of it."""
    match step:
        case BaseException():
            raise step
        case Pause():
            context.sleep(step.seconds)
        case Hold():
            step._pass(context)
        case Cut():
            step._do(context)
        case Callable():
            return _do(step(context), context)
        case _:
            return step
    return None
