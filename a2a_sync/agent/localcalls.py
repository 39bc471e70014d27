"""An agent that is called where it is: ``agent.call("hello")``, without a client to make and to close.

Only a face: each method is one of a `Client` over the object itself, made at the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from a2a_sync.lazymodule import LazyModule
from a2a_sync.operations import Endpoint
from a2a_sync.types import Message, Metadata, Task

if TYPE_CHECKING:
    from a2a_sync import card, client
    from a2a_sync.client import content
else:
    card = LazyModule("a2a_sync.card")
    client = LazyModule("a2a_sync.client")
    content = LazyModule("a2a_sync.client.content")

#: Seconds that a call or a cancel waits by default, and a look at a task.
_WAIT = 60.0
_LOOK = 5.0
#: The most messages that a request can ask for: all of them.
WHOLE_HISTORY = 2**31 - 1
_T = TypeVar("_T")


class LocalCalls:
    """The base of what can be called in its own process. Safe from many threads."""

    _own_client: client.Client | None = None

    def endpoint(self) -> Endpoint:
        """What the calls go to."""
        raise NotImplementedError

    def agent_card(self) -> card.AgentCard:
        """What it says of itself."""
        raise NotImplementedError

    def call(
        self,
        message: content.Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Metadata | None = None,
        timeout: float | None = _WAIT,
    ) -> Task | Message:
        """Send `message` and wait until its task has ended or waits for you; with `task_id`, continue that task.

        Of a task the whole history is returned, as by `get_task`.

        Raises:
            UnsupportedOperationError: the task to continue has ended.
            TaskNotFoundError: there is none.
            TransportTimeoutError: `timeout` seconds went by; the task goes on.
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
        message: content.Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Metadata | None = None,
        timeout: float | None = None,
    ) -> client.TaskStream:
        """Send `message` and iterate over what comes of it, whatever kind of handler it has. The task ends without a reader, too."""
        return self._client().stream(
            message, task_id=task_id, context_id=context_id, metadata=metadata, timeout=timeout
        )

    def get_task(self, task_id: str, *, history_length: int | None = None, timeout: float | None = _LOOK) -> Task:
        """The task as it is now.

        Raises:
            TaskNotFoundError: there is none.
        """
        return self._client().get_task(task_id, history_length=history_length, timeout=timeout)

    def cancel(self, task_id: str, *, metadata: Metadata | None = None, timeout: float | None = _WAIT) -> Task:
        """Cancel the task; what it is after that.

        Raises:
            TaskNotCancelableError: it has ended, or its handler refuses.
            TaskNotFoundError: there is none.
        """
        return self._client().cancel_task(task_id, metadata=metadata, timeout=timeout)

    def _client(self) -> client.Client:
        client = self._own_client
        if client is None:
            from a2a_sync.client import Client

            client = self._keep("_own_client", Client(self))
        return client

    def _keep(self, name: str, made: _T) -> _T:
        """`made`, from now on; or what another thread has made meanwhile. Made under no lock: it calls what users wrote."""
        return cast(_T, vars(self).setdefault(name, made))

    def _drop_client(self) -> None:
        """End what was called this way."""
        client = vars(self).pop("_own_client", None)
        if client is not None:
            client.close()
