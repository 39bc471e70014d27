"""Authentication, authorization and security, broken."""

from __future__ import annotations

import logging
import urllib.request
from dataclasses import replace
from typing import Any

from a2a_sync import A2AApp, FilePart, Task, TaskState
from a2a_sync import operations as op
from a2a_sync.auth.policy import Requirement
from a2a_sync.errors import PermissionDeniedError, TaskNotFoundError, UnsupportedOperationError
from a2a_sync.operations import Call, Endpoint
from a2a_sync.types import GetTaskRequest
from tests.conformance.breaking import Answer, Asked, answering, asking, calling, replaced, with_results
from tests.conformance.ours import Variant
from tests.conformance.variants.operations import SENDS, as_user, ignoring_owner


def _let_in(*operations: tuple[str, str]) -> Any:
    """These methods, by name and end of path, do not authenticate."""

    def change(asked: Asked) -> None:
        if any(asked.is_for(*operation) for operation in operations):
            asked.environ.setdefault("HTTP_AUTHORIZATION", "Bearer token-of-ada")

    return asking(change)


def _any_token(asked: Asked) -> None:
    if (
        asked.environ.get("HTTP_AUTHORIZATION", "").startswith("Bearer ")
        and "bob" not in asked.environ["HTTP_AUTHORIZATION"]
    ):
        asked.environ["HTTP_AUTHORIZATION"] = "Bearer token-of-ada"


def _any_case(asked: Asked) -> None:
    """Tokens are compared without case and by their beginning."""
    given = asked.environ.get("HTTP_AUTHORIZATION", "")
    for name in ("ada", "bob"):
        if given.lower().startswith(f"bearer token-of-{name}"):
            asked.environ["HTTP_AUTHORIZATION"] = f"Bearer token-of-{name}"


def _no_challenge(answer: Answer) -> None:
    answer.headers.remove("WWW-Authenticate")


def _without_scopes(agent: Any, **options: Any) -> A2AApp:
    return A2AApp(agent, **{name: value for name, value in options.items() if name != "required_scopes"})


def _unauthenticated(answer: Answer) -> None:
    if answer.status == 403:
        answer.status = 401


def _exists(endpoint: Endpoint, call: Call) -> bool:
    if call.context.principal is None or not call.task_id:
        return False
    other = "bob" if call.context.principal.id == "ada" else "ada"
    try:
        endpoint(as_user(other, Call(op.GET_TASK, GetTaskRequest(id=call.task_id), call.context)))
    except TaskNotFoundError:
        return False
    return True


def _forbidden(endpoint: Endpoint, call: Call) -> Any:
    """What is another's is forbidden; what does not exist is not found."""
    try:
        return endpoint(call)
    except TaskNotFoundError:
        if _exists(endpoint, call):
            raise PermissionDeniedError("This task is not yours") from None
        raise


def _with_other_message(endpoint: Endpoint, call: Call) -> Any:
    """The code is the same, the words are not."""
    try:
        return endpoint(call)
    except TaskNotFoundError as error:
        if call.operation is op.CANCEL_TASK and _exists(endpoint, call):
            raise TaskNotFoundError(f"{error.message} (not yours)") from None
        raise


def _either(both: Any) -> Any:
    return lambda self, other: self | other


def _first_only(either: Any) -> Any:
    return lambda self, other: self


def _speechless(result: Any) -> Any:
    if not isinstance(result, Task) or result.state is not TaskState.AUTH_REQUIRED:
        return result
    return replace(result, status=replace(result.status, message=None))


def _waiting_for_login(endpoint: Endpoint, call: Call) -> Any:
    if call.operation in SENDS and call.task_id:
        task = endpoint(Call(op.GET_TASK, GetTaskRequest(id=call.task_id), call.context))
        if task.state is TaskState.AUTH_REQUIRED:
            raise UnsupportedOperationError("Log in first")
    return endpoint(call)


def _as_rejected(result: Any) -> Any:
    if not isinstance(result, Task) or result.state is not TaskState.AUTH_REQUIRED:
        return result
    return replace(result, status=replace(result.status, state=TaskState.REJECTED))


