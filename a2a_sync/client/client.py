"""The client: the protocol's operations as plain, blocking calls.

What goes over which wire is decided once, in `_connect`; from there on every operation is a `Call` to an endpoint. Limits
are kept by the endpoints, the fold by `TaskStream`; here is what the operations mean together: a send that streams
underneath, and waiting for a task by whatever way its agent offers.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from a2a_sync import operations as op
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.cards import choose_interface, fetch_card, major_minor
from a2a_sync.client.chat import Chat
from a2a_sync.client.content import Content, as_message
from a2a_sync.client.stream import OneEvent, TaskStream
from a2a_sync.client.timeouts import AlarmClock, Deadline, Timeout
from a2a_sync.codec import by_version
from a2a_sync.errors import (
    HTTPStatusError,
    InvalidAnswerError,
    OverloadedError,
    StreamInterrupted,
    TransportError,
    TransportTimeout,
    UnsupportedOperationError,
)
from a2a_sync.operations import Call, CallContext, Endpoint, Operation
from a2a_sync.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Metadata,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

if TYPE_CHECKING:
    import requests

    from a2a_sync.client.http import Auth, HttpTransport

#: How long `send` listens on after a task has paused for its client: the stream usually ends right then.
_PAUSE_GRACE = 0.1
#: Pauses between two looks at a task, in seconds: the first, the factor, the longest.
_PAUSES = (0.25, 1.6, 10.0)
#: How many failures in a row `wait` takes for passing ones.
_FAILURES = 5


@dataclass(frozen=True, slots=True)
class _Link:
    """What a card led to: where calls go and how they are marked."""

    card: AgentCard
    endpoint: Endpoint
    agent: str
    tenant: str
    version: str
    streaming: bool
    #: Sends go as streams: a network has idle limits and loses answers, a process has not.
    streams_sends: bool


class Client:
    """Calls one agent. Safe from many threads; usable after a fork.

    Parameters:
        target: the agent's URL (its card is read at the first call), an `AgentCard`, or an `A2AApp` or `Agent` of this
            process (no network; `auth` and `session` mean nothing then).
        auth: a bearer token, a function that gives one for each request, ``(user, password)``, or a requests `AuthBase`.
            Goes to the origin of `target` only: where its card names an address elsewhere, make the client from the card.
        timeout: a `Timeout`, or the overall limit of each call in seconds. Each method takes an overall limit of its own.
        headers: sent with every request, to the same origin as `auth`.
        version: use only interfaces of this protocol version.
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
        headers: Mapping[str, str] | None = None,
        version: str | None = None,
        extensions: Sequence[str] = (),
        session: requests.Session | None = None,
    ) -> None:
        self._target: Any = target
        self._timeout = Timeout.of(timeout)
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._version = major_minor(version) if version is not None else None
        self._extensions = tuple(extensions)
        self._alarms = AlarmClock()
        self._streams: weakref.WeakSet[TaskStream] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._link: _Link | None = None
        self._http: HttpTransport | None = None
        self._choice: AgentInterface | None = None
        if isinstance(target, str):
            if urlsplit(target).scheme not in ("http", "https"):
                raise ValueError("the agent's URL must begin with http:// or https://")
            self._http = self._transport(target, auth, session)
            self._target = self._http.home
        elif isinstance(target, AgentCard):
            self._choice = choose_interface(target, self._version)
            self._http = self._transport(self._choice.url, auth, session)
        elif not (hasattr(target, "endpoint") and hasattr(target, "agent_card")):
            raise TypeError(f"Client takes a URL, an AgentCard, an A2AApp or an Agent; not {type(target).__name__}")

    def _transport(self, home: str, auth: Auth, session: requests.Session | None) -> HttpTransport:
        # Loading requests takes longer than all the rest: only clients that use it pay for it.
        from a2a_sync.client.http import HttpTransport

        return HttpTransport(
            home, auth=auth, headers=self._headers, timeout=self._timeout, alarms=self._alarms, session=session
        )

    # -- the agent --

    def card(self, *, refresh: bool = False, timeout: float | None = None) -> AgentCard:
        """The agent's card: read once and kept, read again with `refresh`."""
        if refresh:
            self._link = None
        return self._connect(self._deadline(timeout)).card

    def _connect(self, deadline: Deadline) -> _Link:
        link = self._link
        if link is None:
            # Threads that meet here each read the card; no lock is held while they do.
            self._link = link = self._http_link(deadline) if self._http is not None else self._local_link()
        return link

    def _http_link(self, deadline: Deadline) -> _Link:
        from a2a_sync.client.http import Where, display
        from a2a_sync.client.rpc import JsonRpcEndpoint

        http = self._http
        assert http is not None
        if isinstance(self._target, AgentCard):
            card, interface = self._target, self._choice
            assert interface is not None
        else:
            headers = {"Accept": "application/json", "A2A-Version": self._version or "1.0"}
            where = Where("card", display(http.home))
            card = fetch_card(lambda url: http.get(url, headers=headers, where=where, deadline=deadline), http.home)
            interface = choose_interface(card, self._version)
        version = major_minor(interface.protocol_version)
        streaming = bool(card.capabilities.streaming)
        return _Link(
            card=card,
            endpoint=JsonRpcEndpoint(http, interface.url, by_version(version)),
            agent=display(interface.url),
            tenant=interface.tenant,
            version=version,
            streaming=streaming,
            streams_sends=streaming,
        )

    def _local_link(self) -> _Link:
        from a2a_sync.client.local import LocalEndpoint

        card: AgentCard = self._target.agent_card()
        return _Link(
            card=card,
            endpoint=LocalEndpoint(self._target.endpoint(), card.name, self._alarms, self._closed.is_set),
            agent=card.name,
            tenant="",
            version=self._version or "1.0",
            streaming=bool(card.capabilities.streaming),
            streams_sends=False,
        )

    # -- sending --

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
        timeout: float | None = None,
    ) -> Task | Message:
        """Send a message and wait until its task has ended or waits for you; a failed task is returned, not raised.

        Streams underneath where the agent can: status and artifacts are then those of GetTask, the history is what
        the stream carried, and a given `history_length` costs one GetTask at the end. A stream that is cut is made up
        for by `wait`.

        Parameters:
            message: text, a part, a list of these, or a `Message`.
            task_id: the task to continue; it must wait for input.
            context_id: the conversation to continue.
            return_immediately: return as soon as the task exists.
            history_length: the most messages of history to return.
            metadata: goes with the request.
            accepted_output_modes: media types you can take.
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
            tenant=link.tenant,
        )
        if link.streams_sends and not return_immediately:
            return self._send_streaming(link, request, history_length, deadline)
        return self._send_plain(link, request, history_length, deadline)

    def _send_plain(
        self, link: _Link, request: SendMessageRequest, history_length: int | None, deadline: Deadline
    ) -> Task | Message:
        result: Task | Message = self._call(link, op.SEND_MESSAGE, request, deadline)
        at_once = request.configuration is not None and request.configuration.return_immediately
        if at_once or isinstance(result, Message) or result.state.paused:
            return result
        # A server may bound how long it blocks, and some never do.
        return self._recall(link, self._wait(link, result.id, deadline), history_length, deadline)

    def _send_streaming(
        self, link: _Link, request: SendMessageRequest, history_length: int | None, deadline: Deadline
    ) -> Task | Message:
        continued = request.message.task_id
        stream = self._open(link, op.SEND_STREAMING_MESSAGE, request, deadline, continued)
        try:
            # The first event of a task that goes on may still show it waiting for this very message.
            result = _run_until_paused(stream, skip_first=bool(continued))
        except (StreamInterrupted, TransportTimeout):
            # Before the first event nobody knows whether the message arrived: that is for the caller to judge.
            if stream.state is TaskState.UNSPECIFIED or deadline.expired:
                raise
            result = stream.task
        if isinstance(result, Message):
            return result
        if not result.state.paused:
            result = self._wait(link, stream.task_id, deadline)
        return self._recall(link, result, history_length, deadline)

    def _recall(self, link: _Link, task: Task, history_length: int | None, deadline: Deadline) -> Task:
        """`task` with the history that was asked for."""
        if history_length is None:
            return task
        if history_length == 0:
            return replace(task, history=())
        return self._get_task(link, task.id, history_length, deadline)

    def stream(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        history_length: int | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
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
            tenant=link.tenant,
        )
        if link.streaming:
            return self._open(link, op.SEND_STREAMING_MESSAGE, request, deadline, request.message.task_id)
        result = self._send_plain(link, request, history_length, deadline)
        return self._listen(link, OneEvent(result), request.message.task_id)

    def chat(self, context_id: str | None = None) -> Chat:
        """A conversation, new or continued: it remembers the ids that the next message needs."""
        return Chat(self, context_id or "")

    # -- tasks --

    def get_task(self, task_id: str, *, history_length: int | None = None, timeout: float | None = None) -> Task:
        """The task as it is now.

        Raises:
            TaskNotFoundError: there is none that you may see.
        """
        deadline = self._deadline(timeout)
        return self._get_task(self._connect(deadline), task_id, history_length, deadline)

    def _get_task(self, link: _Link, task_id: str, history_length: int | None, deadline: Deadline) -> Task:
        request = GetTaskRequest(id=task_id, history_length=history_length, tenant=link.tenant)
        return self._call(link, op.GET_TASK, request, deadline)  # type: ignore[no-any-return]

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
        link = self._connect(deadline)
        request = ListTasksRequest(
            context_id=context_id,
            status=TaskState.UNSPECIFIED if status is None else TaskState(status),
            page_size=page_size,
            page_token=page_token,
            history_length=history_length,
            status_timestamp_after=status_timestamp_after,
            include_artifacts=include_artifacts,
            tenant=link.tenant,
        )
        return self._call(link, op.LIST_TASKS, request, deadline)  # type: ignore[no-any-return]

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

    def cancel_task(self, task_id: str, *, metadata: Metadata | None = None, timeout: float | None = None) -> Task:
        """Ask the agent to stop; the task as it is after that.

        Raises:
            TaskNotCancelableError: it has ended, or its agent refuses.
            TaskNotFoundError: there is none that you may see.
        """
        deadline = self._deadline(timeout)
        link = self._connect(deadline)
        request = CancelTaskRequest(id=task_id, metadata=metadata or {}, tenant=link.tenant)
        return self._call(link, op.CANCEL_TASK, request, deadline)  # type: ignore[no-any-return]

    def subscribe(self, task_id: str, *, last_event_id: int | None = None, timeout: float | None = None) -> TaskStream:
        """Follow a task that runs or waits: first the task as it is, then its events.

        With `last_event_id` (of a `TaskStream` that was cut) a server that numbers its events goes on right after it.

        Raises:
            UnsupportedOperationError: the task has ended, or the agent does not stream.
            TaskNotFoundError: there is none that you may see.
        """
        deadline = self._deadline(timeout)
        return self._subscribe(self._connect(deadline), task_id, deadline, last_event_id)

    def _subscribe(self, link: _Link, task_id: str, deadline: Deadline, last_event_id: int | None = None) -> TaskStream:
        request = SubscribeToTaskRequest(id=task_id, tenant=link.tenant)
        return self._open(link, op.SUBSCRIBE_TO_TASK, request, deadline, task_id, last_event_id)

    # -- waiting --

    def wait(self, task_id: str, *, timeout: float | None = None) -> Task:
        """Wait until the task has ended or waits for you, by its stream where there is one, else by looking at it.

        Passing failures of the network are waited out.

        Raises:
            TransportTimeout: `timeout` seconds (or the client's overall limit) went by.
        """
        deadline = self._deadline(timeout)
        return self._wait(self._connect(deadline), task_id, deadline)

    def _wait(self, link: _Link, task_id: str, deadline: Deadline) -> Task:
        streaming = link.streaming
        pause = _Pause()
        failures = 0
        while True:
            retry_after = None
            try:
                task = self._get_task(link, task_id, None, deadline)
                if not task.state.paused and streaming:
                    followed = self._follow(link, task_id, deadline)
                    if followed is None:
                        streaming = False
                    elif followed.state.paused:
                        return followed
                    pause.reset()
                elif task.state.paused:
                    return task
                failures = 0
            except (TransportError, OverloadedError) as error:
                failures += 1
                if deadline.expired or failures >= _FAILURES or not _is_passing(error):
                    raise
                retry_after = getattr(error, "retry_after", None)
            self._rest(pause.next(retry_after), deadline, link, task_id)

    def _follow(self, link: _Link, task_id: str, deadline: Deadline) -> Task | None:
        """The task at the end of one subscription; None where the agent does not let it be followed."""
        try:
            stream = self._subscribe(link, task_id, deadline)
        except UnsupportedOperationError:
            return None  # it has just ended, or there are no streams after all: looking at it tells
        try:
            _run_until_paused(stream)
        except (StreamInterrupted, TransportTimeout):
            if deadline.expired or self._closed.is_set():
                raise
        task = stream.task
        return task if task is not None and stream.complete else self._get_task(link, task_id, None, deadline)

    def _rest(self, seconds: float, deadline: Deadline, link: _Link, task_id: str) -> None:
        left = deadline.left
        if self._closed.wait(seconds if left is None else min(seconds, left)):
            raise RuntimeError("the client is closed")
        if deadline.expired:
            raise TransportTimeout(
                "the overall limit ran out before the task paused", phase="send", agent=link.agent, task_id=task_id
            )

    # -- calling --

    def _deadline(self, timeout: float | None) -> Deadline:
        if self._closed.is_set():
            raise RuntimeError("the client is closed")
        return Deadline.after(self._timeout.overall if timeout is None else timeout)

    def _call(
        self, link: _Link, operation: Operation, request: Any, deadline: Deadline, last_event_id: int | None = None
    ) -> Any:
        context = CallContext(
            headers=self._headers if self._http is None else {},
            extensions=self._extensions,
            version=link.version,
            last_event_id=last_event_id,
            timeout=deadline.left,
        )
        return link.endpoint(Call(operation, request, context))

    def _open(
        self,
        link: _Link,
        operation: Operation,
        request: Any,
        deadline: Deadline,
        task_id: str,
        last_event_id: int | None = None,
    ) -> TaskStream:
        return self._listen(link, self._call(link, operation, request, deadline, last_event_id), task_id)

    def _listen(self, link: _Link, source: op.EventStream, task_id: str) -> TaskStream:
        stream = TaskStream(source, agent=link.agent, alarms=self._alarms, task_id=task_id)
        with self._lock:
            self._streams.add(stream)
        return stream

    # -- the end --

    def close(self) -> None:
        """End what still streams or waits, and close the connections. Idempotent."""
        self._closed.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        self._alarms.close()
        if self._http is not None:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._http is None:
            return f"Client({self._target!r})"
        from a2a_sync.client.http import display

        return f"Client({display(self._http.home)!r})"


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


def _run_until_paused(stream: TaskStream, *, skip_first: bool = False) -> Any:
    """Read a stream until its task pauses (or it ends); what came of it."""
    with stream:
        for _ in stream:
            if stream.state.interrupted and not skip_first:
                stream.end_within(_PAUSE_GRACE)
            skip_first = False
    return stream.result


def _is_passing(error: Exception) -> bool:
    """Worth another try: the network broke, or the agent asks for patience."""
    if isinstance(error, HTTPStatusError):
        return error.status in (408, 425, 429, 500, 502, 503, 504)
    return not isinstance(error, InvalidAnswerError)


class _Pause:
    """Pauses that grow, with jitter so that clients do not come in step."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self.reset()

    def reset(self) -> None:
        self._seconds = _PAUSES[0]

    def next(self, at_least: float | None = None) -> float:
        seconds = self._seconds * self._uniform(0.7, 1.3)
        self._seconds = min(self._seconds * _PAUSES[1], _PAUSES[2])
        return max(seconds, at_least or 0.0)
