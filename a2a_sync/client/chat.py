"""A conversation: the ids that carry one message on to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from a2a_sync.client.content import Content
from a2a_sync.client.link import CallOptions
from a2a_sync.client.stream import TaskStream
from a2a_sync.errors import HTTPStatusError, MethodNotFoundError, UnsupportedOperationError
from a2a_sync.lazymodule import LazyModule
from a2a_sync.types import Message, Task

if TYPE_CHECKING:
    from a2a_sync.client import client as _client
else:
    _client = LazyModule("a2a_sync.client.client")

_CALL_OPTIONS = CallOptions.__annotations__.keys()


class Chat:
    """Messages of one context, sent one after the other; made by `Client.chat`. For one thread at a time.

    A message continues the last task only while that task waits for its client; otherwise it begins a new task in the
    same context (a task that has ended never goes on, spec 3.4.3). A conversation that is taken up again begins with asking
    the agent whether its newest task waits, if the agent can list tasks.
    """

    def __init__(self, client: _client.Client, context_id: str = "") -> None:
        self._client = client
        self._context_id = context_id
        self._task_id = ""
        self._taken_up = not context_id
        self._stream: TaskStream | None = None

    def send(self, message: Content, **options: Any) -> Task | Message:
        """`Client.send` in this conversation, with the same options and errors."""
        result = self._client.send(message, **self._ids(options), **options)
        self._remember(result)
        return result

    def stream(self, message: Content, **options: Any) -> TaskStream:
        """`Client.stream` in this conversation. Read it to its end (or pause) before the next message."""
        self._stream = self._client.stream(message, **self._ids(options), **options)
        return self._stream

    @property
    def context_id(self) -> str:
        """The conversation's id; empty until the agent named it."""
        self._settle()
        return self._context_id

    @property
    def task_id(self) -> str:
        """The task that waits for the next message; empty where none does."""
        self._settle()
        return self._task_id

    def _ids(self, options: dict[str, Any]) -> dict[str, Any]:
        self._settle()
        if not self._taken_up:
            self._task_id = self._waiting({key: options[key] for key in _CALL_OPTIONS & options.keys()})
            self._taken_up = True
        return {"task_id": self._task_id or None, "context_id": self._context_id or None}

    def _waiting(self, options: dict[str, Any]) -> str:
        """The id of the newest task of the context, if it waits for its client."""
        try:
            tasks = self._client.list_tasks(context_id=self._context_id, page_size=1, **options).tasks
        except (UnsupportedOperationError, MethodNotFoundError):
            # Protocol 0.3 has no lists, and not every agent keeps tasks.
            return ""
        except HTTPStatusError as error:
            if error.status_code not in (404, 405, 501):
                raise
            return ""
        newest = next(iter(tasks), None)
        found = newest is not None and newest.context_id == self._context_id and newest.state.interrupted
        return newest.id if newest is not None and found else ""

    def _settle(self) -> None:
        """Take over what the last stream told."""
        stream = self._stream
        if stream is None:
            return
        if stream.result is not None:
            self._remember(stream.result)
        if stream.closed:
            self._stream = None

    def _remember(self, result: Task | Message) -> None:
        self._context_id = result.context_id or self._context_id
        self._task_id = result.id if isinstance(result, Task) and result.state.interrupted else ""

    def __repr__(self) -> str:
        return f"Chat(context_id={self.context_id!r}, task_id={self.task_id!r})"
