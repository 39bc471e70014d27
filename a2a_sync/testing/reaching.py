"""Clients of the tested agent, in the same process, over WSGI or over a real socket; and outlines of answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self
from wsgiref.types import WSGIApplication

from a2a_sync.agent.agent import Agent
from a2a_sync.client import Client, Retry
from a2a_sync.concurrency.closing import ClosingIterable
from a2a_sync.errors import AgentError
from a2a_sync.operations import Call, Endpoint, EventStream, StreamItem
from a2a_sync.telemetry import incidents
from a2a_sync.testing.cuts import CutCalls, CutStreams
from a2a_sync.types import Message, StreamResponse, Task, TaskStatusUpdateEvent

#: Short retries, because local servers answer quickly.
QUICK = Retry(max_elapsed=10.0, initial_backoff=0.01, max_backoff=0.1)
TRANSPORTS = ("local", "wsgi", "socket")


@contextmanager
def client_of(
    target: Any,
    over: str = "local",
    *,
    cut_after: int | Iterable[int] = (),
    raises: bool = False,
    debug: bool = False,
    **options: Any,
) -> Iterator[Client]:
    """A client of `target`. It is closed when the block ends, as is the app that was created for an agent.

    Parameters:
        target: an `Agent` or an `A2AApp`; any WSGI application, except over ``"local"``; or a URL.
        over: ``"local"`` calls the target without JSON and HTTP; ``"wsgi"`` encodes and decodes both and calls the
            application on the calling thread; ``"socket"`` serves it on loopback.
        cut_after: the number of events after which the first stream is cut, or several numbers for the next streams.
            The client resumes them. After 0 events it sends the message again with its key, except over ``"local"``,
            where no message is lost.
        raises: whether an unexpected exception of the agent is raised, once, by the call or stream that shows its task
            as failed. `PublicError` and `AgentError` are answers and are not raised.
        debug: an option of the app that is created for an agent, see `A2AApp`: failed tasks show the traceback.
        options: those of `Client`. The backoff is short unless ``retry`` is given.

    Raises:
        TypeError: the agent cannot be served, see `A2AApp`.
        ValueError: `over` has another value; `cut_after` or `raises` is used with a URL, or `debug` with a target other
            than an agent.
    """
    counts = (cut_after,) if isinstance(cut_after, int) else tuple(cut_after)
    if over not in TRANSPORTS:
        raise ValueError(f"over={over!r}: the ways are {', '.join(TRANSPORTS)}")
    if isinstance(target, str) and counts:
        raise ValueError("cut_after needs an agent or app of this process, not a URL")
    if isinstance(target, str) and raises:
        raise ValueError("raises=True needs an agent or app of this process; give it instead of its URL")
    if debug and not isinstance(target, Agent):
        raise ValueError("debug=True is for an Agent; an A2AApp has its own: A2AApp(…, debug=True)")
    options.setdefault("retry", QUICK)
    with ExitStack() as stack:
        if raises:
            handler_errors = stack.enter_context(_RaiseHandlerErrors())
            options["interceptors"] = (handler_errors, *options.get("interceptors", ()))
        if not isinstance(target, str):
            target = _target_and_options(target, over, counts, debug, options, stack)
        yield stack.enter_context(Client(target, **options))


def _target_and_options(
    target: Any, over: str, counts: tuple[int, ...], debug: bool, options: dict[str, Any], stack: ExitStack
) -> Any:
    """The target and options of a client that calls `target`."""
    if isinstance(target, Agent):
        from a2a_sync.wsgi.app import A2AApp

        target.check_handler(complete=True)
        target = A2AApp(target, debug=debug)
        stack.callback(target.close, timeout=0.0)
    if over == "local":
        return CutCalls(target, counts) if counts else target
    app: WSGIApplication = CutStreams(target, *counts) if counts else target
    if over == "wsgi":
        from a2a_sync.testing.wsgi import wsgi_session

        options.setdefault("session", stack.enter_context(wsgi_session(app)))
        return "http://agent.test"
    from a2a_sync.testing.servers import socket_server

    return stack.enter_context(socket_server(app))


class _RaiseHandlerErrors:
    """An interceptor that raises the exception of the agent's code if a task or an error shows its incident."""

    def __init__(self) -> None:
        self._errors: dict[str, BaseException] = {}

    def __enter__(self) -> Self:
        incidents.observers.append(self._errors.__setitem__)
        return self

    def __exit__(self, *details: object) -> None:
        incidents.observers.remove(self._errors.__setitem__)

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        def raising(call: Call[Any, Any]) -> Any:
            try:
                result = endpoint(call)
            except AgentError as error:
                self._raise(error.message)
                raise
            if call.operation.streaming:
                return ClosingIterable(self._checked(result), result.close)
            self.check(result)
            return result

        return raising

    def check(self, shown: Any) -> None:
        """Raise the exception whose incident `shown`, an event or a result, reports."""
        if isinstance(shown, (Task, TaskStatusUpdateEvent)) and shown.status.message is not None:
            self._raise(shown.status.message.text)

    def _checked(self, stream: EventStream) -> Iterator[StreamItem]:
        for item in stream:
            self.check(item.event)
            yield item

    def _raise(self, message: str) -> None:
        error = self._errors.pop(message, None)
        if error is not None:
            raise error


def outline(events: Iterable[StreamResponse]) -> list[str]:
    """One string per event of a stream: the states of its task (with their texts) and the chunks of its artifacts.

    Events without text are omitted, as is an event that completes an artifact by repeating all of its chunks::

        assert outline(client.stream("go")) == ["working", "working: counting", "1 ", "2 ", "completed"]
    """
    known: dict[str, str] = {}
    return [line for event in events if (line := _line(event, known))]


def _line(event: StreamResponse, known: dict[str, str]) -> str:
    """The line for `event`. `known` has the text of each artifact so far, by its id."""
    if isinstance(event, Message):
        return event.text
    if isinstance(event, Task):
        known.update((artifact.artifact_id, artifact.text) for artifact in event.artifacts)
    if isinstance(event, (Task, TaskStatusUpdateEvent)):
        text = event.status.message.text if event.status.message else ""
        return f"{event.status.state}: {text}" if text else str(event.status.state)
    artifact = event.artifact
    before, text = known.get(artifact.artifact_id, ""), artifact.text
    known[artifact.artifact_id] = before + text if event.append else text
    # A stream that began late has only the last chunks.
    repeats = event.last_chunk and not event.append and before and text.endswith(before)
    return "" if repeats else text