def _verbose(asked: Asked) -> None:
    logging.getLogger("a2a_sync").info(
        "request: %s", {name: value for name, value in asked.environ.items() if name.startswith("HTTP_")}
    )


def _verbose_about_bodies(asked: Asked) -> None:
    logging.getLogger("a2a_sync").debug("body: %r", asked.body)


def _fetching(endpoint: Endpoint, call: Call) -> Any:
    """Files are looked at where they are."""
    if call.operation in SENDS:
        for part in call.request.message.parts:
            if isinstance(part, FilePart) and part.url:
                try:
                    urllib.request.urlopen(part.url, timeout=1.0).close()
                except (OSError, ValueError):
                    pass
    return endpoint(call)


def _crushed(answer: Answer) -> None:
    if answer.status == 429:
        answer.status = 500


BROKEN: dict[str, Variant] = {
    "open to read": Variant("V1-AUTH-01", "ListTasks does not authenticate", wsgi=_let_in(("ListTasks", "/tasks"))),
    "open to follow": Variant(
        "V1-AUTH-01", "SubscribeToTask does not authenticate", wsgi=_let_in(("SubscribeToTask", ":subscribe"))
    ),
    "any token at all": Variant("V1-AUTH-01", "tokens are not verified", wsgi=asking(_any_token)),
    "more than the token": Variant("V1-AUTH-01", "only the prefix of a token is compared", wsgi=asking(_any_case)),
    "unchallenged": Variant("V1-AUTH-02", "a refusal does not name the scheme", wsgi=answering(_no_challenge)),
    "no scopes": Variant("V1-AUTH-03", "every authenticated caller has all permissions", app=_without_scopes),
    "401 for 403": Variant("V1-AUTH-03", "a missing permission is answered with 401", wsgi=answering(_unauthenticated)),
    "cancels of others": Variant(
        "V1-AUTH-04", "any caller with the id of a task may cancel it", app=ignoring_owner(op.CANCEL_TASK)
    ),
    "streams of others": Variant(
        "V1-AUTH-04", "any caller with the id of a task may subscribe to it", app=ignoring_owner(op.SUBSCRIBE_TO_TASK)
    ),
    "sends to others": Variant(
        "V1-AUTH-04", "any caller with the id of a task may send to it", app=ignoring_owner(op.SEND_MESSAGE)
    ),
    "webhooks of others": Variant(
        "V1-AUTH-04",
        "any caller with the id of a task may delete its webhooks",
        app=ignoring_owner(op.DELETE_PUSH_CONFIG),
    ),
    "forbidden": Variant("V1-AUTH-05", "a task of another caller is forbidden, not unknown", app=calling(_forbidden)),
    "other words": Variant(
        "V1-AUTH-05", "a cancel of another caller's task has another error message", app=calling(_with_other_message)
    ),
    "one of both": Variant(
        "V1-AUTH-06",
        "one of several required credentials is sufficient",
        inside=replaced(Requirement, "__and__", _either),
    ),
    "first of several": Variant(
        "V1-AUTH-06",
        "only one of several alternatives is accepted",
        inside=replaced(Requirement, "__or__", _first_only),
    ),
    "login unexplained": Variant(
        "V1-INTASK-01",
        "a task in auth-required has no explanation",
        app=with_results(_speechless, op.SEND_MESSAGE, op.GET_TASK),
    ),
    "rejected for now": Variant(
        "V1-INTASK-01",
        "a task that needs a login is rejected",
        app=with_results(_as_rejected, op.SEND_MESSAGE, op.GET_TASK),
    ),
    "login comes first": Variant(
        "V1-INTASK-02", "a task in auth-required refuses messages", app=calling(_waiting_for_login)
    ),
    "headers in the log": Variant("V1-SEC-02", "the log contains request headers", wsgi=asking(_verbose)),
    "requests in the log": Variant(
        "V1-SEC-02", "the log contains requests with webhooks", wsgi=asking(_verbose_about_bodies)
    ),
    "crushed": Variant("V1-SEC-03", "an overload is an internal error", wsgi=answering(_crushed)),
    "files fetched": Variant("V1-SEC-04", "URLs of file parts are fetched", app=calling(_fetching)),
}
