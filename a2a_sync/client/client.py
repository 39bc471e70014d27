"""The client: the protocol's operations as plain, blocking calls.

Every operation is a `Call` over a `Link`; which wire that is was decided when the link was made. What takes more than one
call is in `waiting`, limits are kept by the endpoints, the fold by `TaskStream`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Self, Unpack
from urllib.parse import urlsplit

from a2a_sync import operations as op
from a2a_sync.card import AgentCapabilities, AgentCard, AgentInterface
from a2a_sync.client import waiting
from a2a_sync.client.chat import Chat
from a2a_sync.client.content import Content, as_message
from a2a_sync.client.link import CallOptions, Link, check_options
from a2a_sync.client.push import PushCaller, as_push_config
from a2a_sync.client.repeating import again
from a2a_sync.client.stream import OneEvent, TaskStream
from a2a_sync.concurrency.gevent import at_home
from a2a_sync.errors import MalformedResponseError
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
    TaskPushNotificationConfig,
    TaskState,
    new_id,
)

#: The most pages that `Client.iter_tasks` reads, and the longest token of one.
MAX_PAGES = 10_000
_LONGEST_TOKEN = 4096


class Client(PushCaller):
    """Calls one agent. Safe from many threads; usable after a fork.

    Parameters:
        target: the agent's URL (its card is read at the first call), an `AgentCard`, or an `A2AApp` or `Agent` of this
            process (no network; `auth` and `session` mean nothing then).
        auth: a token, a function that gives one for each request, ``(user, password)``, `ApiKey`, `ClientCredentials`, any requests
            `AuthBase`, or a mapping of the card's schemes to these. Tokens and keys go where the card wants them. Goes to the origin
            of `target` only: where its card names an address elsewhere, make the client from the card.
        timeout: a `Timeout`, or the overall limit of each call in seconds.
        retry: how to go on after the network or the server has cut a call off; None: not at all.
        headers: sent with every request, to the same origin as `auth`.
        version: use only interfaces of this protocol version.
        binding: use only interfaces of this binding, ``"JSONRPC"`` or ``"HTTP+JSON"``; by default the card's first.
        prefer: what to call if the card lists it, best first: bindings, versions, both (``"HTTP+JSON 1.0"``) or URLs. Where
            nothing of it is listed, and by default, the card's order decides.
        tenant: the tenant to call for, in place of the one that the card names.
        extensions: URIs of extensions to activate (spec 4.6).
        interceptors: put around every call, the first outermost: each takes an endpoint and gives one.
        session: a `requests.Session` of yours, taken as it is; see that your threads may share it.
        verify: how the certificates of servers are checked, as in requests: True, False (not at all), or the path of a file or
            folder of certificate authorities. By default as the environment says (``REQUESTS_CA_BUNDLE``).
        cert: the client's certificate, as in requests: the path of a file with certificate and key, or the paths of both. It is
            shown to the same origin as `auth`.
        files_twice: the agent encodes files twice, as those on Python's official SDK of 0.3 do over ``HTTP+JSON``.
        url_guard: judges every URL that is called, by its text and by the address connected to, and lets no proxy be used; for targets,
            or cards, that come from peers. Not the token server and the key sets, which you name yourself; not with `session`.
        verify_card: whose signature the card must have: a `CardVerifier`, or the keys for one, such as the URL of a key set.

    Raises (from every method that calls the agent):
        AgentError: the agent said no; its subclasses say why.
        CardNotFoundError, ConnectError, TransportTimeoutError, TransportError: the network said no.
        CardAuthError: the card asks for credentials that `auth` does not hold.
        CardSignatureError: with `card_verifier`, the card is not signed by anybody who is trusted.

    Every method that calls the agent also takes ``timeout=``, ``headers=``, ``extensions=`` and ``tenant=`` for this one call:
    see `CallOptions`.

    Used with ``with``, or closed by `close`; both end what is still streaming.
    """

    # -- sending --

    @at_home
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
        """Send a message and wait until its task has ended or waits for you; a failed task is returned, not raised.

        Streams underneath where the agent can: status and artifacts are then those of GetTask. The history ends with your
        message, unless the agent's answer is nowhere else; a `history_length` adds what the agent said, for one GetTask at the
        end. A stream that is cut is resumed (see `Retry`). A message whose answer is lost is sent again only to agents that know
        it again by its key.

        Parameters:
            message: text, a part, a list of these, or a `Message`.
            task_id: the task to continue; it must wait for input.
            context_id: the conversation to continue.
            return_immediately: return as soon as the task exists.
            stream: False sends a plain SendMessage, and polls where the agent answers before the task has paused: for agents
                whose streams are not to be trusted.
            history_length: the most messages of history to return.
            metadata: goes with the request.
            accepted_output_modes: media types you can take.
            push_config: where the agent shall post what happens to the task, from its beginning: a URL, or a configuration.
                Without an id, one that comes with a later message to the task replaces it.
            idempotency_key: of all sends with this key and the same content, the agent runs one and answers all with its
                task; 1 to 255 printable ASCII characters. Only where its card lists ``urn:a2a-sync:idempotent-send:1``;
                there, each call has a key of its own by default.

        Raises:
            TransportTimeoutError, StreamInterruptedError: with ``task_id``, so that you can `wait` for the task later.
        """
        link, deadline = self._begin(options)
        request = SendMessageRequest(
            message=as_message(message, task_id=task_id, context_id=context_id),
            configuration=_configuration(return_immediately, history_length, accepted_output_modes, push_config),
            metadata=metadata or {},
        )
        key = _key(link, idempotency_key)
        if stream and link.streams_sends and not return_immediately:
            return waiting.send_streaming(link, request, deadline, key)
        return waiting.send_plain(link, request, deadline, key, stream=stream)

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
        push_config: str | TaskPushNotificationConfig | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[CallOptions],
    ) -> TaskStream:
        """Send a message and follow what comes of it, event by event. The parameters are those of `send`.

        An agent that does not stream is sent an ordinary message; its answer is then the only event.
        """
        link, deadline = self._begin(options)
        request = SendMessageRequest(
            message=as_message(message, task_id=task_id, context_id=context_id),
            configuration=_configuration(False, history_length, accepted_output_modes, push_config),
            metadata=metadata or {},
        )
        key = _key(link, idempotency_key)
        if link.streaming:
            return link.stream(request, deadline, key)
        return link.listen(OneEvent(waiting.send_plain(link, request, deadline, key)), request.message.task_id)

    @classmethod
    def for_endpoint(
        cls,
        url: str,
        *,
        protocol_binding: str = "JSONRPC",
        protocol_version: str = "1.0",
        streaming: bool = False,
        **options: Any,
    ) -> Self:
        """A client for an agent without a card: `url` is the address that is called, and no card is read.

        Parameters:
            url: where operations are sent; with ``HTTP+JSON`` the part before paths such as ``/message:send``.
            protocol_binding: ``"JSONRPC"`` or ``"HTTP+JSON"``.
            protocol_version: ``"1.0"`` or ``"0.3"``.
            streaming: the agent streams; without it, `stream` sends a plain message and its answer is the only event.
            options: more arguments of `Client`, such as `auth` and `timeout`.

        Raises:
            ValueError: the URL does not begin with ``http://`` or ``https://``.
            VersionNotSupportedError: there is no such binding or version.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError("the endpoint's URL must begin with http:// or https://")
        interface = AgentInterface(url=url, protocol_binding=protocol_binding, protocol_version=protocol_version)
        capabilities = AgentCapabilities(streaming=streaming)
        card = AgentCard(
            name=url, description="", version="", supported_interfaces=(interface,), capabilities=capabilities
        )
        return cls(card, **options)

    def chat(self, context_id: str | None = None) -> Chat:
        """A conversation, new or continued: it remembers the ids that the next message needs."""
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
        """The agent as a plain function ``(message: str, task_id: str = "") -> str`` with a name and a docstring from its card, for
        agent frameworks to take as a tool.

        It gives the text of the result, with data as JSON and files by name. A question of the agent is given too, with the
        ``task_id`` to answer it with. The card is read now, unless `name` and `description` are given.

        Parameters:
            skill: one skill of the card, by its id: name and description are the skill's, and the request's metadata name it to
                the agent as ``skillId``.
            name: a Python identifier, instead of the one made of the card's name.
            description: what a model reads of the tool, instead of what the card says.
            context_id, metadata: go with each message.
            options: of each call, see `CallOptions`.

        Raises:
            KeyError: the card has no such skill.
            TaskFailedError: (the function) the task failed, was rejected or canceled.
        """
        from a2a_sync.client.tools import as_tool

        check_options(options)
        return as_tool(self, skill, name, description, {"context_id": context_id, "metadata": metadata, **options})

    # -- tasks --

    @at_home
    def get_task(self, task_id: str, *, history_length: int | None = None, **options: Unpack[CallOptions]) -> Task:
        """The task as it is now.

        Raises:
            TaskNotFoundError: there is none that you may see.
        """
        link, deadline = self._begin(options)
        return again(link, deadline, lambda: waiting.get_task(link, task_id, history_length, deadline))

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
        **options: Unpack[CallOptions],
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
        link, deadline = self._begin(options)
        request = ListTasksRequest(
            context_id=context_id,
            status=TaskState.UNSPECIFIED if status is None else TaskState(status),
            page_size=page_size,
            page_token=page_token,
            history_length=history_length,
            status_timestamp_after=status_timestamp_after,
            include_artifacts=include_artifacts,
        )
        page: ListTasksResponse = again(link, deadline, lambda: link.call(op.LIST_TASKS, request, deadline))
        return page

    def iter_tasks(self, **filters: Any) -> Iterator[Task]:
        """All tasks, page by page as they are needed; `filters` are those of `list_tasks`.

        Raises:
            MalformedResponseError: the agent gives pages without end, or a page token of more than 4096 characters.
        """
        seen = {hash("")}
        for _ in range(MAX_PAGES):
            page = self.list_tasks(**filters)
            yield from page.tasks
            token = page.next_page_token
            if hash(token) in seen:
                return
            if len(token) > _LONGEST_TOKEN:
                raise MalformedResponseError("the page token is too long", phase="send")
            seen.add(hash(token))
            filters["page_token"] = token
        raise MalformedResponseError(f"the tasks have more than {MAX_PAGES} pages", phase="send")

    @at_home
    def cancel_task(self, task_id: str, *, metadata: Metadata | None = None, **options: Unpack[CallOptions]) -> Task:
        """Ask the agent to stop; the task as it is after that.

        Raises:
            TaskNotCancelableError: it has ended, or its agent refuses.
            TaskNotFoundError: there is none that you may see.
        """
        link, deadline = self._begin(options)
        request = CancelTaskRequest(id=task_id, metadata=metadata or {})
        return waiting.cancel(link, request, deadline)

    @at_home
    def subscribe(
        self, task_id: str, *, last_event_id: int | None = None, **options: Unpack[CallOptions]
    ) -> TaskStream:
        """Follow a task that runs or waits: first the task as it is, then its events.

        With `last_event_id` (of an earlier `TaskStream`) a server that numbers its events goes on right after it.

        Raises:
            UnsupportedOperationError: the task has ended, or the agent does not stream.
            TaskNotFoundError: there is none that you may see.
        """
        link, deadline = self._begin(options)
        return again(link, deadline, lambda: link.subscribe(task_id, deadline, last_event_id))

    @at_home
    def wait(self, task_id: str, *, stream: bool = True, **options: Unpack[CallOptions]) -> Task:
        """Wait until the task has ended or waits for you: by its stream where the agent streams and `stream` is true, else by
        polling it. Passing failures of the network are waited out (see `Retry`).

        Raises:
            TransportTimeoutError: `timeout` seconds (or the client's overall limit) went by.
        """
        link, deadline = self._begin(options)
        return waiting.wait(link, task_id, deadline, stream=stream)


def _key(link: Link, given: str | None) -> str:
    """What makes a send repeatable: `given`, or a new key where the agent would know it again."""
    if given is None:
        return new_id() if link.may_repeat else ""
    if not is_idempotency_key(given):
        raise ValueError("idempotency_key takes 1 to 255 printable ASCII characters")
    return given


def _configuration(
    return_immediately: bool,
    history_length: int | None,
    accepted_output_modes: Sequence[str],
    push_config: str | TaskPushNotificationConfig | None,
) -> SendMessageConfiguration | None:
    if isinstance(accepted_output_modes, str):
        raise TypeError("accepted_output_modes takes a list of media types, not one string")
    if not (return_immediately or history_length is not None or accepted_output_modes or push_config):
        return None
    return SendMessageConfiguration(
        accepted_output_modes=tuple(accepted_output_modes),
        task_push_notification_config=as_push_config(push_config) if push_config else None,
        history_length=history_length,
        return_immediately=return_immediately,
    )
