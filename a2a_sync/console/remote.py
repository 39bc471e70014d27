"""Agents elsewhere in a console: messages go to them over the library's client, and what they answer into tasks of this process.

Each task of a remote agent has a task in memory here, whose log numbers and keeps what arrives. So the pages are those of an
app's own console, and a reload loses nothing, also where an agent numbers nothing and keeps nothing.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from a2a_sync.agent.executor import RequestContext
from a2a_sync.card import AgentCard, create_agent_card
from a2a_sync.client import Client, Frame, TaskStream
from a2a_sync.client.retry import RETRY_OBSERVER, describe
from a2a_sync.console.forms import CERTIFICATE_FORM, CredentialForm, credential_forms, credentials_of
from a2a_sync.console.frames import LINK, REMOTE, FrameLog
from a2a_sync.console.snippets import Credential
from a2a_sync.console.tasks import PAGE
from a2a_sync.errors import (
    A2AError,
    CardAuthError,
    CardSignatureError,
    CertificateRefusedError,
    HTTPStatusError,
    TaskNotCancelableError,
    TransportError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from a2a_sync.lifecycle import IllegalTransition
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import (
    Message,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.urls import split_credentials
from a2a_sync.wsgi.app import A2AApp

logger: Final = get_logger(__name__)

#: In the metadata of a message here: the id of a task at the agent that is to be opened.
OPEN = "urn:a2a-sync:console:open"
#: How long a page waits for a card, and how long a failure to read it is remembered, in seconds.
_CARD_TIMEOUT, _CARD_PAUSE = 5.0, 5.0
#: How long a cancel waits for the agent, in seconds: less than the limit of cancel handlers here.
_CANCEL_TIMEOUT = 8.0
_MAX_UNSENT = 1000
#: The largest task that is kept here, and so the largest answer of an agent; and a page of a list, whose tasks come without artifacts.
_MAX_TASK_BYTES, _MAX_LIST_BYTES = 32 * 1024 * 1024, 4 * 1024 * 1024

_current: ContextVar[str] = ContextVar("a2a_console_task", default="")


class RemoteAgent:
    """An executor that passes each message to the agent at `url`.

    Parameters:
        url: the address of the agent, or of its card.
        options: arguments of its `Client`, such as ``auth`` and ``verify``.
        trusted_keys: whose signature the card should have, as ``Client(card_verifier=…)``; the page shows whether it has.
    """

    def __init__(self, url: str, options: Mapping[str, Any], trusted_keys: object = None) -> None:
        #: Without user and password: pages show it.
        self.url: str = split_credentials(url)[0]
        self._target = url
        self.frames: FrameLog = FrameLog()
        self.wants_credentials: bool = False
        self._wants_certificate = False
        self._options = dict(options)
        self._trusted_keys = trusted_keys
        self._unsent: OrderedDict[str, Message] = OrderedDict()
        #: When the card could not be read, and why; empty after a success.
        self._failure: tuple[float, str] = (0.0, "")
        self._signature = ""
        self._known: AgentCard | None = None
        self._make_client()

    def _make_client(self) -> None:
        self.client: Client = Client(
            self._target, trace=self._trace, max_response_bytes=_MAX_TASK_BYTES, **self._options
        )
        # An agent may send any number of tasks for a page, each of which takes many times its bytes in memory.
        self._lists = Client(self._target, max_response_bytes=_MAX_LIST_BYTES, **self._options)

    def _trace(self, frame: Frame) -> None:
        task_id = _current.get()
        if task_id:
            self.frames.add(task_id, frame)

    @property
    def has_credentials(self) -> bool:
        """Credentials were given, for whatever scheme."""
        return self._options.get("auth") is not None

    def holds(self, credential: Credential) -> bool:
        """A credential that was given is one like this."""
        given = self._options.get("auth")
        if isinstance(given, Mapping):
            return credential.scheme in given
        return isinstance(given, tuple) == (credential.place == "basic")

    def is_unsent(self, task_id: str) -> bool:
        """A message of this task waits for credentials."""
        return task_id in self._unsent

    def use_credentials(self, form: Mapping[str, str]) -> None:
        """Send the credentials of a filled form from now on, to the origin of the agent only.

        Raises:
            ValueError: they cannot be sent.
        """
        self._options["auth"] = credentials_of(form, self.card(), self._options.get("auth"))
        self.try_again()

    def try_again(self) -> None:
        """Make new connections, with the certificate that is now in its file."""
        self.wants_credentials = self._wants_certificate = False
        self._failure = (0.0, "")
        self._signature = ""
        # Streams of the old client go on.
        self._make_client()

    def forms(self) -> list[CredentialForm]:
        """The forms for what the agent requires."""
        return [CERTIFICATE_FORM] if self._wants_certificate else credential_forms(self.card())

    # -- the card --

    def card(self) -> AgentCard:
        """The card of the agent; while it cannot be read, one that says why."""
        failed_at, reason = self._failure
        if not reason or time.monotonic() - failed_at >= _CARD_PAUSE:
            try:
                card = self.client.card(timeout=_CARD_TIMEOUT)
                self._failure = (0.0, "")
            except A2AError as error:
                self._note_refusal(error)
                reason = str(error)
                self._failure = (time.monotonic(), reason)
            else:
                self._known = card
                return card
        self._known = AgentCard(name=self.name, description=f"The card cannot be read: {reason}"[:2000], version="?")
        return self._known

    def known_card(self) -> AgentCard:
        """What `card` returned last; only the first time the agent is waited for. For pages of other agents, which name this one."""
        return self._known or self.card()

    @property
    def reachable(self) -> bool:
        """The newest attempt to read the card succeeded."""
        return not self._failure[1]

    @property
    def name(self) -> str:
        """The host and path of the agent."""
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path.rstrip('/')}"

    def signature(self) -> str:
        """What a check of the card's signature by the trusted keys found; ``""`` where no keys are trusted."""
        if self._trusted_keys is None or not self.reachable:
            return ""
        if not self._signature:
            options = {**self._options, "card_verifier": self._trusted_keys}
            try:
                with Client(self._target, **options) as client:
                    client.card(timeout=_CARD_TIMEOUT)
                self._signature = "signature is valid"
            except CardSignatureError as error:
                self._signature = f"signature is not valid: {error}"
            except A2AError as error:
                return f"signature cannot be checked: {error}"
        return self._signature

    def _note_refusal(self, error: A2AError) -> bool:
        refused = is_refusal(error)
        self.wants_credentials = self.wants_credentials or refused
        self._wants_certificate = self._wants_certificate or isinstance(error, CertificateRefusedError)
        return refused

    # -- runs --

    def execute(self, context: RequestContext) -> None:
        """Send the message of the task, or open the task that it names, and follow it until it pauses."""
        mirror = _Mirror(context, self.client.get_task)
        with self._recording(context.task_id, mirror.note_link):
            message = self._unsent.pop(context.task_id, context.message)
            known = context.task.metadata.get(REMOTE)
            ids = known if isinstance(known, dict) else {}
            try:
                self._follow(context, mirror, message, str(ids.get("task", "")), str(ids.get("context", "")))
            except (A2AError, ValueError) as error:
                if isinstance(error, A2AError) and self._note_refusal(error):
                    self._ask_for_credentials(context, message, mirror.task_id, error)
                else:
                    lost = isinstance(error, TransportError) and mirror.task_id
                    more = (
                        " The task may continue at the agent: open it from the tasks that the agent lists."
                        if lost
                        else ""
                    )
                    _emit(context, _status(context, TaskState.FAILED, f"{error}{more}"))

    @contextmanager
    def _recording(self, task_id: str, observer: Callable[[Exception | None], None] | None = None) -> Iterator[None]:
        mark, observed = _current.set(task_id), RETRY_OBSERVER.set(observer)
        try:
            yield
        finally:
            _current.reset(mark)
            RETRY_OBSERVER.reset(observed)

    def _ask_for_credentials(self, context: RequestContext, message: Message, taken: str, error: A2AError) -> None:
        """Ask for other credentials; with them the message is sent, or the task with the id `taken` that has it is followed."""
        text = "The agent requires credentials. Enter them on this page; the message is then sent again."
        if taken:
            message = replace(message, metadata={OPEN: taken})
            text = "The agent accepts the credentials no longer: they have expired, or they were revoked. Enter others on this"
            text += " page, which then continues where it was."
        if isinstance(error, CertificateRefusedError):
            text = f"The connection failed: {error.message}. Put a valid certificate into the file of --cert, then try again on"
            text += " this page."
        self._unsent[context.task_id] = message
        while len(self._unsent) > _MAX_UNSENT:
            self._unsent.popitem(last=False)
        _emit(context, _status(context, TaskState.AUTH_REQUIRED, text))

    def _follow(
        self, context: RequestContext, mirror: _Mirror, message: Message, task_id: str, context_id: str
    ) -> None:
        opened = message.metadata.get(OPEN)
        if isinstance(opened, str):
            mirror.take(self.client.get_task(opened), opened=True)
            # It may end before the subscription, and not every agent has those: the task is read then.
            with suppress(UnsupportedOperationError):
                if not mirror.paused:
                    self._read(self.client.subscribe(opened), context, mirror)
            known = opened
        else:
            sent = replace(message, role=Role.USER, task_id="", context_id="")
            stream = self.client.stream(sent, task_id=task_id or None, context_id=context_id or None)
            self._read(stream, context, mirror)
            known = stream.task_id
        if known and not mirror.paused:
            mirror.take(self.client.wait(known))

    def _read(self, stream: TaskStream, context: RequestContext, mirror: _Mirror) -> None:
        with stream:
            context.on_cancel(stream.close)
            for event in stream:
                mirror.take(event)

    def cancel(self, context: RequestContext) -> None:
        """Cancel the task at the agent, which decides.

        Raises:
            TaskNotCancelableError: the agent refuses, has ended the task, or cannot be reached: it is not cancelled here either.
        """
        known = context.task.metadata.get(REMOTE)
        if not isinstance(known, dict):
            return
        with self._recording(context.task_id):
            try:
                task = self.client.cancel_task(str(known["task"]), timeout=_CANCEL_TIMEOUT)
            except A2AError as error:
                raise TaskNotCancelableError(f"The agent has not cancelled the task: {error}") from None
        if task.state.terminal and task.state is not TaskState.CANCELED:
            raise TaskNotCancelableError(f"The agent has not cancelled the task: it is {task.state}")

    # -- tasks of the agent --

    def list_tasks(self, *, context_id: str = "", status: TaskState | None = None, token: str = "") -> Any:
        """A page of the tasks that the agent lists. Raises as `Client.list_tasks`."""
        return self._lists.list_tasks(
            context_id=context_id,
            status=status,
            page_size=PAGE,
            page_token=token,
            history_length=0,
            timeout=_CARD_TIMEOUT,
        )


