"""The checks of ``a2a-sync check``: what an agent does, compared with its card and with the sections of the specification.

A check is a function of a `Probe`; it returns a remark, or raises `CheckFailed` or `CheckSkipped`. Operations are called
through the endpoint of a `Client`, so that nothing is retried, trimmed or refused before it reaches the agent. What a client
never sends is posted as bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_sync import AgentCard, Artifact, Client, Message, Role, Task, TaskState, TextPart
from a2a_sync import errors as e
from a2a_sync.bindings.headers import VERSION
from a2a_sync.bindings.registry import BINDINGS, supported
from a2a_sync.card import validate_card
from a2a_sync.client.cards import protocol_version_of
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.request import ErrorContext, OutgoingRequest
from a2a_sync.operations import (
    CANCEL_TASK,
    CREATE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
    GET_TASK,
    LIST_TASKS,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    Call,
    CallContext,
    Endpoint,
    Operation,
    RequestT,
    ResultT,
)
from a2a_sync.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    new_id,
)

if TYPE_CHECKING:
    from a2a_sync.client.http import HttpTransport

#: Bytes of the request with which the limit of bodies is tried, and the depth of that for nesting.
LARGE_BODY = 2 * 1024 * 1024
DEPTH = 20_000
#: Broken rules of a card that are printed.
_MAX_VIOLATIONS = 100
#: Events of a stream that are read at most.
MAX_EVENTS = 100_000


class Outcome(StrEnum):
    """The outcome of a check."""

    PASS = "pass"  # nosec B105
    FAIL = "fail"
    SKIPPED = "skipped"


class CheckFailed(Exception):
    """The agent does something else; the text says what."""


class CheckSkipped(Exception):
    """The check does not apply, or would change something; the text says why."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check at one interface of the card. ``seconds``: how long it took."""

    name: str
    title: str
    section: str
    interface: str
    outcome: Outcome
    detail: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "check": self.name,
            "title": self.title,
            "section": self.section,
            "interface": self.interface,
            "outcome": str(self.outcome),
            "detail": self.detail,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class Probe:
    """One interface of an agent, as the checks use it.

    Parameters:
        card: the card of the agent.
        binding: the binding of the interface, in upper case.
        version: its protocol version.
        url: its URL.
        endpoint: calls it.
        http: sends requests to it.
        text: the message that is sent.
        timeout: seconds for each call.
        task: the task that answered the first message.
    """

    card: AgentCard
    binding: str
    version: str
    url: str
    endpoint: Endpoint
    http: HttpTransport
    text: str
    timeout: float
    task: Task | None = None
    answered: bool = False

    def call(self, operation: Operation[RequestT, ResultT], request: RequestT) -> ResultT:
        """The result of one operation."""
        return self.endpoint(Call(operation, request, CallContext(version=self.version, timeout=self.timeout)))

    def message(self, **members: Any) -> Message:
        """A message of the user."""
        return Message(role=Role.USER, parts=(TextPart(self.text),), message_id=new_id(), **members)

    def post(self, body: bytes, *, path: str = "", version: str | None = None) -> tuple[int, Any, str]:
        """Post `body` to the interface: the status of the answer, its body as JSON (None if it is not), its media type."""
        url = self.url if self.binding == "JSONRPC" else self.url.rstrip("/") + path
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, application/a2a+json",
            VERSION: version or self.version,
        }
        context = ErrorContext("send", self.url)
        request = OutgoingRequest("POST", url, headers, context, Deadline.after(self.timeout), body=body)
        response = self.http.open(request)
        answer = response.read()
        try:
            return response.status, json.loads(answer), response.content_type
        except (ValueError, RecursionError):
            return response.status, None, response.content_type

    def ended_task(self) -> Task:
        """A task that has ended, of the first message."""
        task = self.first_task()
        if not task.state.terminal:
            raise CheckSkipped(f"the task is {task.state}")
        return task

    def first_task(self) -> Task:
        """The task of the first message."""
        if self.task is None:
            raise CheckSkipped("the agent answered without a task" if self.answered else "no message was answered")
        return self.task


