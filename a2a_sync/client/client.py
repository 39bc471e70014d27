"""The client: the operations of the protocol as plain, blocking calls.

Each operation is a `Call` over a `Link`, which knows the transport. A `Chat` is a conversation over a client. Operations that
need several calls are in `waiting`, retries in `retry`, and the events of a task in `stream`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self, TypedDict, Unpack, cast
from urllib.parse import urlsplit

from a2a_sync import operations as op
from a2a_sync.bindings.registry import GRPC_SCHEMES
from a2a_sync.card import AgentCapabilities, AgentCard, AgentInterface
from a2a_sync.client import waiting
from a2a_sync.client.arguments import (
    CallOptions,
    SendOptions,
    StreamOptions,
    as_message,
    as_push_config,
    check_extensions,
    check_options,
    send_configuration,
)
from a2a_sync.client.cards import (
    NEVER_EXPIRES,
    CacheEntry,
    CardTrust,
    InterfaceFilter,
    refresh_card,
    usable_interfaces,
    with_absolute_urls,
)
from a2a_sync.client.deadlines import Deadline, Timeout
from a2a_sync.client.link import Link, SharedResources, http_link, local_link
from a2a_sync.client.local import LocalAgent
from a2a_sync.client.request import Frame
from a2a_sync.client.retry import READ, Retry
from a2a_sync.client.stream import TaskStream, single_event_stream
from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.gevent import run_on_gevent_hub
from a2a_sync.errors import (
    AgentError,
    HTTPStatusError,
    MalformedResponseError,
    MethodNotFoundError,
    TransportError,
    UnsafeURLError,
    UnsupportedOperationError,
)
from a2a_sync.lazymodule import LazyModule
from a2a_sync.operations import Interceptor, check_interceptors, is_idempotency_key
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    Content,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Metadata,
    SendMessageRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    new_id,
)

if TYPE_CHECKING:
    import requests

    from a2a_sync.client import credentials
    from a2a_sync.client.http import HttpTransport
    from a2a_sync.outbound import urlguard
else:
    requests = LazyModule("requests")
    credentials = LazyModule("a2a_sync.client.credentials")
    urlguard = LazyModule("a2a_sync.outbound.urlguard")

logger: Final = get_logger(__name__)

_DEFAULT_MAX_BYTES = 64 * 1024 * 1024
#: Seconds until a card that could not be refreshed is requested again.
_CARD_RETRY_INTERVAL = 60.0
_DEFAULT_RETRY = Retry()


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of `Client` that `Client.for_endpoint` takes too."""

    auth: credentials.Auth
    timeout: Timeout | float | None
    retry: Retry | None
    headers: Mapping[str, str]
    tenant: str | None
    extensions: Sequence[str]
    interceptors: Sequence[Interceptor]
    session: requests.Session | None
    verify: bool | str | os.PathLike[str] | None
    cert: str | tuple[str, str] | None
    double_base64_files: bool
    url_guard: urlguard.URLGuard | None
    trace: Callable[[Frame], object] | None
    max_response_bytes: int
    max_task_bytes: int


class ListFilters(CallOptions, total=False):
    """The arguments of `Client.iter_tasks`; see `Client.list_tasks`."""

    context_id: str
    status: TaskState | str | None
    page_size: int | None
    page_token: str
    history_length: int | None
    status_timestamp_after: datetime | None
    include_artifacts: bool | None