def open_message(task: Task) -> Message:
    """The message that opens a task of the agent here: the first one of its user, as far as the agent shows it."""
    first = next((one for one in task.history if one.role is Role.USER), None)
    parts = first.parts if first is not None and first.parts else (TextPart(f"(task {task.id} of the agent)"),)
    return Message(role=Role.USER, parts=parts, metadata={OPEN: task.id})


def is_refusal(error: A2AError) -> bool:
    """The agent has refused the credentials of the client, or misses some."""
    if isinstance(error, (UnauthenticatedError, CardAuthError, CertificateRefusedError)):
        return True
    if isinstance(error, HTTPStatusError) and error.status_code == 401:
        return True
    return isinstance(error, TransportError) and "HTTP 401" in str(error)


class _Mirror:
    """Repeats the events of a remote task in a task here; `read` returns the task of an id as the agent has it."""

    def __init__(self, context: RequestContext, read: Callable[[str], Task]) -> None:
        self._context = context
        self._read = read
        self._seen = {message.message_id for message in context.task.history}
        self.paused = False
        self._link = context.task.metadata.get(LINK, "")
        #: The id of the task at the agent, once an event of it has come.
        self.task_id = ""

    def take(self, event: StreamResponse, *, opened: bool = False) -> None:
        """One event of the agent; the snapshot with which a task was `opened` has messages of its user that are not here."""
        if isinstance(event, Message):
            self._emit(_status(self._context, TaskState.COMPLETED, event))
            self.paused = True
            return
        self._map(event)
        if isinstance(event, Task):
            begun = False
            for message in event.history:
                if message.role is Role.AGENT:
                    self._add_message(message)
                elif opened and begun:
                    # A run cannot add messages of the user.
                    self._add_message(replace(message, parts=(TextPart("User:"), *message.parts)))
                else:
                    begun = True
            for artifact in event.artifacts:
                self._emit(TaskArtifactUpdateEvent(artifact=artifact, last_chunk=True))
            self._take_status(event.status)
        elif isinstance(event, TaskArtifactUpdateEvent):
            self._emit(replace(event, task_id="", context_id=""))
        else:
            self._take_status(self._with_question(event))

    def _with_question(self, event: TaskStatusUpdateEvent) -> TaskStatus:
        """The status; some agents store the text of a question in the history only, and a question ends the run here."""
        status = event.status
        if status.state is not TaskState.INPUT_REQUIRED or status.message is not None or not event.task_id:
            return status
        with suppress(A2AError):
            for message in reversed(self._read(event.task_id).history):
                if message.role is Role.AGENT and message.message_id not in self._seen:
                    return replace(status, message=message)
        return status

    def _map(self, event: Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        """Store the ids of the task at the agent, once."""
        task_id = event.id if isinstance(event, Task) else event.task_id
        if self.task_id or not task_id:
            return
        self.task_id = task_id
        ids = {"task": task_id, "context": event.context_id}
        if self._context.task.metadata.get(REMOTE) != ids:
            self._emit(TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.WORKING), metadata={REMOTE: ids}))

    def note_link(self, failure: Exception | None) -> None:
        """Store why the connection to the agent is lost, or that there is one again."""
        reason = "" if failure is None else describe(failure)
        if reason != self._link:
            self._link = reason
            self._emit(TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.WORKING), metadata={LINK: reason}))

    def _add_message(self, message: Message) -> None:
        if message.message_id not in self._seen:
            self._seen.add(message.message_id)
            self._emit(replace(message, task_id="", context_id=""))

    def _take_status(self, status: TaskStatus) -> None:
        message = status.message
        if message is not None:
            self._seen.add(message.message_id)
            message = replace(message, task_id=self._context.task_id, context_id=self._context.context_id)
        if status.state is not TaskState.SUBMITTED:
            self._emit(TaskStatusUpdateEvent(status=replace(status, message=message)))
        self.paused = self.paused or status.state.paused

    def _emit(self, event: Any) -> None:
        _emit(self._context, event)


def _emit(context: RequestContext, event: Any) -> None:
    try:
        context.emit(event)
    except IllegalTransition as error:
        logger.info("an event of a remote agent does not fit its task: %s", error, extra={"task_id": context.task_id})


def _status(context: RequestContext, state: TaskState, content: str | Message) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(status=TaskStatus(state=state, message=context.agent_message(content)))


class RemoteApp(A2AApp):
    """The tasks of one remote agent in this process; its card is that of the agent. Parameters: as `RemoteAgent`."""

    def __init__(self, url: str, options: Mapping[str, Any], trusted_keys: object = None) -> None:
        self.remote: RemoteAgent = RemoteAgent(url, options, trusted_keys)
        card = create_agent_card(
            self.remote.name, "An agent elsewhere", skills={"talk": "Passes messages on"}, input_modes=["*/*"]
        )
        super().__init__(
            self.remote,
            card=card,
            limits=Limits(max_body_bytes=48 * 1024 * 1024, max_task_bytes=_MAX_TASK_BYTES),
            owner_quota=OwnerQuota(max_stored_bytes=64 * 1024 * 1024),
        )

    def agent_card(self, address: str | None = None) -> AgentCard:
        """The card of the agent."""
        return self.remote.card()
