"""Clients of what is tested: in the same process, over its WSGI application, or over a real socket; and what they were told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from a2a_sync.agent import Agent
from a2a_sync.client import Client, Retry
from a2a_sync.testing.cuts import CutCalls, CutStreams
from a2a_sync.types import Message, StreamResponse, Task, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

#: Where nothing is far away, nobody need wait long.
QUICK = Retry(budget=10.0, first=0.01, longest=0.1)
WAYS = ("local", "wsgi", "socket")


@contextmanager
def client_of(
    target: Any, over: str = "local", *, cut_after: int | Iterable[int] = (), **options: Any
) -> Iterator[Client]:
    """A client of `target`, closed when the block ends, as is the app that was made for an agent.

    Parameters:
        target: an `Agent` or an `A2AApp`; any WSGI application, but over ``"local"``; or a URL, which is called as it is.
        over: ``"local"`` calls it without JSON and HTTP; ``"wsgi"`` writes and reads both, and calls the application on the
            calling thread; ``"socket"`` serves it on loopback.
        cut_after: the first stream is cut after so many events; several numbers: the next ones, too. The client takes them up
            again; cut after 0, it sends the message again by its key, but not over ``"local"``, where no message is ever lost.
        options: those of `Client`. Pauses between two attempts are short, unless ``retry`` says otherwise.

    Raises:
        TypeError: the agent cannot be served: see `A2AApp`.
        ValueError: there is no such way, or `target` is a URL and streams shall be cut.
    """
    counts = (cut_after,) if isinstance(cut_after, int) else tuple(cut_after)
    if over not in WAYS:
        raise ValueError(f"over={over!r}: the ways are {', '.join(WAYS)}")
    if isinstance(target, str) and counts:
        raise ValueError("cut_after: what is called by its URL is out of reach")
    options.setdefault("retry", QUICK)
    with ExitStack() as stack:
        reached = target if isinstance(target, str) else _reach(target, over, counts, options, stack)
        yield stack.enter_context(Client(reached, **options))


def _reach(target: Any, over: str, counts: tuple[int, ...], options: dict[str, Any], stack: ExitStack) -> Any:
    """What a client is given to call `target`."""
    if isinstance(target, Agent):
        from a2a_sync.app import A2AApp

        target.check_handler(complete=True)
        target = A2AApp(target)
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


def outline(events: Iterable[StreamResponse]) -> list[str]:
    """What a stream tells, in a word each: the states of its task (with their texts), and the texts of its artifacts' chunks.

    ::

        assert outline(client.stream("go")) == ["working", "working: counting", "1 ", "2 ", "completed"]
    """
    return [word for event in events if (word := _word(event))]


def _word(event: StreamResponse) -> str:
    if isinstance(event, Message):
        return event.text
    if isinstance(event, (Task, TaskStatusUpdateEvent)):
        told = event.status.message.text if event.status.message else ""
        return f"{event.status.state}: {told}" if told else str(event.status.state)
    return event.artifact.text
