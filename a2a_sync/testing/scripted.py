"""An agent that follows a script, for tests of programs that call agents and of situations that are hard to produce."""

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

#: The longest wait for a test, in seconds.
_TIMEOUT = 30.0
#: The longest wait for streams that a cut ends, in seconds: streams without a reader do not end.
_CUT_TIMEOUT = 5.0
_POLL_INTERVAL = 0.002
_ENDINGS = (InputRequired, AuthRequired, Rejected, Failed, Message)


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: wait for a number of seconds, or until the task is cancelled (`RequestContext.sleep`)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A step: wait until the test calls `release`, for 30 seconds at most, or until the task is cancelled.

    ``reached`` is set when the agent has reached this step::

        hold = Hold()
        task = a2a_client(ScriptedAgent([hold, "done"])).send("go", return_immediately=True)
        assert hold.reached.wait(5)
        hold.release()
    """

    reached: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let the agent continue, now and whenever it reaches this step again. Thread-safe."""
        self._released.set()

    def _wait_for_release(self, context: RequestContext) -> None:
        context.on_cancel(self._released.set)
        self.reached.set()
        if not self._released.wait(_TIMEOUT):
            raise AssertionError(f"the hold was not released within {_TIMEOUT:g} seconds")
        context.check_cancelled()


@dataclass(frozen=True, slots=True)
class Cut:
    """A step: end every open stream of the task, as a restarting server or a proxy does. The task continues.

    A client resumes its stream where it was cut; without ``retry`` it raises `StreamInterruptedError`. The next step
    waits until the streams have been read up to this step, for 5 seconds at most.
    """

    def _end_streams(self, context: RequestContext) -> None:
        run: Any = context._run
        hub, task_id = run.hub, context.task_id
        streams = [listener for listener in hub.listeners(task_id) if isinstance(listener, Subscription)]
        for stream in streams:
            stream.stop()
        until = time.monotonic() + _CUT_TIMEOUT
        while set(streams) & set(hub.listeners(task_id)) and time.monotonic() < until:
            context.sleep(_POLL_INTERVAL)


class ScriptedAgent(Agent):
    """Answers the first message with the first of `turns`, the second with the second, and further ones with the last.

    A turn is one step or a list of steps. A step is

    - a value that a handler may yield or return: text, a part, data, an `Artifact`, an event, `InputRequired`, a
      `Message` …;
    - an exception, which is raised. Its text is shown to the client only for a `PublicError` or an `AgentError`;
    - a `Pause`, a `Hold` or a `Cut`;
    - a function, which is called with the run's `RequestContext`; its result is a step, unless it is None.

    Text, parts and data are chunks of one artifact, as for a generator handler. A step that ends the run must be the
    last of its turn. `attributes` are those of `Agent`. Messages are counted per agent and process. Thread-safe::

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
        """The messages that the agent has received, in the order in which their runs began."""
        return tuple(self._received)

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        """Execute the next turn, on the thread of the run."""
        with self._counting:
            self._received.append(message)
            turn = self._turns[min(len(self._received), len(self._turns)) - 1]
        return _run_steps(turn, context) if len(turn) > 1 else _run_single_step(turn, context)


def _run_single_step(turn: list[Any], context: RequestContext) -> Any:
    """The result of a turn of one step; only such a turn can answer without a task."""
    result = _run_step(turn[0], context) if turn else None
    return _run_steps([result], context) if isinstance(result, str) else result


def _run_steps(turn: list[Any], context: RequestContext) -> Generator[Any, None, Any]:
    for step in turn:
        value = _run_step(step, context)
        if isinstance(value, _ENDINGS) and step is turn[-1]:
            return value
        if value is not None:
            yield value
    return None


def _run_step(step: Any, context: RequestContext) -> Any:
    """Execute one step and return the value to send, if any."""
    match step:
        case BaseException():
            raise step
        case Pause():
            context.sleep(step.seconds)
        case Hold():
            step._wait_for_release(context)
        case Cut():
            step._end_streams(context)
        case Callable():
            return _run_step(step(context), context)
        case _:
            return step
    return None
