"""Section E: authentication, authorization, and the visibility of tasks."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any

from tests.conformance.sending import UNKNOWN, state_of, text_of
from tests.conformance.suite import BOTH, B, D, E, Level, Verdict, Way
from tests.conformance.system import KEY, PASSWORD, USERS, Speaker, message, new_name
from tests.conformance.wire import NAMES, Reply
from tests.engine import eventually

HOOK = "https://hooks.example.com/a2a"


def _two(at: Speaker) -> tuple[Speaker, Speaker]:
    secured = at.on("secured")
    return secured.as_user("ada"), secured.as_user("bob")


def _params(method: str, id: str) -> dict[str, Any]:
    """Params of an operation on a given task."""
    if method.startswith("Send"):
        return message("echo", taskId=id)
    if "Push" in method:
        config = {} if method.startswith("List") else {"id": "hook"}
        return {"taskId": id, **config, **({"url": HOOK} if method.startswith("Create") else {})}
    return {"id": id} if "Task" in method and method != "ListTasks" else {}


_ON_A_TASK = [name.method for name in NAMES if _params(name.method, "x")]


# -- authentication -----------------------------------------------------------------------------------------------------


@E.line("V1-AUTH-01", Level.MUST, "a request without valid credentials has no effect", ways=BOTH)
def credentials_are_needed(at: Speaker) -> None:
    secured = at.on("secured")
    for wrong in (None, "Bearer wrong", "Bearer", "Basic x", f"bearer-{USERS['ada']}", f"Bearer {USERS['ada']}x"):
        for name in NAMES:
            params = message("echo") if name.method.startswith("Send") else _params(name.method, UNKNOWN)
            reply = secured.ask(name.method, params, Authorization=wrong)
            assert reply.status == 401, (name.method, wrong)
            assert reply.error["message"]
    assert secured.as_user("ada").task("echo")["artifacts"]


@E.line("V1-AUTH-02", Level.SHOULD, "a refusal names the scheme to use", ways=BOTH)
def a_refusal_names_the_scheme(at: Speaker) -> None:
    reply = at.on("secured").send("echo")
    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")


@E.line("V1-AUTH-03", Level.MUST, "a missing permission is refused as such", ways=BOTH)
def rights_are_needed(at: Speaker) -> None:
    ada, bob = _two(at)
    task = bob.begin(f"hold {new_name()}")
    reply = bob.ask("CancelTask", {"id": task["id"]})
    assert reply.status == 403
    assert reply.error["message"]
    assert state_of(bob.get(task["id"])) in ("SUBMITTED", "WORKING")
    own = ada.begin(f"hold {new_name()}")
    assert state_of(ada.ask("CancelTask", {"id": own["id"]}).result) == "CANCELED"


@E.line("V1-AUTH-04", Level.MUST, "a task of another caller is not found by any operation")
def another_s_task_is_not_found(at: Speaker) -> None:
    ada, bob = _two(at)
    asked = bob.task("ask")
    assert len(_ON_A_TASK) == 9
    for method in _ON_A_TASK:
        ada.ask(method, _params(method, asked["id"])).refuses("TaskNotFound")
    assert text_of(bob.task("large", taskId=asked["id"])) == "large"


@E.line("V1-AUTH-05", Level.MUST_NOT, "a task of another caller cannot be distinguished from one that does not exist")
def tasks_of_others_look_unknown(at: Speaker) -> None:
    ada, bob = _two(at)
    theirs, unknown = bob.task("ask")["id"], new_name()
    for method in _ON_A_TASK:
        first, second = (ada.ask(method, _params(method, id)) for id in (theirs, unknown))
        assert first.body.replace(theirs.encode(), b"") == second.body.replace(unknown.encode(), b""), method
        assert (first.status, _named(first)) == (second.status, _named(second))
    wrong = {"taskId": theirs, "contextId": new_name()}
    ada.ask("SendMessage", message("echo", **wrong)).refuses("TaskNotFound")


def _named(reply: Reply) -> set[str]:
    return {name.lower() for name in dict(reply.headers)}


@E.line("V1-AUTH-06", Level.MUST, "requirements are alternatives; the schemes of one are required together", ways=BOTH)
def requirements_are_a_choice(at: Speaker) -> None:
    secured = at.on("secured")
    password = "Basic " + base64.b64encode(":".join(PASSWORD).encode()).decode()
    both = secured.with_headers(X_Key=KEY, Authorization=password)
    own = secured.as_user("ada").task("ask")["id"]
    assert both.get(own)["id"] == own
    for half in ({"X_Key": KEY}, {"Authorization": password}, {"X_Key": "wrong", "Authorization": password}):
        assert secured.ask("ListTasks", {}, **half).status == 401


@D.line("V1-BIND-04", Level.MUST, "both bindings require the same credentials", ways=(Way.RPC,))
def both_ask_for_the_same(at: Speaker) -> None:
    for one in (at.on("secured"), at.on("secured").by(Way.REST)):
        refused = one.ask("ListTasks", {})
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        assert one.as_user("bob").ask("ListTasks", {}).result["tasks"] is not None
        task = one.as_user("bob").begin(f"hold {new_name()}")
        assert one.as_user("bob").ask("CancelTask", {"id": task["id"]}).status == 403


@B.line("V1-GET-03", Level.MUST, "a task of another caller is not found")
def another_s_task_cannot_be_read(at: Speaker) -> None:
    ada, bob = _two(at)
    task = ada.task("echo")
    bob.ask("GetTask", {"id": task["id"]}).refuses("TaskNotFound")
    assert ada.get(task["id"])["id"] == task["id"]


@B.line("V1-LIST-01", Level.MUST, "a list has the caller's own tasks")
def lists_are_one_s_own(at: Speaker) -> None:
    ada, bob = _two(at)
    context = new_name()
    ids = [one.task("echo", contextId=context)["id"] for one in (ada, bob)]
    assert [[task["id"] for task in one.listed(contextId=context)] for one in (ada, bob)] == [[id] for id in ids]
    assert not {task["id"] for task in ada.listed(pageSize=100)} & {task["id"] for task in bob.listed(pageSize=100)}


# -- credentials within a task ------------------------------------------------------------------------------------------


@E.line(
    "V1-INTASK-01", Level.MUST, "an agent that needs credentials reports it by the task's state, with an explanation"
)
def a_task_asks_for_a_login(at: Speaker) -> None:
    task = at.task("login")
    assert state_of(task) == "AUTH_REQUIRED"
    said = task["status"]["message"]
    assert (said["role"], said["parts"]) == ("ROLE_AGENT", [{"text": "Log in first"}])


@E.line("V1-INTASK-04", Level.MUST, "the credentials are sent out of band, not in a message")
def credentials_come_from_elsewhere(at: Speaker) -> None:
    gate = new_name()
    task = at.task(f"outside {gate}")
    assert state_of(task) == "AUTH_REQUIRED"
    at.release(gate)
    assert text_of(at.until(task["id"], "COMPLETED")) == f"outside {gate}"


@E.line("V1-INTASK-02", Level.SHOULD, "a message may be sent to such a task")
def a_message_goes_on_with_a_login(at: Speaker) -> None:
    asked = at.task("login")
    done = at.task("here I am", taskId=asked["id"])
    assert (done["id"], state_of(done)) == (asked["id"], "COMPLETED")


E.without_check(
    "V1-INTASK-03",
    Level.MUST_NOT,
    "the state alone grants no access",
    Verdict.UNTESTED,
    "no code grants access because of a task's state, which a test cannot observe",
)


# -- limits and transport security --------------------------------------------------------------------------------------

E.without_check(
    "V1-SEC-01",
    Level.MUST,
    "HTTPS in production",
    Verdict.UNTESTED,
    "TLS ends at the server or the proxy in front of the application; the how-to pages show it",
)


@E.line("V1-SEC-02", Level.MUST, "credentials are not logged", ways=BOTH)
def credentials_are_in_no_log(at: Speaker) -> None:
    with at.system.logs() as records:
        ada, bob = _two(at)
        ada.task("echo")
        ada.send("fail")
        bob.ask("CancelTask", {"id": bob.begin(f"hold {new_name()}")["id"]})
        at.on("secured").send("echo", Authorization=f"Bearer {USERS['ada']}-wrong")
        at.on("secured").ask("ListTasks", {}, Authorization=f"Bearer {USERS['ada']}-wrong")
        config = {"url": HOOK, "token": "token-of-the-hook"}
        ada.task("echo", configuration={"taskPushNotificationConfig": config})
    assert records
    secrets = [*USERS.values(), "token-of-the-hook"]
    assert not [record for record in records for secret in secrets if secret in record]


@E.line(
    "V1-SEC-03",
    Level.SHOULD,
    "requests over the rate limit are refused as such",
    differs="concurrent runs and streams are limited and refused with 429; request rates are left to a proxy",
    ways=BOTH,
)
def there_are_bounds(at: Speaker) -> None:
    busy = at.on("busy")
    held = eventually(lambda: (reply := _held(busy)).status == 200 and reply, "a free place").result["task"]["id"]
    reply = busy.send("echo")
    busy.ask("CancelTask", {"id": held})
    assert reply.status == 429
    assert reply.error["message"]


def _held(at: Speaker) -> Reply:
    return at.send(f"hold {new_name()}", configuration={"returnImmediately": True})


E.without_check(
    "V1-SEC-05",
    Level.SHOULD,
    "Strict-Transport-Security can be sent",
    Verdict.ABSENT,
    "it belongs to whatever ends TLS; WSGI middleware can add it",
)


@E.line("V1-SEC-04", Level.MUST, "URLs in parts are not fetched")
def urls_are_not_fetched(at: Speaker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        part = {"url": f"http://127.0.0.1:{listener.getsockname()[1]}/secret", "mediaType": "image/png"}
        task = at.task("echo", part)
        assert json.dumps(part) in json.dumps(task["artifacts"])
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return
        raise AssertionError("a request arrived")