#: Returns a remark, or None. The checks of the card are given a card, the others a `Probe`.
CheckFunction: TypeAlias = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A check. ``v1`` and ``v03`` are its sections of the specifications; ``""``: it does not apply to that version."""

    name: str
    title: str
    v1: str
    v03: str
    run: CheckFunction
    bindings: tuple[str, ...] = ()


CARD_CHECKS: Final[list[Check]] = []
CHECKS: Final[list[Check]] = []


def _check(
    name: str, title: str, *, v1: str, v03: str = "", bindings: Sequence[str] = (), into: list[Check] = CHECKS
) -> Callable[[CheckFunction], CheckFunction]:
    def decorate(function: CheckFunction) -> CheckFunction:
        into.append(Check(name, title, v1, v03, function, tuple(bindings)))
        return function

    return decorate


def run_check(check: Check, subject: AgentCard | Probe) -> CheckResult:
    """The result of one check. Errors of the agent and of the network are failures.

    Raises:
        UnauthenticatedError, HTTPStatusError: the agent refused the credentials of the first message.
    """
    version, interface = "1.0", ""
    if isinstance(subject, Probe):
        version, interface = subject.version, f"{subject.binding} {subject.version}"
    section = f"{version} §{check.v03 if version == '0.3' else check.v1}"
    began = time.monotonic()
    try:
        outcome, detail = Outcome.PASS, check.run(subject) or ""
    except CheckSkipped as why:
        outcome, detail = Outcome.SKIPPED, str(why)
    except (CheckFailed, e.A2AError, RecursionError) as why:
        if check.run is send and _is_unauthenticated(why):
            raise
        outcome, detail = Outcome.FAIL, str(why) if isinstance(why, CheckFailed) else f"{type(why).__name__}: {why}"
    return CheckResult(check.name, check.title, section, interface, outcome, detail, time.monotonic() - began)


def _is_unauthenticated(error: Exception) -> bool:
    unauthorized = isinstance(error, e.HTTPStatusError) and error.status_code == 401
    return unauthorized or isinstance(error, e.UnauthenticatedError)


def interfaces(card: AgentCard) -> Iterator[tuple[str, str, str, str]]:
    """Binding, version and URL of each kind of interface in the card, and why it cannot be checked (``""``: it can)."""
    seen = set()
    for one in card.supported_interfaces:
        pair = one.protocol_binding.upper(), protocol_version_of(one)
        if pair in seen:
            continue
        seen.add(pair)
        if pair not in supported():
            yield *pair, one.url, "this library does not speak it"
        else:
            yield *pair, one.url, BINDINGS[pair[0]].unavailable_reason or ""


def checks_of(binding: str, version: str) -> list[Check]:
    """The checks of an interface."""
    return [
        check
        for check in CHECKS
        if (check.v03 if version == "0.3" else check.v1) and (not check.bindings or binding in check.bindings)
    ]


class Capture:
    """An interceptor that keeps the endpoint of a client."""

    endpoint: Endpoint | None = None

    def __call__(self, inner: Endpoint) -> Endpoint:
        self.endpoint = inner
        return inner


# -- the card -----------------------------------------------------------------------------------------------------------


@_check("card.rules", "the card has all required members, and they fit together", v1="4.4.1", into=CARD_CHECKS)
def card_rules(card: AgentCard) -> None:
    try:
        validate_card(card)
    except e.InvalidCardError as error:
        listed = [f"{member} {problem}" for member, problem in error.violations[:_MAX_VIOLATIONS]]
        if len(error.violations) > len(listed):
            listed.append(f"… {len(error.violations) - len(listed)} more")
        raise CheckFailed("; ".join(listed)) from None


@_check("card.interfaces", "the card lists an interface that can be called", v1="8.3.1", into=CARD_CHECKS)
def card_interfaces(card: AgentCard) -> str | None:
    usable = [f"{binding} {version}" for binding, version, _, reason in interfaces(card) if not reason]
    if not usable:
        raise CheckFailed("none of the interfaces has a binding and version that are known")
    return ", ".join(usable)


@_check("card.signature", "the card is signed by its provider", v1="8.4", into=CARD_CHECKS)
def card_signature(card: AgentCard) -> None:
    if not card.signatures:
        raise CheckSkipped("the card has no signature")
    raise CheckSkipped("the card is signed; verify it with Client(card_verifier=…), which knows the trusted keys")


# -- messages -----------------------------------------------------------------------------------------------------------


@_check("send", "a message is answered with a task or a message", v1="3.1.1", v03="7.1")
def send(probe: Probe) -> str | None:
    answer = probe.call(SEND_MESSAGE, SendMessageRequest(message=probe.message()))
    probe.answered = True
    if isinstance(answer, Message):
        _check_agent_message(answer)
        return "a message"
    probe.task = answer
    _check_task(answer)
    if not answer.state.paused:
        probe.task = _await_end(probe, answer)
        if probe.version != "0.3":
            raise CheckFailed(f"a blocking send returned while the task was {answer.state} (3.2.2)")
    return f"a task, {probe.task.state}"


def _await_end(probe: Probe, task: Task) -> Task:
    until = time.monotonic() + probe.timeout
    while not task.state.paused:
        if time.monotonic() > until:
            raise CheckFailed(f"the task was {task.state} after {probe.timeout:g} s")
        time.sleep(0.2)
        task = probe.call(GET_TASK, GetTaskRequest(id=task.id))
    return task


def _check_task(task: Task) -> None:
    if not task.id or not task.context_id:
        raise CheckFailed(f"the task has no {'id' if not task.id else 'contextId'}")
    if task.state is TaskState.UNSPECIFIED:
        raise CheckFailed("the task has no state")
    _check_artifacts(task.artifacts)
    if task.status.message is not None:
        _check_agent_message(task.status.message)


def _check_artifacts(artifacts: Sequence[Artifact]) -> None:
    ids = [artifact.artifact_id for artifact in artifacts]
    if not all(ids) or len(set(ids)) < len(ids):
        raise CheckFailed(f"the ids of artifacts are not unique: {ids}")


def _check_agent_message(message: Message) -> None:
    if message.role is not Role.AGENT:
        raise CheckFailed(f"the role of the agent's message is {message.role}")
    if not message.message_id or not message.parts:
        raise CheckFailed(f"the agent's message has no {'parts' if message.message_id else 'messageId'}")


@_check("stream", "a stream begins with a task or a message and ends with its result", v1="3.1.2", v03="7.2")
def stream(probe: Probe) -> str | None:
    request = SendMessageRequest(message=probe.message())
    if not probe.card.capabilities.streaming:
        _expect(probe, e.UnsupportedOperationError, SEND_STREAMING_MESSAGE, request)
        return "refused, as the card announces no streaming"
    items = probe.call(SEND_STREAMING_MESSAGE, request)
    # Only the first and the last event are kept: an agent can send very many large ones.
    first = last = None
    count = 0
    try:
        for count, item in enumerate(islice(_until_paused(items), MAX_EVENTS), start=1):
            last = item.event
            first = last if count == 1 else first
            if count > 1 and isinstance(first, Message):
                raise CheckFailed(f"a {type(last).__name__} follows the message")
            if _task_id(last) != _task_id(first):
                raise CheckFailed(f"the stream has events of several tasks: {_task_id(first)!r} and {_task_id(last)!r}")
    finally:
        items.close()
    if first is None:
        raise CheckFailed("the stream ended without an event")
    if isinstance(first, Message):
        return "a message"
    if probe.version != "0.3" and not isinstance(first, Task):
        raise CheckFailed(f"the first event is a {type(first).__name__}")
    status = getattr(last, "status", None)
    if status is None or not status.state.paused:
        raise CheckFailed(f"the stream ended with a {type(last).__name__}, and not with a final state")
    return f"{count} events, {status.state}"


def _task_id(event: Any) -> str:
    task_id: str = event.id if isinstance(event, Task) else event.task_id
    return task_id


def _until_paused(items: Any) -> Iterator[Any]:
    for item in items:
        yield item
        status = getattr(item.event, "status", None)
        if status is not None and status.state.interrupted:
            return


@_check("get", "a task can be read again", v1="3.1.3", v03="7.3")
def get(probe: Probe) -> None:
    task = probe.first_task()
    found = probe.call(GET_TASK, GetTaskRequest(id=task.id))
    if (found.id, found.state) != (task.id, task.state):
        raise CheckFailed(f"the task {task.id} was {task.state}; GetTask returned {found.id}, {found.state}")
    if {a.artifact_id for a in found.artifacts} != {a.artifact_id for a in task.artifacts}:
        raise CheckFailed("GetTask returned other artifacts than the send")


@_check("list", "tasks can be listed, page by page, without artifacts", v1="3.1.4")
def list_tasks(probe: Probe) -> None:
    task = probe.first_task()
    page = probe.call(LIST_TASKS, ListTasksRequest(context_id=task.context_id, page_size=1))
    if len(page.tasks) > 1:
        raise CheckFailed(f"a page for one task has {len(page.tasks)}")
    if not page.tasks or page.tasks[0].context_id != task.context_id:
        raise CheckFailed("the task is not in the list of its context")
    if page.tasks[0].artifacts:
        raise CheckFailed("the list contains artifacts that were not asked for")


@_check("extended-card", "the extended card is what the card announces", v1="3.1.11", v03="7.10")
def extended_card(probe: Probe) -> str | None:
    if not probe.card.capabilities.extended_agent_card:
        if probe.version == "0.3":
            raise CheckSkipped("the card announces none")
        _expect(probe, e.UnsupportedOperationError, GET_EXTENDED_CARD, GetExtendedAgentCardRequest())
        return "refused, as the card announces none"
    card = probe.call(GET_EXTENDED_CARD, GetExtendedAgentCardRequest())
    return card.name


# -- errors -------------------------------------------------------------------------------------------------------------


def _expect(probe: Probe, error: type[e.AgentError], operation: Operation[RequestT, Any], request: RequestT) -> None:
    """The operation is refused with `error`, or the check fails."""
    try:
        result: Any = probe.call(operation, request)
        if operation.streaming:
            try:
                next(iter(result), None)
            finally:
                result.close()
    except error:
        return
    except e.AgentError as other:
        if isinstance(other, e.UnauthenticatedError):
            raise
        raise CheckFailed(f"expected {error.__name__}, not {type(other).__name__}: {other}") from None
    raise CheckFailed(f"expected {error.__name__}, and the call succeeded")


@_check("error.unknown-task", "an unknown task is TaskNotFoundError", v1="3.3.2", v03="8.2")
def unknown_task(probe: Probe) -> None:
    _expect(probe, e.TaskNotFoundError, GET_TASK, GetTaskRequest(id=new_id()))
    _expect(probe, e.TaskNotFoundError, CANCEL_TASK, CancelTaskRequest(id=new_id()))


@_check("error.message-to-unknown-task", "a message to an unknown task is TaskNotFoundError", v1="3.4.2", v03="8.2")
def message_to_unknown_task(probe: Probe) -> None:
    _expect(probe, e.TaskNotFoundError, SEND_MESSAGE, SendMessageRequest(message=probe.message(task_id=new_id())))


@_check("error.cancel-ended", "a cancel of an ended task is TaskNotCancelableError", v1="3.1.5", v03="8.2")
def cancel_ended(probe: Probe) -> None:
    _expect(probe, e.TaskNotCancelableError, CANCEL_TASK, CancelTaskRequest(id=probe.ended_task().id))


@_check("error.message-to-ended", "a message to an ended task is UnsupportedOperationError", v1="3.1.1")
def message_to_ended(probe: Probe) -> None:
    task = probe.ended_task()
    request = SendMessageRequest(message=probe.message(task_id=task.id, context_id=task.context_id))
    _expect(probe, e.UnsupportedOperationError, SEND_MESSAGE, request)


@_check("error.subscribe-ended", "a subscription of an ended task is UnsupportedOperationError", v1="3.1.6")
def subscribe_ended(probe: Probe) -> None:
    request = SubscribeToTaskRequest(id=probe.ended_task().id)
    _expect(probe, e.UnsupportedOperationError, SUBSCRIBE_TO_TASK, request)


@_check("error.push-not-supported", "webhooks are refused where the card announces none", v1="3.1.7", v03="8.2")
def push_not_supported(probe: Probe) -> None:
    if probe.card.capabilities.push_notifications:
        raise CheckSkipped("the card announces webhooks, and the check would add one")
    request = TaskPushNotificationConfig(task_id=probe.task.id if probe.task else new_id(), url="https://example.com/")
    _expect(probe, e.PushNotificationNotSupportedError, CREATE_PUSH_CONFIG, request)


@_check("error.code", "TaskNotFoundError has its code", v1="5.4", v03="8.2", bindings=["JSONRPC"])
def error_code(probe: Probe) -> None:
    _expect_code(probe, _rpc("GetTask" if probe.version != "0.3" else "tasks/get", {"id": new_id()}), -32001)


@_check("error.code", "TaskNotFoundError has its status", v1="5.4", v03="8.2", bindings=["HTTP+JSON"])
def error_status(probe: Probe) -> str | None:
    path = f"/tasks/{new_id()}:cancel"
    return _expect_status(probe, b"{}", path if probe.version != "0.3" else f"/v1{path}", 404)


@_check("error.not-json", "a body that is not JSON is JSONParseError", v1="9.5", v03="8.1", bindings=["JSONRPC"])
def not_json(probe: Probe) -> None:
    _expect_code(probe, b"{", -32700)


@_check("error.no-request", "JSON that is no request is InvalidRequestError", v1="9.5", v03="8.1", bindings=["JSONRPC"])
def no_request(probe: Probe) -> None:
    _expect_code(probe, b'{"jsonrpc": "1.0", "id": 1, "method": 7}', -32600)


@_check("error.method", "an unknown method is MethodNotFoundError", v1="9.5", v03="8.1", bindings=["JSONRPC"])
def unknown_method(probe: Probe) -> None:
    _expect_code(probe, _rpc("NoSuchMethod" if probe.version != "0.3" else "no/such", {}), -32601)


@_check("error.params", "params that do not fit are InvalidParamsError", v1="3.3.2", v03="8.1", bindings=["JSONRPC"])
def invalid_params(probe: Probe) -> None:
    method = "SendMessage" if probe.version != "0.3" else "message/send"
    _expect_code(probe, _rpc(method, {"message": {"parts": "none"}}), -32602)


@_check("error.version", "an unknown version is VersionNotSupportedError", v1="3.6.2", bindings=["JSONRPC"])
def unknown_version(probe: Probe) -> None:
    _expect_code(probe, _rpc("GetTask", {"id": "x"}), -32009, version="99.0")


@_check("error.not-json", "a body that is not JSON is status 400", v1="11.6", v03="8", bindings=["HTTP+JSON"])
def not_json_http(probe: Probe) -> str | None:
    return _expect_status(probe, b"{", _send_path(probe), 400)


@_check("error.path", "an unknown path is status 404", v1="11.6", v03="8", bindings=["HTTP+JSON"])
def unknown_path(probe: Probe) -> str | None:
    return _expect_status(probe, b"{}", "/no/such/operation", 404)


@_check("error.params", "a message that does not fit is status 400", v1="11.6", v03="8", bindings=["HTTP+JSON"])
def invalid_params_http(probe: Probe) -> str | None:
    return _expect_status(probe, b'{"message": {"parts": "none"}}', _send_path(probe), 400)


@_check("error.version", "an unknown version is status 400", v1="3.6.2", bindings=["HTTP+JSON"])
def unknown_version_http(probe: Probe) -> str | None:
    return _expect_status(probe, b'{"message": {"parts": "none"}}', _send_path(probe), 400, version="99.0")


def _send_path(probe: Probe) -> str:
    return "/message:send" if probe.version != "0.3" else "/v1/message:send"


def _rpc(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def _expect_code(probe: Probe, body: bytes, code: int, *, version: str | None = None) -> None:
    status, answer, _ = probe.post(body, version=version)
    found = _code(answer)
    if found != code:
        raise CheckFailed(f"expected the error {code}, not {f'status {status}' if found is None else found}")


def _code(answer: Any) -> Any:
    error = answer.get("error") if isinstance(answer, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def _expect_status(probe: Probe, body: bytes, path: str, status: int, *, version: str | None = None) -> str | None:
    found, answer, media_type = probe.post(body, path=path, version=version)
    if found != status:
        raise CheckFailed(f"expected status {status}, not {found}")
    if status == 404 and answer is None:
        return "without a body of JSON"
    if answer is None or "json" not in media_type:
        raise CheckFailed(f"the error is not JSON, but {media_type or 'of no media type'}")
    return None


@_check("error.credentials", "a call without credentials is refused", v1="7.4", v03="4.4")
def credentials(probe: Probe) -> str | None:
    if not probe.card.security_requirements:
        raise CheckSkipped("the card requires none")
    bare = {"protocol_binding": probe.binding, "protocol_version": probe.version, "retry": None}
    anonymous = replace(probe.card, security_requirements=())
    with Client(anonymous, verify=probe.http.verify, timeout=probe.timeout, **bare) as client:  # type: ignore[arg-type]
        try:
            client.get_task(new_id())
        except (e.UnauthenticatedError, e.PermissionDeniedError):
            return None
        except e.HTTPStatusError as error:
            if error.status_code in (401, 403):
                return f"status {error.status_code}"
            raise
        except e.AgentError as error:
            raise CheckFailed(f"the call was not refused for its credentials, but with {error}") from None
    raise CheckFailed("the call succeeded")


# -- limits -------------------------------------------------------------------------------------------------------------


@_check("limit.history", "no more of the history is returned than asked for", v1="3.2.4", v03="7.3")
def history(probe: Probe) -> None:
    task = probe.first_task()
    for length in (0, 1):
        found = len(probe.call(GET_TASK, GetTaskRequest(id=task.id, history_length=length)).history)
        if found > length and (length or probe.version != "0.3"):
            raise CheckFailed(f"{found} messages for a historyLength of {length}")


@_check("limit.page", "a page is not larger than 100 tasks, or a larger one is refused", v1="3.1.4")
def page_limit(probe: Probe) -> str | None:
    try:
        page = probe.call(LIST_TASKS, ListTasksRequest(page_size=101))
    except e.InvalidParamsError:
        return "refused"
    if len(page.tasks) > 100:
        raise CheckFailed(f"the page has {len(page.tasks)} tasks")
    return f"{len(page.tasks)} tasks"


@_check("limit.body", "a large body is answered or refused", v1="13.4", v03="8", bindings=["JSONRPC", "HTTP+JSON"])
def large_body(probe: Probe) -> str | None:
    return _survives(probe, b'"' + b"x" * LARGE_BODY + b'"')


@_check("limit.nesting", "deep JSON is answered or refused", v1="13.4", v03="8", bindings=["JSONRPC", "HTTP+JSON"])
def nesting(probe: Probe) -> str | None:
    return _survives(probe, b"[" * DEPTH + b"]" * DEPTH)


def _survives(probe: Probe, value: bytes) -> str:
    """A request for an unknown task, with one more member, is answered by an error of the caller; the next call is answered."""
    if probe.binding == "JSONRPC":
        method = b"GetTask" if probe.version != "0.3" else b"tasks/get"
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "%s", "params": {"id": "x", "metadata": %s}}' % (method, value)
    else:
        body = b'{"message": {"messageId": 7, "metadata": %s}}' % value
    status, answer, _ = probe.post(body, path=_send_path(probe))
    _expect(probe, e.TaskNotFoundError, GET_TASK, GetTaskRequest(id=new_id()))
    code = _code(answer)
    if status >= 500 or code == -32603:
        raise CheckFailed(f"status {status}" + (f", error {code}" if code is not None else ""))
    return f"status {status}" + (f", error {code}" if isinstance(code, int) and code != status else "")
