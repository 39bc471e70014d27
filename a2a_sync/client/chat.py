"""`Chat`: a conversation, which keeps the ids that the next message needs."""

from __future__ import annotations

from typing import Protocol, Unpack, cast

from a2a_sync.client.arguments import CallOptions, SendOptions, StreamOptions
from a2a_sync.client.stream import TaskStream
from a2a_sync.errors import HTTPStatusError, MethodNotFoundError, UnsupportedOperationError
from a2a_sync.types import Content, ListTasksResponse, Message, Task

_CALL_OPTIONS = CallOptions.__annotations__.keys()


class ChatClient(Protocol):
    """The methods of a client that `Chat` uses; `Client` has them."""

    def send(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Task | Message: ...

    def stream(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        **options: Unpack[StreamOptions],
    ) -> TaskStream: ...

    def list_tasks(
        self, *, context_id: str = "", page_size: int | None = None, **options: Unpack[CallOptions]
    ) -> ListTasksResponse: ...


class Chat:
    """Messages of one context, sent one after the other; made by `Client.chat`. For one thread at a time.

    A message continues the last task only while that task waits for input; otherwise it starts a new task in the same context
    (a task that has ended is never continued, spec 3.4.3). A conversation that is resumed by its id first asks the agent
    whether the newest task of the context waits for input, if the agent can list tasks.
    """

    def __init__(self, client: ChatClient, context_id: str = "") -> None:
        self._client = client
        self._context_id = context_id
        self._task_id = ""
        self._task_known = not context_id
        self._stream: TaskStream | None = None

    def send(self, message: Content, **options: Unpack[SendOptions]) -> Task | Message:
        """`Client.send` in this conversation, with the same options and errors."""
        task_id, context_id = self._next_ids(options)
        result = self._client.send(message, task_id=task_id, context_id=context_id, **options)
        self._remember(result)
        return result

    def stream(self, message: Content, **options: Unpack[StreamOptions]) -> TaskStream:
        """`Client.stream` in this conversation. Read it to its end (or pause) before the next message."""
        task_id, context_id = self._next_ids(options)
        self._stream = self._client.stream(message, task_id=task_id, context_id=context_id, **options)
        return self._stream

    @property
    def context_id(self) -> str:
        """The id of the conversation; empty until the agent has named it."""
        self._remember_stream()
        return self._context_id

    @property
    def task_id(self) -> str:
        """The id of the task that waits for the next message; empty if none waits."""
        self._remember_stream()
        return self._task_id

    def _next_ids(self, options: StreamOptions) -> tuple[str | None, str | None]:
        """The ids of task and context for the next message."""
        self._remember_stream()
        if not self._task_known:
            shared = {key: value for key, value in options.items() if key in _CALL_OPTIONS}
            self._task_id = self._find_waiting_task(cast(CallOptions, shared))
            self._task_known = True
        return self._task_id or None, self._context_id or None

    def _find_waiting_task(self, options: CallOptions) -> str:
        """The id of the newest task of the context if it waits for input, else ``""``."""
        try:
            tasks = self._client.list_tasks(context_id=self._context_id, page_size=1, **options).tasks
        except (UnsupportedOperationError, MethodNotFoundError):
            # Protocol 0.3 cannot list tasks, and not every agent stores tasks.
            return ""
        except HTTPStatusError as error:
            if error.status_code not in (404, 405, 501):
                raise
            return ""
        newest = next(iter(tasks), None)
        if newest is None or newest.context_id != self._context_id or not newest.state.interrupted:
            return ""
        return newest.id

    def _remember_stream(self) -> None:
        """Store the ids that the last stream has brought."""
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