class Client(Closes):
    """Calls one agent. All methods may be called from any thread, and after a fork.

    Parameters:
        target: the URL of the agent (its card is read with the first call), an `AgentCard`, or an `A2AApp` or `Agent` of this
            process, which is called without network and authentication (`auth` is refused, `session` has no effect).
            ``grpc://host:port``, with TLS ``grpcs://host:port``, is called over gRPC, and no card is read.
        auth: credentials: a token, a function that returns one for each request, ``(user, password)``, `ApiKey`,
            `ClientCredentials`, an ``AuthBase`` of requests, or a mapping from the names of security schemes in the card to
            these. They are sent in the form that the card asks for, and only to the origin of `target`: for a card that
            lists an address on another origin, construct the client from that card.
        timeout: a `Timeout`, or the total limit of each call in seconds.
        retry: how long to retry after an interruption; None disables retries.
        headers: HTTP headers of every request, sent to the same origin as `auth`.
        protocol_version: use only interfaces of this protocol version.
        protocol_binding: use only interfaces of this binding, ``"JSONRPC"``, ``"HTTP+JSON"`` or ``"GRPC"`` (needs
            ``a2a-sync[grpc]``).
        prefer: interfaces to choose first if the card lists them, in order of preference: bindings, versions, both
            (``"HTTP+JSON 1.0"``) or URLs. Without a match, and by default, the order of the card decides.
        tenant: the tenant of all calls, in place of the one that the card names.
        extensions: URIs of the extensions to activate (spec 4.6).
        interceptors: functions that take an endpoint and return one, put around every call; the first is the outermost.
        session: a `requests.Session` to send with. It must be safe to share between threads. Its headers, cookies and credentials
            are sent to the same origin as `auth`; requests to others use its adapters, `verify` and proxies only.
        verify: how server certificates are checked, as in requests: True, False (not at all), or the path of a file or a
            folder of certificate authorities. By default the environment decides (``REQUESTS_CA_BUNDLE``).
        cert: the client certificate, as in requests: the path of a file with certificate and key, or the paths of both. It is
            sent to the same origin as `auth`.
        card_verifier: whose signature the card must carry: a `CardVerifier`, or the keys of one, such as the URL of a key set.
        double_base64_files: the agent encodes files in Base64 twice, as agents on the official Python SDK of 0.3 do over
            ``HTTP+JSON`` and ``GRPC``.
        url_guard: checks every URL that is called, by its text and by the address connected to; proxies are not used. For
            targets and cards that come from peers. It does not check token servers and key sets, and excludes `session`.
        trace: called with a `Frame` for each request, response and event of a stream over HTTP, on the thread of the call;
            without credentials. Cards are not traced. It must not block or raise.
        max_response_bytes: largest body of a response that is not a stream, decompressed, and largest list of push
            configurations. One event of a stream has at most 64 MiB.
        max_task_bytes: largest task that the events of a stream add up to, as JSON.

    Raises (from every method that calls the agent):
        AgentError: the agent answered with an error; the subclass names the reason.
        CardNotFoundError, ConnectError, TransportTimeoutError, TransportError: no usable answer arrived.
        CardAuthError: the card requires credentials that `auth` does not contain.
        CardSignatureError: no trusted signature of the card is valid (with `card_verifier`).

    Every method that calls the agent also takes ``timeout=``, ``headers=``, ``extensions=`` and ``tenant=`` for that call; see
    `CallOptions`.

    A client is a context manager. `close`, which the end of the block calls, ends open streams and pauses between retries.
    """

    def __init__(
        self,
        target: str | AgentCard | LocalAgent | None = None,
        *,
        auth: credentials.Auth = None,
        timeout: Timeout | float | None = None,
        retry: Retry | None = _DEFAULT_RETRY,
        headers: Mapping[str, str] | None = None,
        protocol_version: str | None = None,
        protocol_binding: str | None = None,
        prefer: Sequence[str] = (),
        tenant: str | None = None,
        extensions: Sequence[str] = (),
        interceptors: Sequence[Interceptor] = (),
        session: requests.Session | None = None,
        verify: bool | str | os.PathLike[str] | None = None,
        cert: str | tuple[str, str] | None = None,
        card_verifier: object = None,
        double_base64_files: bool = False,
        url_guard: urlguard.URLGuard | None = None,
        trace: Callable[[Frame], object] | None = None,
        max_response_bytes: int = _DEFAULT_MAX_BYTES,
        max_task_bytes: int = _DEFAULT_MAX_BYTES,
    ) -> None:
        if min(max_response_bytes, max_task_bytes) < 1:
            raise ValueError("max_response_bytes and max_task_bytes must be positive")
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"retry takes a Retry, such as Retry(max_elapsed=60), or None; not {type(retry).__name__}")
        self._timeout = Timeout.of(timeout)
        self._interface_filter = InterfaceFilter.of(protocol_version, protocol_binding, prefer)
        self._tenant = tenant
        self._double_base64_files = double_base64_files
        self._max_response_bytes = max_response_bytes
        self._interceptors = check_interceptors(interceptors)
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        self._shared = SharedResources(lower, check_extensions(extensions), retry or Retry.off, max_task_bytes)
        self._link: Link | None = None
        self._http: HttpTransport | None = None
        self._card_trust: CardTrust | None = None
        self._card: AgentCard | None = None
        self._target: LocalAgent | None = None
        certificate, authorities = _tls_settings(verify, cert, session)
        url = self._set_target(target, auth)
        if url is None:
            return
        # Importing requests takes longer than the rest of the import; only clients that use HTTP pay for it.
        from a2a_sync.client.http import HttpTransport

        try:
            self._http = HttpTransport(
                url,
                auth=auth,
                headers=lower,
                timeout=self._timeout,
                alarms=self._shared.alarms,
                session=session,
                verify=authorities,
                cert=certificate,
                url_guard=url_guard,
                trace=trace,
                max_response_bytes=max_response_bytes,
            )
        except UnsafeURLError as error:
            raise UnsafeURLError(f"the agent's URL {error}; a URL is, for example, http://127.0.0.1:8000") from None
        if card_verifier is not None:
            self._card_trust = CardTrust(card_verifier, self._http)

    def _set_target(self, target: str | AgentCard | LocalAgent | None, auth: credentials.Auth) -> str | None:
        """Keep `target`; the URL that requests are sent to, None for an agent of this process."""
        if isinstance(target, str) and urlsplit(target).scheme in GRPC_SCHEMES:
            target = _card_of(target, "GRPC", self._interface_filter.version or "1.0", streaming=True)
        if isinstance(target, str):
            return target
        if isinstance(target, AgentCard):
            self._card = with_absolute_urls(target)
            return usable_interfaces(self._card, self._interface_filter)[0].url
        self._target = _check_local(target, auth)
        return None

    @classmethod
    def for_endpoint(
        cls,
        url: str,
        *,
        protocol_binding: str = "JSONRPC",
        protocol_version: str = "1.0",
        streaming: bool = False,
        **options: Unpack[ClientOptions],
    ) -> Self:
        """A client for an agent without a card: operations are sent to `url`, and no card is read.

        Parameters:
            url: where operations are sent; with ``HTTP+JSON`` the part before paths such as ``/message:send``.
            protocol_binding: ``"JSONRPC"``, ``"HTTP+JSON"`` or ``"GRPC"``.
            protocol_version: ``"1.0"`` or ``"0.3"``.
            streaming: the agent streams. Without it, `stream` sends a plain message, whose answer is the only event.
            options: other arguments of `Client`, such as `auth` and `timeout`.

        Raises:
            ValueError: the URL does not begin with ``http://`` or ``https://``.
            VersionNotSupportedError: the binding or version is not supported.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError("the endpoint's URL must begin with http:// or https://, as in http://127.0.0.1:8000/")
        return cls(_card_of(url, protocol_binding, protocol_version, streaming), **options)

    # -- the card --

    @run_on_gevent_hub
    def card(self, *, refresh: bool = False, timeout: float | None = None) -> AgentCard:
        """The card of the agent, cached for as long as its server allows; `refresh` reads it again."""
        if refresh:
            self._link = None
        return self._current_link(self._deadline(timeout)).card

    @run_on_gevent_hub
    def extended_card(self, **options: Unpack[CallOptions]) -> AgentCard:
        """The extended card, for callers with more permissions (spec 3.1.11).

        It replaces the client's card until ``card(refresh=True)``, unless it was requested with ``headers=``,
        ``extensions=`` or ``tenant=``.

        Raises:
            UnsupportedOperationError: the card of the agent announces no extended card; no request is sent.
            ExtendedAgentCardNotConfiguredError: the agent has none for this caller.
        """
        link, deadline = self._begin_call(options)
        if not link.card.capabilities.extended_agent_card:
            raise UnsupportedOperationError(f"The card of {link.card.name!r} announces no extended card")
        card = link.call(op.GET_EXTENDED_CARD, GetExtendedAgentCardRequest(), deadline)
        if self._http is not None:
            try:
                card = with_absolute_urls(card, self._http.home)
            except UnsafeURLError as error:
                raise MalformedResponseError(
                    f"the extended card is not valid: {error}", phase="card", agent=link.agent
                ) from None
        if link is self._link:
            if card.supported_interfaces:
                self._link = self._make_link(card, deadline)
            else:
                self._link = replace(link, card=card, cache_entry=NEVER_EXPIRES)
        return card

    # -- messages --

    @run_on_gevent_hub
    def send(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        return_immediately: bool = False,
        stream: bool = True,
        history_length: int | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
        push_config: str | TaskPushNotificationConfig | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Task | Message:
        """Send a message and wait until its task has ended or waits for input. A failed task is returned, not raised.

        If the agent streams, the message is sent as a stream, which is resumed when it is cut (see `Retry`); status and
        artifacts are those of GetTask. The history ends with the sent message, unless only the history contains the
        answer; with `history_length`, one GetTask reads the history at the end. If a response is lost, the message is
        sent again only if the agent deduplicates messages by key.

        Parameters:
            message: text, a part, a list of these, or a `Message`.
            task_id: the task to continue; it must wait for input.
            context_id: the conversation to continue.
            return_immediately: return as soon as the task exists.
            stream: False sends a plain SendMessage, and polls if the agent answers before the task has paused; for agents with
                unreliable streams.
            history_length: the most messages of history to return.
            metadata: the metadata of the request.
            accepted_output_modes: the media types that the caller accepts.
            push_config: where the agent posts the events of the task from its beginning: a URL or a configuration. A
                configuration without an id is replaced by that of the next message to the task.
            idempotency_key: 1 to 255 printable ASCII characters. The agent runs only one of all messages with the same
                key and content, and answers each of them with the task of that one. Only for agents whose card lists
                ``urn:a2a-sync:idempotent-send:1``; for these, each call has its own key by default.
            options: see `CallOptions`.

        Raises:
            TransportTimeoutError, StreamInterruptedError: with ``task_id``, for a later `wait`.
        """
        link, deadline = self._begin_call(options, task_id)
        request = SendMessageRequest(
            message=as_message(message, task_id=task_id, context_id=context_id),
            configuration=send_configuration(return_immediately, history_length, accepted_output_modes, push_config),
            metadata=metadata or {},
        )
        key = _send_key(link, idempotency_key)
        if stream and link.streams_sends and not return_immediately:
            return waiting.send_streaming(link, request, deadline, key)
        return waiting.send_plain(link, request, deadline, key, stream=stream)

    @run_on_gevent_hub
    def stream(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        history_length: int | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
        push_config: str | TaskPushNotificationConfig | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[CallOptions],
    ) -> TaskStream:
        """Send a message and return the stream of its task.

        If the agent does not stream, the message is sent by SendMessage, and its answer is the only event.

        Parameters:
            message: text, a part, a list of these, or a `Message`.
            task_id: the task to continue; it must wait for input.
            context_id: the conversation to continue.
            history_length: the most messages of history in the first event.
            metadata: the metadata of the request.
            accepted_output_modes: the media types that the caller accepts.
            push_config: as for `send`.
            idempotency_key: as for `send`.
            options: see `CallOptions`.
        """
        link, deadline = self._begin_call(options, task_id)
        request = SendMessageRequest(
            message=as_message(message, task_id=task_id, context_id=context_id),
            configuration=send_configuration(False, history_length, accepted_output_modes, push_config),
            metadata=metadata or {},
        )
        key = _send_key(link, idempotency_key)
        if link.streaming:
            return link.stream(request, deadline, key)
        answer = waiting.send_plain(link, request, deadline, key)
        return link.task_stream(single_event_stream(answer), request.message.task_id)

    def chat(self, context_id: str | None = None) -> Chat:
        """A conversation: a new one, or the one with this id. It keeps the ids that the next message needs."""
        return Chat(self, context_id or "")

    def as_tool(
        self,
        skill: str | None = None,
        *,
        name: str = "",
        description: str = "",
        context_id: str | None = None,
        metadata: Metadata | None = None,
        **options: Unpack[CallOptions],
    ) -> Callable[..., str]:
        """The agent as a function ``(message: str, task_id: str = "") -> str`` for agent frameworks to use as a tool.

        The name and the docstring come from the card, which is read now unless `name` and `description` are given. The
        function returns the text of the result, with data as JSON and files by name. If the agent asks for input, it returns
        the question and the ``task_id`` to answer it with.

        Parameters:
            skill: the id of one skill of the card: the name and the description are the skill's, and the metadata of each
                request name it as ``skillId``.
            name: a Python identifier, in place of the one made from the name of the agent.
            description: what a model reads about the tool, in place of the card's description.
            context_id: the conversation of all messages.
            metadata: the metadata of each request.
            options: the options of each call; see `CallOptions`.

        Raises:
            KeyError: the card has no such skill.
            TaskFailedError: (from the function) the task failed, was rejected or canceled.
        """
        from a2a_sync.client.tools import SKILL, make_tool

        check_options(options)
        card = None if name and description and skill is None else self.card()
        found = card.skill(skill) if card is not None and skill is not None else None
        marked = metadata if found is None else {**(metadata or {}), SKILL: found.id}

        def send(message: str, task_id: str | None) -> Task | Message:
            return self.send(message, task_id=task_id, context_id=context_id, metadata=marked, **options)

        return make_tool(send, card, found, name=name, description=description)

    # -- tasks --

    @run_on_gevent_hub
    def get_task(self, task_id: str, *, history_length: int | None = None, **options: Unpack[CallOptions]) -> Task:
        """The current state of a task; `history_length` limits the messages of its history.

        Raises:
            TaskNotFoundError: there is no such task, or the caller may not see it.
        """
        link, deadline = self._begin_call(options, task_id)
        retries = link.retrying(READ, deadline, task_id=task_id)
        return retries.run(lambda _: waiting.get_task(link, task_id, history_length, deadline))

    @run_on_gevent_hub
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
        **options: Unpack[CallOptions],
    ) -> ListTasksResponse:
        """One page of the tasks that the caller may see, the latest status first.

        Parameters:
            context_id: only tasks of this conversation.
            status: only tasks in this state.
            page_size: the most tasks to return, 1 to 100; by default the server chooses.
            page_token: ``next_page_token`` of the page before; the filters must be the same.
            history_length: the most messages of history per task.
            status_timestamp_after: only tasks whose status has this time or a later one; with a time zone.
            include_artifacts: return artifacts too.
            options: see `CallOptions`.
        """
        link, deadline = self._begin_call(options)
        request = ListTasksRequest(
            context_id=context_id,
            status=TaskState.UNSPECIFIED if status is None else TaskState(status),
            page_size=page_size,
            page_token=page_token,
            history_length=history_length,
            status_timestamp_after=status_timestamp_after,
            include_artifacts=include_artifacts,
        )
        return link.retrying(READ, deadline).run(lambda _: link.call(op.LIST_TASKS, request, deadline))

    def iter_tasks(self, **filters: Unpack[ListFilters]) -> Iterator[Task]:
        """All tasks that match; pages are requested as they are needed. `filters` are the arguments of `list_tasks`.

        Raises:
            MalformedResponseError: the agent returned more than 10,000 pages, or a page token of more than 4096 characters.
        """

        def read(token: str) -> ListTasksResponse:
            filters["page_token"] = token
            return self.list_tasks(**filters)

        for page in waiting.pages(read, filters.get("page_token", "")):
            yield from page.tasks

    @run_on_gevent_hub
    def cancel_task(self, task_id: str, *, metadata: Metadata | None = None, **options: Unpack[CallOptions]) -> Task:
        """Cancel a task and return it.

        Raises:
            TaskNotCancelableError: the task has ended, or the agent refuses to cancel it.
            TaskNotFoundError: there is no such task, or the caller may not see it.
        """
        link, deadline = self._begin_call(options, task_id)
        request = CancelTaskRequest(id=task_id, metadata=metadata or {})
        return waiting.cancel(link, request, deadline)

    @run_on_gevent_hub
    def subscribe(
        self, task_id: str, *, last_event_id: int | None = None, **options: Unpack[CallOptions]
    ) -> TaskStream:
        """The stream of a task that runs or waits: first its current state, then its events.

        With `last_event_id`, of an earlier `TaskStream`, a server that numbers its events resumes after that event.

        Raises:
            UnsupportedOperationError: the task has ended, or the agent does not stream.
            TaskNotFoundError: there is no such task, or the caller may not see it.
        """
        link, deadline = self._begin_call(options, task_id)
        return link.subscribe(task_id, deadline, last_event_id)

    @run_on_gevent_hub
    def wait(self, task_id: str, *, stream: bool = True, **options: Unpack[CallOptions]) -> Task:
        """Wait until a task has ended or waits for input, and return it.

        If the agent streams and `stream` is true, the client follows the stream of the task; otherwise it polls the
        task. Transient failures are retried (see `Retry`).

        Raises:
            TransportTimeoutError: the task did not pause within `timeout` seconds, or the total limit of the client.
        """
        link, deadline = self._begin_call(options, task_id)
        return waiting.wait(link, task_id, deadline, stream=stream)

    # -- push notifications (spec 3.1.7 to 3.1.10); all raise PushNotificationNotSupportedError without support --

    @run_on_gevent_hub
    def create_push_config(
        self,
        task_id: str,
        webhook: str | TaskPushNotificationConfig,
        *,
        id: str = "",
        token: str = "",
        authentication: AuthenticationInfo | None = None,
        **options: Unpack[CallOptions],
    ) -> TaskPushNotificationConfig:
        """Make the agent post the events of a task to `webhook`; returns the configuration that the agent has stored.

        Parameters:
            task_id: the task.
            webhook: the URL to post to, or a configuration, whose members the other arguments replace.
            id: the id of the configuration; one of this task with the same id is replaced. By default the agent chooses it.
            token: sent with each notification, for the receiver to check.
            authentication: how the agent authenticates to the receiver.
            options: see `CallOptions`.

        Raises:
            PushNotificationNotSupportedError: the agent sends no push notifications.
            TaskNotFoundError: there is no such task, or the caller may not see it.
            InvalidParamsError: the agent does not post to this URL, or the task has too many configurations.
        """
        config = as_push_config(webhook)
        request = replace(
            config,
            task_id=task_id,
            id=id or config.id,
            token=token or config.token,
            authentication=authentication or config.authentication,
        )
        link, deadline = self._begin_call(options, task_id)
        return link.call(op.CREATE_PUSH_CONFIG, request, deadline)

    @run_on_gevent_hub
    def get_push_config(self, task_id: str, id: str, **options: Unpack[CallOptions]) -> TaskPushNotificationConfig:
        """One push configuration of a task.

        Raises:
            PushNotificationNotSupportedError: the agent sends no push notifications.
            TaskNotFoundError: there is no such task or configuration, or the caller may not see it.
        """
        link, deadline = self._begin_call(options, task_id)
        return link.call(op.GET_PUSH_CONFIG, GetTaskPushNotificationConfigRequest(task_id=task_id, id=id), deadline)

    @run_on_gevent_hub
    def list_push_configs(self, task_id: str, **options: Unpack[CallOptions]) -> list[TaskPushNotificationConfig]:
        """All push configurations of a task.

        Raises:
            MalformedResponseError: together they are larger than ``max_response_bytes``.
            PushNotificationNotSupportedError: the agent sends no push notifications.
            TaskNotFoundError: there is no such task, or the caller may not see it.
        """
        link, deadline = self._begin_call(options, task_id)

        def read(token: str) -> ListTaskPushNotificationConfigsResponse:
            request = ListTaskPushNotificationConfigsRequest(task_id=task_id, page_token=token)
            return link.call(op.LIST_PUSH_CONFIGS, request, deadline)

        return waiting.push_configs(read, self._max_response_bytes)

    @run_on_gevent_hub
    def delete_push_config(self, task_id: str, id: str, **options: Unpack[CallOptions]) -> None:
        """Delete a push configuration of a task; no error if it does not exist.

        Raises:
            PushNotificationNotSupportedError: the agent sends no push notifications.
            TaskNotFoundError: there is no such task, or the caller may not see it.
        """
        link, deadline = self._begin_call(options, task_id)
        link.call(op.DELETE_PUSH_CONFIG, DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=id), deadline)

    # -- the link --

    def _begin_call(self, options: CallOptions, task_id: str | None = None) -> tuple[Link, Deadline]:
        """The link with the options of one call applied, and the deadline of that call.

        Raises:
            TypeError: an unknown option, or `task_id` is no id.
        """
        check_options(options, task_id)
        deadline = self._deadline(options.get("timeout"))
        return self._current_link(deadline).with_options(options), deadline

    def _deadline(self, timeout: float | None) -> Deadline:
        if self._shared.closed.is_set():
            raise RuntimeError("the client is closed; create another one")
        return Deadline.after(self._timeout.total if timeout is None else timeout)

    def _current_link(self, deadline: Deadline) -> Link:
        link = self._link
        if link is None:
            # Concurrent first calls each read the card: no lock is held while one of them waits for it.
            card = self._card
            if card is not None and self._card_trust is not None:
                card = with_absolute_urls(self._card_trust.verify(card, deadline))
            self._link = link = self._make_link(card, deadline)
        elif link.cache_entry.expires_at < time.monotonic():
            link = self._refresh_link(link, deadline)
        return link

    def _refresh_link(self, old: Link, deadline: Deadline) -> Link:
        """A link by the card as the agent serves it now, or the old one if the card cannot be read or used."""
        assert self._http is not None
        # Other threads use the old card meanwhile; after a failure all do until the interval has passed.
        expires_at = time.monotonic() + _CARD_RETRY_INTERVAL
        link = self._link = replace(old, cache_entry=old.cache_entry._replace(expires_at=expires_at))
        version = self._interface_filter.version or "1.0"
        found = refresh_card(self._http, old.card, old.cache_entry, version, self._card_trust, deadline)
        if found is None:
            return link
        card, entry = found
        try:
            new = replace(old, cache_entry=entry) if card == old.card else self._make_link(card, deadline, entry)
        except (AgentError, TransportError, ValueError) as error:
            logger.info("the new card of %s cannot be used (%s); the previous one stays in use", old.agent, error)
            return link
        if self._link is link:
            self._link = new
        return new

    def _make_link(self, card: AgentCard | None, deadline: Deadline, cache_entry: CacheEntry = NEVER_EXPIRES) -> Link:
        """A link to the agent of `card`, which is read from the agent if it is None."""
        if self._http is None:
            assert self._target is not None
            link = local_link(self._target, self._interface_filter.version, self._shared)
            link = replace(link, card=card or link.card)
        else:
            link = http_link(
                self._http,
                card,
                self._interface_filter,
                self._shared,
                deadline,
                self._card_trust,
                double_base64_files=self._double_base64_files,
                cache_entry=cache_entry,
            )
        for interceptor in reversed(self._interceptors):
            link = replace(link, endpoint=interceptor(link.endpoint))
        return link if self._tenant is None else link.with_options({"tenant": self._tenant})

    @run_on_gevent_hub
    def close(self) -> None:
        """End open streams and pauses between retries, and close the connections. Idempotent."""
        self._shared.close()
        if self._http is not None:
            self._http.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.agent if self._http is not None else self._target!r})"


class Chat:
    """Messages of one context, sent one after the other; made by `Client.chat`. For one thread at a time.

    A message continues the last task only while that task waits for input; otherwise it starts a new task in the same context
    (a task that has ended is never continued, spec 3.4.3). A conversation that is resumed by its id first asks the agent
    whether the newest task of the context waits for input, if the agent can list tasks.
    """

    def __init__(self, client: Client, context_id: str = "") -> None:
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
            shared = {key: value for key, value in options.items() if key in CallOptions.__optional_keys__}
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


def _send_key(link: Link, given: str | None) -> str:
    """The idempotency key of a message: `given`, or a new one if the agent deduplicates messages; else empty."""
    if given is None:
        return new_id() if link.retries_sends else ""
    if not is_idempotency_key(given):
        raise ValueError("idempotency_key takes 1 to 255 printable ASCII characters")
    return given


def _card_of(url: str, binding: str, version: str, streaming: bool) -> AgentCard:
    """The card of an agent of which only one interface is known."""
    interface = AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
    capabilities = AgentCapabilities(streaming=streaming)
    return AgentCard(name=url, description="", version="", supported_interfaces=(interface,), capabilities=capabilities)


def _check_local(target: LocalAgent | None, auth: credentials.Auth) -> LocalAgent:
    """`target`, if it is an agent of this process and `auth` is not given, which would have no effect."""
    if target is None:
        raise TypeError("Client needs to know what to call: a URL, an AgentCard, an A2AApp or an Agent")
    if isinstance(target, type):
        raise TypeError(f"{target.__name__} is a class: give an instance, {target.__name__}(…)")
    if not (hasattr(target, "endpoint") and hasattr(target, "agent_card")):
        raise TypeError(f"Client takes a URL, an AgentCard, an A2AApp or an Agent; not {type(target).__name__}")
    if auth is not None:
        raise ValueError(
            "auth= has no effect on an agent of this process, which is called without authentication; to test it,"
            " call the agent over WSGI: a2a_sync.testing.client_of(app, 'wsgi', auth=…)"
        )
    return target


def _tls_settings(
    verify: bool | str | os.PathLike[str] | None, cert: str | tuple[str, str] | None, session: object
) -> tuple[str | tuple[str, str] | None, bool | str | None]:
    """The arguments ``cert`` and ``verify``, checked, as requests takes them.

    Raises:
        ValueError: a session was given too.
        FileNotFoundError: a file or folder does not exist.
    """
    if (verify is not None or cert is not None) and session is not None:
        raise ValueError("verify and cert go with connections of the client: set them on the session instead")
    authorities = None if isinstance(verify, bool | None) else os.fspath(verify)
    for path in (*((cert,) if isinstance(cert, str) else cert or ()), *((authorities,) if authorities else ())):
        if not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such certificate file", path)
    return cert, verify if isinstance(verify, bool | None) else authorities
