"""Ownership in one table: every operation, in every binding and version, for callers without access.

What is another's is answered exactly as what does not exist. Through the WSGI app and over gRPC, as peers see it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest

from a2a_sync import A2AApp, Agent, AgentHost, InputRequired, PushOptions, URLGuard
from a2a_sync import operations as op
from a2a_sync.auth import BearerAuth, Principal
from a2a_sync.bindings.http_json import write_request
from a2a_sync.codec import by_version
from a2a_sync.concurrency.gevent import patched
from a2a_sync.errors import TaskNotFoundError, UnsupportedOperationError
from a2a_sync.operations import Call, Operation
from tests.wsgi import Answer, Peer, message, message_v03, rpc

KNOWN = {
    "ada": Principal(id="ada", scopes=("use",)),
    "bob": Principal(id="bob", scopes=("use",)),
    "poor": Principal(id="ada"),
}
#: As long as a real one, so that answers may be compared byte by byte.
MISSING = "0" * 36
HOOK = "https://hooks.example.com/a2a"


def no_such_name(*_: object) -> Any:
    raise OSError("no names are looked up here")


PUSH = PushOptions(url_guard=URLGuard(resolve=no_such_name))


class Way(NamedTuple):
    """A version and binding."""

    binding: str
    version: str

    def send(self, peer: Peer, operation: Operation, params: dict[str, Any], token: str | None) -> Answer:
        """One call; of a stream, what it says first."""
        if self.binding == "GRPC":
            from tests.grpc.ways import call

            return call(peer.served, self.version, operation, params, token)
        headers = {"A2A-Version": self.version, "Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if self.binding == "JSONRPC":
            method = by_version(self.version).method(operation)
            opened = peer.open("POST", "/", rpc(method, params), headers)
        else:
            verb, path, query, body = write_request(operation, params, self.version)
            opened = peer.open(verb, f"{path}?{query}" if query else path, body or b"", headers)
        with opened as answer:
            return Answer(answer.status, answer.headers, answer.chunk())

    def has(self, operation: Operation) -> bool:
        """The operation exists there."""
        if self.binding == "GRPC":
            from a2a_sync.bindings import protobuf

            return operation.name in protobuf.methods(self.version)
        try:
            by_version(self.version).method(operation)
        except UnsupportedOperationError:
            return False
        return True


#: gRPC needs the extra ``grpc``, which `make test` installs, and is refused in a process that gevent has patched.
BINDINGS = ("JSONRPC", "HTTP+JSON", *(["GRPC"] if find_spec("grpc") and not patched() else []))
WAYS = tuple(Way(binding, version) for binding in BINDINGS for version in ("1.0", "0.3"))
#: The codes of errors for callers that are not known, and for those that lack a scope.
CODES = {
    "JSONRPC": (-31401, -31403),
    "HTTP+JSON": (401, 403),
    "GRPC": ("UNAUTHENTICATED", "PERMISSION_DENIED"),
}


def params(way: Way, operation: Operation, task: str, config: str = "c-1") -> dict[str, Any]:
    """A request of `operation` on `task`."""
    # Webhooks are named in paths of 0.3 by the members that 1.0 has for them.
    of_webhook = operation in (op.GET_PUSH_CONFIG, op.DELETE_PUSH_CONFIG, op.LIST_PUSH_CONFIGS)
    older = way.version == "0.3" and not (of_webhook and way.binding == "HTTP+JSON")
    if operation.request is op.SEND_MESSAGE.request:
        return message_v03(taskId=task) if older else message(taskId=task)
    if operation is op.CREATE_PUSH_CONFIG:
        return {"taskId": task, "pushNotificationConfig": {"url": HOOK}} if older else {"taskId": task, "url": HOOK}
    if operation in (op.GET_PUSH_CONFIG, op.DELETE_PUSH_CONFIG):
        return {"id": task, "pushNotificationConfigId": config} if older else {"taskId": task, "id": config}
    if operation is op.LIST_PUSH_CONFIGS:
        return {"id": task} if older else {"taskId": task}
    return {} if operation in (op.LIST_TASKS, op.GET_EXTENDED_CARD) else {"id": task}


def rows() -> Iterator[Any]:
    for way in WAYS:
        for operation in op.OPERATIONS.values():
            if way.has(operation):
                yield pytest.param(way, operation, id=f"{operation.name}-{way.binding}-{way.version}")


def names_a_task(operation: Operation) -> bool:
    return bool({"id", "task_id", "message"} & {item.name for item in fields(operation.request)})


EVERYTHING = pytest.mark.parametrize(("way", "operation"), list(rows()))
ON_A_TASK = pytest.mark.parametrize(
    ("way", "operation"),
    [row for row in rows() if names_a_task(row.values[1])],
)


def make_app(**options: Any) -> A2AApp:
    agent = Agent("asking")
    agent.message(lambda message, context: InputRequired("and?"))
    return A2AApp(
        agent,
        auth=BearerAuth(KNOWN),
        required_scopes={"*": "use"},
        push=PUSH,
        extended_card=agent.describe(),
        url="https://agent.test/",
        **options,
    )


@pytest.fixture(scope="module")
def app() -> Iterator[A2AApp]:
    with make_app() as app:
        yield app


@pytest.fixture(scope="module")
def peer(app: A2AApp) -> Peer:
    return Peer(app)


def started(peer: Peer, token: str = "ada", **members: Any) -> dict[str, Any]:
    """A task that waits for its owner, with a webhook."""
    said = message(**members)
    said["configuration"] = {"taskPushNotificationConfig": {"id": "c-1", "url": HOOK}}
    answer = WAYS[0].send(peer, op.SEND_MESSAGE, said, token)
    assert answer.status == 200, answer.body
    task: dict[str, Any] = answer.result["task"]
    return task


def outline(answer: Answer, *ids: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """All that an answer says, its ids aside."""
    body = answer.body
    for one in ids:
        body = body.replace(one.encode(), b"ID")
    headers = [(name, value) for name, value in answer.headers if name != "Content-Length"]
    return answer.status, headers, body


@ON_A_TASK
def test_a_task_of_another_caller_is_answered_like_one_that_does_not_exist(
    peer: Peer, way: Way, operation: Operation
) -> None:
    task = started(peer)["id"]
    foreign = way.send(peer, operation, params(way, operation, task), "bob")
    unknown = way.send(peer, operation, params(way, operation, MISSING), "bob")

    assert b"TASK_NOT_FOUND" in foreign.body, foreign.body
    assert outline(foreign, task) == outline(unknown, MISSING)
    untouched = WAYS[0].send(peer, op.GET_TASK, {"id": task}, "ada").result
    assert untouched["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert len(untouched["history"]) == 2
    configs = WAYS[0].send(peer, op.LIST_PUSH_CONFIGS, {"taskId": task}, "ada").result["configs"]
    assert [config["id"] for config in configs] == ["c-1"]


@ON_A_TASK
def test_its_owner_finds_it(peer: Peer, way: Way, operation: Operation) -> None:
    task = started(peer)["id"]
    answer = way.send(peer, operation, params(way, operation, task), "ada")

    assert answer.status in (200, 204), answer.body
    assert b"TASK_NOT_FOUND" not in answer.body


@EVERYTHING
def test_without_credentials_nothing_is_answered(peer: Peer, way: Way, operation: Operation) -> None:
    task = started(peer)["id"]
    for_real = way.send(peer, operation, params(way, operation, task), None)
    for_missing = way.send(peer, operation, params(way, operation, MISSING), None)

    assert for_real.status == 401
    assert for_real.headers["WWW-Authenticate"] == 'Bearer realm="agent"'
    assert outline(for_real) == outline(for_missing)
    error = for_real.json["error"]
    assert error["code"] == CODES[way.binding][0]


@EVERYTHING
def test_with_wrong_credentials_nothing_is_answered(peer: Peer, way: Way, operation: Operation) -> None:
    answer = way.send(peer, operation, params(way, operation, started(peer)["id"]), "eve")

    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="agent", error="invalid_token"'


@EVERYTHING
def test_without_the_scope_nothing_is_answered(peer: Peer, way: Way, operation: Operation) -> None:
    answer = way.send(peer, operation, params(way, operation, started(peer)["id"]), "poor")

    assert answer.status == 403
    error = answer.json["error"]
    assert error["code"] == CODES[way.binding][1]
    # Over gRPC the texts of 0.3 begin with the names of errors.
    assert error["message"].removeprefix("PermissionDeniedError: ") == "this needs the scope use"


# -- what has no task in its request ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [way for way in WAYS if way.has(op.LIST_TASKS)])
def test_lists_hold_ones_own_tasks_only(peer: Peer, way: Way) -> None:
    task = started(peer)
    for token, expected in (("ada", {task["id"]}), ("bob", set())):
        listed = way.send(peer, op.LIST_TASKS, {"contextId": task["contextId"]}, token)
        assert (listed.status, task["id"].encode() in listed.body) == (200, bool(expected))
        found = WAYS[0].send(peer, op.LIST_TASKS, {"contextId": task["contextId"]}, token).result
        assert ({one["id"] for one in found["tasks"]}, found["totalSize"]) == (expected, len(expected))


def test_a_context_of_another_caller_is_a_new_one(peer: Peer) -> None:
    theirs = started(peer)
    mine = started(peer, "bob", contextId=theirs["contextId"])

    assert mine["contextId"] == theirs["contextId"]
    assert mine["id"] != theirs["id"]
    for token, one in (("ada", theirs), ("bob", mine)):
        found = WAYS[0].send(peer, op.LIST_TASKS, {"contextId": one["contextId"]}, token).result
        assert [task["id"] for task in found["tasks"]] == [one["id"]]


def test_a_key_of_another_caller_is_not_known(peer: Peer) -> None:
    ids = set()
    for token in ("ada", "bob", "ada"):
        headers = {"Idempotency-Key": "k-1", "Authorization": f"Bearer {token}"}
        ids.add(peer.call("SendMessage", message(), headers=headers).result["task"]["id"])

    assert len(ids) == 2


def test_tasks_of_another_tenant_are_not_found(peer: Peer) -> None:
    answer = WAYS[0].send(peer, op.SEND_MESSAGE, {**message(), "tenant": "north"}, "ada")
    task = answer.result["task"]["id"]

    assert WAYS[0].send(peer, op.GET_TASK, {"id": task, "tenant": "north"}, "ada").result["id"] == task
    for tenant in ("", "south"):
        assert WAYS[0].send(peer, op.GET_TASK, {"id": task, "tenant": tenant}, "ada").error["code"] == -32001


# -- sharing ------------------------------------------------------------------------------------------------------------

SHARED: dict[str, Principal] = {}


def shared(call: Call) -> Principal | None:
    return SHARED.get(call.task_id)


@ON_A_TASK
def test_a_task_can_be_shared(way: Way, operation: Operation) -> None:
    agent = Agent("asking")
    agent.message(lambda message, context: InputRequired(f"is it {context.user.id}?"))
    with A2AApp(agent, auth=BearerAuth(KNOWN), push=PUSH, owner=shared) as app:
        peer = Peer(app)
        task, other = started(peer)["id"], started(peer)["id"]
        SHARED[task] = Principal(id="ada")
        given = way.send(peer, operation, params(way, operation, task), "bob")
        kept = way.send(peer, operation, params(way, operation, other), "bob")

    assert b"TASK_NOT_FOUND" not in given.body
    assert b"TASK_NOT_FOUND" in kept.body


def test_a_team_can_own_its_tasks_together_and_each_speaker_is_known() -> None:
    agent = Agent("asking")
    agent.message(lambda message, context: InputRequired(f"yes, {context.user.id}?"))
    with A2AApp(agent, auth=BearerAuth(KNOWN), owner=lambda call: "team") as app:
        peer = Peer(app)
        task = WAYS[0].send(peer, op.SEND_MESSAGE, message(), "ada").result["task"]["id"]
        answered = WAYS[0].send(peer, op.SEND_MESSAGE, message(taskId=task), "bob").result["task"]
        found = WAYS[0].send(peer, op.LIST_TASKS, {}, "bob").result["tasks"]

    assert answered["status"]["message"]["parts"][0]["text"] == "yes, bob?"
    assert [one["id"] for one in found] == [task]


def test_the_owner_function_may_refuse() -> None:
    def closed(call: Call) -> str | None:
        raise TaskNotFoundError()

    agent = Agent("asking")
    agent.message(lambda message, context: None)
    with A2AApp(agent, owner=closed) as app:
        assert Peer(app).call("ListTasks", {}).error["code"] == -32001


@pytest.mark.parametrize(
    "said", [7, b"ada", "a\x1eb", "a\0b", Principal(id=""), Principal(id="\x1eteam"), Principal(id="echo\x1fada")]
)
def test_what_is_no_id_is_refused(said: Any) -> None:
    agent = Agent("asking")
    agent.message(lambda message, context: None)
    with A2AApp(agent, owner=lambda call: said) as app:
        answer = Peer(app).call("ListTasks", {})

    assert answer.error["code"] == -32603
    assert json.loads(answer.body)["id"] == 1


def test_nobodys_id_leads_to_the_tasks_of_an_agent_among_several(store_url: str) -> None:
    """Also not through an app beside their host, over the same file."""
    agent = Agent("asking")
    agent.message(lambda message, context: InputRequired("and?"))
    claimed = {"slash": "echo/ada", "mark": "echo\x1fada"}
    with (
        AgentHost({"echo": agent}, store=store_url, auth=BearerAuth(KNOWN)) as host,
        A2AApp(
            agent, store=store_url, auth=BearerAuth({token: Principal(id=id) for token, id in claimed.items()})
        ) as beside,
    ):
        task = started_in(Peer(host), "/echo")
        assert WAYS[0].send(Peer(beside), op.GET_TASK, {"id": task}, "slash").error["code"] == -32001
        assert WAYS[0].send(Peer(beside), op.GET_TASK, {"id": task}, "mark").status == 401


def started_in(peer: Peer, path: str) -> str:
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json", "Authorization": "Bearer ada"}
    with peer.open("POST", f"{path}/", rpc("SendMessage", message()), headers) as opened:
        answer = Answer(opened.status, opened.headers, opened.chunk())
    task: str = answer.result["task"]["id"]
    return task


def test_an_owner_that_the_app_names_is_not_the_caller_of_that_name() -> None:
    agent = Agent("shared", description="Answers")

    @agent.message
    def answer(message: Any, context: Any) -> str:
        return "done"

    def team(call: Call) -> str | None:
        return "bob" if call.context.principal is not None and call.context.principal.id == "ada" else None

    app = A2AApp(agent, auth=BearerAuth({"ada": "ada", "bob": "bob"}), owner=team)
    try:
        sent = Peer(app).call("SendMessage", message(), headers={"Authorization": "Bearer ada"})
        task = sent.result["task"]["id"]
        seen = Peer(app).call("GetTask", {"id": task}, headers={"Authorization": "Bearer bob"})
    finally:
        app.close(0)

    assert seen.error["code"] == TaskNotFoundError.jsonrpc_code


@pytest.mark.parametrize(
    ("named", "owner_id"),
    [("team", "\x1eteam"), (Principal(id="bob"), "bob"), (None, "ada")],
    ids=["a string", "a principal", "the caller itself"],
)
def test_a_handler_sees_the_owner_of_its_task(named: Any, owner_id: str) -> None:
    agent = Agent("shows")

    @agent.message
    def answer(message: Any, context: Any) -> Any:
        return {"owner": context.owner_id}

    with A2AApp(agent, auth=BearerAuth({"ada": "ada"}), owner=lambda call: named) as app:
        data = Peer(app).call("SendMessage", message(), headers={"Authorization": "Bearer ada"})
    (part,) = data.result["task"]["artifacts"][0]["parts"]
    assert part["data"] == {"owner": owner_id}
