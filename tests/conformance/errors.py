"""Section D, second part: common behaviour of both bindings, and errors."""

from __future__ import annotations

from tests.conformance.bindings import a2a_errors
from tests.conformance.sending import UNKNOWN, parts_of, state_of
from tests.conformance.suite import BOTH, D, Level, Way
from tests.conformance.system import Speaker, new_name
from tests.conformance.wire import NAMES, Reply
from tests.engine import eventually

_RPC = (Way.RPC,)


# -- both bindings ------------------------------------------------------------------------------------------------------


@D.line("V1-BIND-01", Level.MUST, "both bindings have the same operations", ways=_RPC)
def both_have_the_same_operations(at: Speaker) -> None:
    for name in NAMES:
        params = {"id": UNKNOWN, "taskId": UNKNOWN, "url": "https://example.com/"}
        if name.method in ("ListTasks", "GetExtendedAgentCard"):
            params = {}
        replies = [one.ask(name.method, params) for one in (at, at.by(Way.REST))]
        assert [_outcome(reply) for reply in replies] == [_OUTCOMES.get(name.method, "TASK_NOT_FOUND")] * 2, name


#: The results of calls about an unknown task.
_OUTCOMES = {
    **dict.fromkeys((name.method for name in NAMES if "Push" in name.method), "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "SendMessage": "INVALID_PARAMS",
    "SendStreamingMessage": "INVALID_PARAMS",
    "ListTasks": "fine",
    "GetExtendedAgentCard": "UNSUPPORTED_OPERATION",
}


def _outcome(reply: Reply) -> str:
    return "fine" if reply.status < 300 and "error" not in reply.json else reply.info["reason"]


@D.line("V1-BIND-02", Level.MUST, "both bindings report the same results and errors", ways=_RPC)
def both_bindings_report_the_same_errors(at: Speaker) -> None:
    rest, context = at.by(Way.REST), new_name()
    tasks = [one.task("count 3", {"data": [1]}, contextId=context) for one in (at, rest)]
    tasks += [one.task("ask", contextId=context) for one in (at, rest)]
    for task in tasks:
        assert at.get(task["id"]) == rest.get(task["id"])
    assert at.listed(contextId=context) == rest.listed(contextId=context)
    streams = [one.stream("number 2").all() for one in (at, rest)]
    assert [[next(iter(event)) for event in events] for events in streams] == [
        ["task", *["statusUpdate"] * (len(events) - 4), "artifactUpdate", "artifactUpdate", "statusUpdate"]
        for events in streams
    ]


@D.line("V1-BIND-03", Level.MUST, "both bindings refuse the same requests for the same reason", ways=_RPC)
def both_refuse_the_same(at: Speaker) -> None:
    ours, others = a2a_errors(at), a2a_errors(at.by(Way.REST))
    assert {name: reply.info["reason"] for name, reply in ours.items()} == {
        name: reply.info["reason"] for name, reply in others.items()
    }


@D.line("V1-ERR-01", Level.MUST, "errors have a code, a message, and typed details")
def errors_are_complete(at: Speaker) -> None:
    for reply in a2a_errors(at).values():
        assert isinstance(reply.error["code"], int)
        assert reply.error["message"]
        assert all("@type" in detail for detail in reply.details)


@D.line("V1-ERR-02", Level.MUST, "an internal error reveals no internals")
def faults_say_nothing(at: Speaker) -> None:
    reply = at.on("direct").send("fail")
    reply.refuses("InternalError")
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body


@D.line("V1-ERR-03", Level.SDK, "an exception of the agent fails the task")
def an_agent_that_raises_fails_its_task(at: Speaker) -> None:
    reply = at.send("fail")
    assert state_of(reply.result["task"]) == "FAILED"
    assert b"secret" not in reply.body


def _held(at: Speaker, gate: str) -> Reply:
    return at.send(f"hold {gate}", configuration={"returnImmediately": True})


@D.line("V1-ERR-04", Level.MAY, "an overload error says when to retry", ways=BOTH)
def retry_after_is_sent(at: Speaker) -> None:
    busy = at.on("busy")
    gate = new_name()
    held: Reply = eventually(lambda: (reply := _held(busy, gate)).status == 200 and reply, "a free place")
    reply = busy.send("echo")
    busy.ask("CancelTask", {"id": held.result["task"]["id"]})
    assert reply.status == 429
    assert int(reply.headers["Retry-After"]) > 0
    assert reply.error["message"]


@D.line(
    "V1-ERR-05",
    Level.MUST,
    "an agent that violates the data model is reported",
    differs="the task fails: once there is a task, every outcome is a state of it",
)
def a_broken_answer_fails_its_task(at: Speaker) -> None:
    task = at.task("broken")
    assert state_of(task) == "FAILED"
    assert parts_of(task) == []
