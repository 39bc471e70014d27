"""Calls of an agent in its own process: ``agent.call("hello")``, without creating a client.

Each method uses a `Client` for the object itself, which is created at the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from a2a_sync.lazymodule import LazyModule
from a2a_sync.operations import Endpoint
from a2a_sync.types import Content, Message, Metadata, Task

if TYPE_CHECKING:
    from a2a_sync import card, client
else:
    card = LazyModule("a2a_sync.card")
    client = LazyModule("a2a_sync.client")

#: Default timeouts of a call or cancel, and of reading a task, in seconds.
_CALL_TIMEOUT = 60.0
_READ_TIMEOUT = 5.0
#: The largest ``history_length`` of a request, which requests the whole history.
WHOLE_HISTORY = 2**31 - 1
_T = TypeVar("_T")


class InProcessCalls:
    """The base of agents and apps that can be called in their own process. Thread-safe."""

    _own_client: client.Client | None = None

    def endpoint(self) -> Endpoint:
        """The endpoint of the calls."""
        raise NotImplementedError

    def agent_card(self) -> card.AgentCard:
        """The agent card."""
        raise NotImplementedError

    def call(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Metadata | None = None,
        timeout: float | None = _CALL_TIMEOUT,
    ) -> Task | Message:
        """Send `message` and wait until its task has ended or is interrupted; with `task_id`, continue that task.

        A returned task has its whole history, as with `get_task`.

        Raises:
            UnsupportedOperationError: the task to continue has ended.
            TaskNotFoundError: no task has the id `task_id`.
            TransportTimeoutError: `timeout` seconds have passed; the task continues.
        """
        return self._client().send(
            message,
            task_id=task_id,
            context_id=context_id,
            history_length=WHOLE_HISTORY,
            metadata=metadata,
            timeout=timeout,
        )

    def stream(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Metadata | None = None,
        timeout: float | None = None,
    ) -> client.TaskStream:
        """Send `message` and iterate over the events of its task. The task continues if the iteration stops."""
        return self._client().stream(
            message, task_id=task_id, context_id=context_id, metadata=metadata, timeout=timeout
        )

    def get_task(
        self, task_id: str, *, history_length: int | None = None, timeout: float | None = _READ_TIMEOUT
    ) -> Task:
        """The task as it is now.

        Raises:
            TaskNotFoundError: no task has this id.
        """
        return self._client().get_task(task_id, history_length=history_length, timeout=timeout)

    def cancel(self, task_id: str, *, metadata: Metadata | None = None, timeout: float | None = _CALL_TIMEOUT) -> Task:
        """Cancel the task and return it.

        Raises:
            TaskNotCancelableError: the task has ended, or the cancel handler of the agent refuses.
            TaskNotFoundError: no task has this id.
        """
        return self._client().cancel_task(task_id, metadata=metadata, timeout=timeout)

    def _client(self) -> client.Client:
        client = self._own_client
        if client is None:
            from a2a_sync.client import Client

            client = self._set_once("_own_client", Client(self))
        return client

    def _set_once(self, name: str, value: _T) -> _T:
        """Store `value` as attribute `name` unless it is set already, and return the stored object.

        Atomic without a lock, because no lock may be held while user code creates `value`.
        """
        return cast(_T, vars(self).setdefault(name, value))

    def _close_client(self) -> None:
        """Close the client."""
        client = vars(self).pop("_own_client", None)
        if client is not None:
            client.close()
