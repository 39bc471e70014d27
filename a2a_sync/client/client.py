"""The client: the protocol's operations as plain, blocking calls.

Every operation is a `Call` over a `Link`; which wire that is was decided when the link was made. What takes more than one
call is in `waiting`, limits are kept by the endpoints, the fold by `TaskStream`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from a2a_sync import operations as op
from a2a_sync.bindings.headers import major_minor
from a2a_sync.card import AgentCard
from a2a_sync.client import waiting
from a2a_sync.client.cards import choose_interface
from a2a_sync.client.chat import Chat
from a2a_sync.client.content import Content, as_message
from a2a_sync.client.link import Link, Surroundings, http_link, local_link
from a2a_sync.client.retry import Retry
from a2a_sync.client.stream import OneEvent, TaskStream
from a2a_sync.client.timeouts import Deadline, Timeout
from a2a_sync.native import at_home
from a2a_sync.operations import is_idempotency_key
from a2a_sync.types import (
    CancelTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Metadata,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
    new_id,
)

if TYPE_CHECKING:
    import requests

    from a2a_sync.client.credentials import Auth
    from a2a_sync.client.http import HttpTransport


_RETRY = Retry()


class Client:
    """Calls one agent. Safe from many threads; usable after a fork.

    Parameters:
        target: the agent's URL (its card is read at the first call), an `AgentCard`, or an `A2AApp` or `Agent` of this
            process (no network; `auth` and `session` mean nothing then).
        auth: a bearer token, a function that gives one for each request, ``(user, password)``, or a requests `AuthBase`.
            Goes to the origin of `target` only: where its card names an address elsewhere, make the client from the card.
        timeout: a `Timeout`, or the overall limit of each call in seconds. Each method takes an overall limit of its own.
        retry: how to go on after the network or the server has cut a call off; None: not at all.
        headers: sent with every request, to the same origin as `auth`.
        version: use only interfaces of this protocol version.
        binding: use only interfaces of this binding, ``"JSONRPC"`` or ``"HTTP+JSON"``; by default the card's first.
        extensions: URIs of extensions to activate (spec 4.6).
        session: a `requests.Session` of yours, taken as it is; see that your threads may share it.

    Raises (from every method that calls the agent):
        A2AError: the agent said no; its subclasses say why.
        CardNotFoundError, ConnectError, TransportTimeout, TransportError: the network said no.

    Used with ``with``, or closed by `close`; both end what is still streaming.
    """

    def __init__(
        self,
        target: str | AgentCard | Any,
        *,
        auth: Auth = None,
        timeout: Timeout | float | None = None,
        retry: Retry | None = _RETRY,
        headers: Mapping[str, str] | None = None,
        version: str | None = None,
        binding: str | None = None,
        extensions: Sequence[str] = (),
        session: requests.Session | None = None,
    ) -> None:
        self._target: Any = target
        self._timeout = Timeout.of(timeout)
        self._version = major_minor(version) if version is not None else None
        self._binding = binding.upper() if binding is not None else None
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        self._surroundings = Surroundings(lower, tuple(extensions), retry or Retry.off)
        self._link: Link | None = None
        self._http: HttpTransport | None = None
        if isinstance(target, str):
            if urlsplit(target).scheme not in ("http", "https"):
                raise ValueError("the agent's URL must begin with http:// or https://")
            self._http = self._transport(target, auth, session)
            self._target = self._http.home
        elif isinstance(target, AgentCard):
            self._http = self._transport(choose_interface(target, self._version, self._binding).url, auth, session)
        elif not (hasattr(target, "endpoint") and hasattr(target, "agent_card")):
            raise TypeError(f"Client takes a URL, an AgentCard, an A2AApp or an Agent; not {type(target).__name__}")

    def _transport(self, home: str, auth: Auth, session: requests.Session | None) -> HttpTransport:
        # Loading requests takes longer than all the rest: only clients that use it pay for it.
        from a2a_sync.client.http import HttpTransport

        shared = self._surroundings
        return HttpTransport(
            home, auth=auth, headers=shared.headers, timeout=self._timeout, alarms=shared.alarms, session=session
        )

    # -- the agent --

    @at_home
    def card(self, *, refresh: bool = False, timeout: float | None = None) -> AgentCard:
        """The agent's card: read once and kept, read again with `refresh`."""
        if refresh:
            self._link = None
        return self._connect(self._deadline(timeout)).card

    def _connect(self, deadline: Deadline) -> Link:
        link = self._link
        if link is None:
            # Threads that meet here each read the card: no lock is held while one of them waits for it.
            if self._http is None:
                link = local_link(self._target, self._version, self._surroundings)
            else:
                card = self._target if isinstance(self._target, AgentCard) else None
                link = http_link(self._http, card, self._version, self._binding, self._surroundings, deadline)
            self._link = link
        return link

    def _deadline(self, timeout: float | None) -> Deadline:
        if self._surroundings.closed.is_set():
            raise RuntimeError("the client is closed")
        return Deadline.after(self._timeout.overall if timeout is None else timeout)

    # -- sending --

    @at_home
    def send(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        return_immediately: bool = False,
        history_length: int | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Task | Message:
        """Send a message and wait until its task has ended or waits for you; a failed task is returned, not raised.

        Streams underneath where the agent can: status and artifacts are then those of GetTask, the history is what
        the stream carried, and a given `history_length` costs one GetTask at the end. A stream that is cut is taken up
        again (see `Retry`). A message whose answer is lost is sent again only to agents that know it again by its key.

        Parameters:
            message: text, a part, a list of these, or a `Message`.
            task_id: the task to continue; it must wait for input.
            context_id: the conversation to continue.
            return_immediately: return as soon as the task exists.
            history_length: the most messages of history to return.
            metadata: goes with the request.
            accepted_output_modes: media types you can take.
            idempotency_key: of all sends with this key and the same content, the agent runs one and answers all with its
                task; 1 to 255 printable ASCII characters. Only where its card lists ``urn:a2a-sync:idempotent-send:1``;
                there, each call has a key of its own by default.
            timeout: seconds for all of it.

        Raises:
            TransportTimeout, StreamInterrupted: with ``task_id``, so that you can `wait` for the task later.
        """
        deadline = self._deadline(timeout)
        link = self._connect(deadline)
        request = SendMessageRequest(
            message=as_message(message, task_id=task_id, context_id=context_id),
            configuration=_configuration(return_immediately, history_length, accepted_output_modes),
            metadata=metadata or {},
        )
        key = _key(link, idempotency_key)
        if link.streams_sends and not return_immediately:
            return waiting.send_streaming(link, request, deadline, key)
        return waiting.send_plain(link, request, deadline, key)

    @at_home
    def stream(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        history_length: int | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> TaskStream:
        """Send a message and follow what comes of it, event by event. The parameters are those of `send`.

        An agent that does not stream is sent an ordinary message; its answer is then the only event.
        """
        deadline = self._deadline(timeout)
        link = self._connect(deadline)
        request = SendMessageRequest(
            message=as_message(message, task_id=task_id, context_id=context_id),
            configuration=_configuration(False, history_length, accepted_output_modes),
            metadata=metadata or {},
        )
        key = _key(link, idempotency_key)
        if link.streaming:
            return link.stream(request, deadline, key)
        return link.listen(OneEvent(waiting.send_plain(link, request, deadline, key)), request.message.task_id)

    def chat(self, context_id: str | None = None) -> Chat:
        """A conversation, new or continued: it remembers the ids that the next message needs."""
        return Chat(self, context_id or "")

    # -- tasks --

    @at_home
    def get_task(self, task_id: str, *, history_length: int | None = None, timeout: float | None = None) -> Task:
        """The task as it is now.

        Raises:
            TaskNotFoundError: there is none that you may see.
        """
        deadline = self._deadline(timeout)
        return waiting.get_task(self._connect(deadline), task_id, history_length, deadline)

    @at_home
    def list_tasks(
        self,
        *,
        context_id: str = "",
        status: TaskState | str | None = None,
        page_size: int | None = None,
        page_token: str = "",
        history_length: int | None = None,
        status_timestamp_after: datetime | None = None,
        include_artifacts: bool | None = None,
        timeout: float | None = None,
    ) -> ListTasksResponse:
        """One page of the tasks you may see, newest status first.

        Parameters:
            context_id: only tasks of this conversation.
            status: only tasks in this state.
            page_size: most tasks to return (1 to 100; the server's own choice by default).
            page_token: the ``next_page_token`` of the page before, with the same filters.
            history_length: most messages per task.
            status_timestamp_after: only tasks whose status is from then or later (with a time zone).
            include_artifacts: artifacts come too.
        """
        deadline = self._deadline(timeout)
        request = ListTasksRequest(
            context_id=context_id,
            status=TaskState.UNSPECIFIED if status is None else TaskState(status),
            page_size=page_size,
            page_token=page_token,
            history_length=history_length,
            status_timestamp_after=status_timestamp_after,
            include_artifacts=include_artifacts,
        )
        page: ListTasksResponse = self._connect(deadline).call(op.LIST_TASKS, request, deadline)
        return page

    def iter_tasks(self, **filters: Any) -> Iterator[Task]:
        """All tasks, page by page as they are needed; `filters` are those of `list_tasks`."""
        seen = {""}
        while True:
            page = self.list_tasks(**filters)
            yield from page.tasks
            if page.next_page_token in seen:
                return
            seen.add(page.next_page_token)
            filters["page_token"] = page.next_page_token

    @at_home
    def cancel_task(self, task_id: str, *, metadata: Metadata | None = None, timeout: float | None = None) -> Task:
        """Ask the agent to stop; the task as it is after that.

        Raises:
            TaskNotCancelableError: it has ended, or its agent refuses.
            TaskNotFoundError: there is none that you may see.
        """
        deadline = self._deadline(timeout)
        request = CancelTaskRequest(id=task_id, metadata=metadata or {})
        task: Task = self._connect(deadline).call(op.CANCEL_TASK, request, deadline)
        return task

    @at_home
    def subscribe(self, task_id: str, *, last_event_id: int | None = None, timeout: float | None = None) -> TaskStream:
        """Follow a task that runs or waits: first the task as it is, then its events.

        With `last_event_id` (of an earlier `TaskStream`) a server that numbers its events goes on right after it.

        Raises:
            UnsupportedOperationError: the task has ended, or the agent does not stream.
            TaskNotFoundError: there is none that you may see.
        """
        deadline = self._deadline(timeout)
        return self._connect(deadline).subscribe(task_id, deadline, last_event_id)

    @at_home
    def wait(self, task_id: str, *, timeout: float | None = None) -> Task:
        """Wait until the task has ended or waits for you, by its stream where there is one, else by looking at it.

        Passing failures of the network are waited out (see `Retry`).

        Raises:
            TransportTimeout: `timeout` seconds (or the client's overall limit) went by.
        """
        deadline = self._deadline(timeout)
        return waiting.wait(self._connect(deadline), task_id, deadline)

    # -- the end --

    @at_home
    def close(self) -> None:
        """End what still streams or waits, and close the connections. Idempotent."""
        self._surroundings.close()
        if self._http is not None:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._http.agent if self._http is not None else self._target!r})"


def _key(link: Link, given: str | None) -> str:
    """What makes a send repeatable: `given`, or a new key where the agent would know it again."""
    if given is None:
        return new_id() if link.may_repeat else ""
    if not is_idempotency_key(given):
        raise ValueError("idempotency_key takes 1 to 255 printable ASCII characters")
    return given


def _configuration(
    return_immediately: bool, history_length: int | None, accepted_output_modes: Sequence[str]
) -> SendMessageConfiguration | None:
    if isinstance(accepted_output_modes, str):
        raise TypeError("accepted_output_modes takes a list of media types, not one string")
    if not return_immediately and history_length is None and not accepted_output_modes:
        return None
    return SendMessageConfiguration(
        accepted_output_modes=tuple(accepted_output_modes),
        history_length=history_length,
        return_immediately=return_immediately,
    )
