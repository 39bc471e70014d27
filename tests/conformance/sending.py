"""Section B, first part: send, wait, tasks and contexts."""

from __future__ import annotations

import threading
from typing import Any

from tests.conformance.suite import BOTH, B, Level, Verdict
from tests.conformance.system import Speaker, message, new_name
from tests.engine import eventually

UNKNOWN = "no-such-task"


def parts_of(task: dict[str, Any]) -> list[Any]:
    """All parts of a task's artifacts."""
    return [part for artifact in task.get("artifacts", ()) for part in artifact["parts"]]


def text_of(task: dict[str, Any]) -> str:
    """The text of a task's artifacts, with chunks joined."""
    return "".join(part.get("text", "") for part in parts_of(task))


def state_of(task: dict[str, Any]) -> str:
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_")


def received(at: Speaker, **members: Any) -> dict[str, Any]:
    """The parts of a send that the agent received."""
    (part,) = parts_of(at.task("report", **members))
    data: dict[str, Any] = part["data"]
    return data


# -- sending ------------------------------------------------------------------------------------------------------------


@B.line("V1-SEND-01", Level.MUST, "the response is a wrapped task or message")
def an_answer_is_wrapped(at: Speaker) -> None:
    assert set(at.send("echo").result) == {"task"}
    assert set(at.on("direct").send("say").result) == {"message"}


@B.line("V1-SEND-02", Level.MUST, "a terminal task accepts no further messages")
def an_ended_task_takes_no_message(at: Speaker) -> None:
    for text in ("echo", "reject"):
        at.send("echo", taskId=at.task(text)["id"]).refuses("UnsupportedOperation")


@B.line("V1-SEND-03", Level.MUST, "a message to an unknown task is refused")
def a_message_to_an_unknown_task_is_refused(at: Speaker) -> None:
    at.send("echo", taskId=UNKNOWN).refuses("TaskNotFound")


@B.line("V1-SEND-04", Level.MUST, "a part whose media type is not in the card is refused")
def other_media_types_are_refused(at: Speaker) -> None:
    for part in ({"raw": "+/8=", "mediaType": "audio/x"}, {"url": "https://example.com/a", "mediaType": "audio/x"}):
        at.send("echo", part).refuses("ContentTypeNotSupported")
    assert parts_of(at.task("echo", {"raw": "+/8=", "mediaType": "image/png"}))


@B.line("V1-SEND-05", Level.MUST, "an agent that answers with a message creates no task")
def a_message_makes_no_task(at: Speaker) -> None:
    context = new_name()
    direct = at.on("direct")
    answer = direct.send("say", contextId=context).result["message"]
    assert "taskId" not in answer
    assert direct.listed(contextId=context) == []


@B.line("V1-SEND-06", Level.MUST, "such a message has the role agent and a context id")
def a_message_names_its_context(at: Speaker) -> None:
    context = new_name()
    direct = at.on("direct")
    assert direct.send("say", contextId=context).result["message"]["contextId"] == context
    answer = direct.send("say").result["message"]
    assert answer["contextId"]
    assert answer["role"] == "ROLE_AGENT"


@B.line("V1-SEND-07", Level.SHOULD, "results are artifacts")
def results_are_artifacts(at: Speaker) -> None:
    parts = [{"text": "a"}, {"raw": "+/8=", "mediaType": "image/png"}, {"data": {"a": 1}}]
    task = at.task("echo", *parts)
    assert parts_of(task) == parts
    assert "message" not in task["status"]


@B.line("V1-SEND-08", Level.SHOULD, "the agent receives the accepted output modes")
def accepted_output_reaches_the_agent(at: Speaker) -> None:
    modes = ["application/json", "text/plain"]
    assert received(at, configuration={"acceptedOutputModes": modes})["modes"] == modes


@B.line("V1-SEND-09", Level.MAY, "a repeated send has one effect", differs="known by a key, not by the message's id")
def a_send_that_comes_twice_is_one(at: Speaker) -> None:
    params, context = message("echo", messageId="twice"), new_name()
    params["message"]["contextId"] = context
    tasks = [at.ask("SendMessage", params, Idempotency_Key=context).result["task"]["id"] for _ in range(2)]
    assert tasks[0] == tasks[1]
    assert at.ask("SendMessage", params).result["task"]["id"] != tasks[0]


@B.line("V1-SEND-11", Level.MUST, "metadata reaches the agent")
def metadata_reaches_the_agent(at: Speaker) -> None:
    metadata = {"a": [1, {"b": None}], "under_score": True}
    assert received(at, metadata=metadata)["metadata"] == metadata


@B.line("V1-SEND-12", Level.MUST, "artifact ids are unique within a task")
def artifacts_have_ids(at: Speaker) -> None:
    ids = [artifact["artifactId"] for artifact in at.get(at.task("number 5")["id"])["artifacts"]]
    assert len(set(ids)) == len(ids) == 5


# -- waiting ------------------------------------------------------------------------------------------------------------


@B.line("V1-MODE-01", Level.MUST, "a send waits until the task is terminal or interrupted")
def a_send_waits(at: Speaker) -> None:
    gate, context = new_name(), new_name()
    waiting = at.in_background(lambda: at.task(f"hold {gate}", contextId=context))
    (seen,) = _appears(at, context)
    at.until(seen["id"], "WORKING")
    assert waiting.waiting
    at.release(gate)
    assert state_of(waiting.result()) == "COMPLETED"
    assert state_of(at.task("ask")) == "INPUT_REQUIRED"
    assert state_of(at.task("login")) == "AUTH_REQUIRED"


def _appears(at: Speaker, context: str) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = eventually(lambda: at.listed(contextId=context), "a task in the context")
    return tasks


@B.line("V1-MODE-02", Level.MUST, "the response then has all artifacts and the current status")
def a_send_has_everything(at: Speaker) -> None:
    task = at.task("number 4")
    assert (state_of(task), len(task["artifacts"])) == ("COMPLETED", 4)
    stored = at.get(task["id"])
    assert (task["status"], task["artifacts"]) == (stored["status"], stored["artifacts"])


@B.line("V1-MODE-03", Level.MUST, "returnImmediately returns while the task continues")
def a_send_may_return_at_once(at: Speaker) -> None:
    gate = new_name()
    assert state_of(at.begin(f"hold {gate}")) in ("SUBMITTED", "WORKING")
    at.release(gate)


@B.line("V1-MODE-04", Level.MUST, "returnImmediately does not affect messages and streams")
def returning_at_once_changes_no_stream(at: Speaker) -> None:
    with at.stream("count 3", configuration={"returnImmediately": True}) as stream:
        *_, last = stream.results()
    assert state_of(last["statusUpdate"]) == "COMPLETED"
    answer = at.on("direct").send("say", configuration={"returnImmediately": True}).result
    assert answer["message"]["parts"] == [{"text": "no task was needed"}]


@B.line("V1-MODE-05", Level.MUST, "the task continues after the response")
def a_task_goes_on_behind_its_send(at: Speaker) -> None:
    gate = new_name()
    task = at.begin(f"hold {gate}")
    at.release(gate)
    assert text_of(at.until(task["id"], "COMPLETED")) == f"hold {gate}"


@B.line("V1-MODE-06", Level.CHOICE, "a client that disconnects from a blocking send does not end the task", ways=BOTH)
def a_lost_client_ends_nothing(at: Speaker) -> None:
    gate, context = new_name(), new_name()
    asked = at.request("SendMessage", message(f"hold {gate}", contextId=context))
    with at.leaving(asked):
        (seen,) = _appears(at, context)
    # A server may need a moment to detect the disconnect, and no event signals it.
    threading.Event().wait(0.5)
    at.release(gate)
    assert text_of(at.until(seen["id"], "COMPLETED")) == f"hold {gate}"


# -- reading ------------------------------------------------------------------------------------------------------------


@B.line("V1-GET-01", Level.MUST, "GetTask returns the current state and artifacts")
def get_task_returns_the_current_task(at: Speaker) -> None:
    task = at.task("count 3")
    assert at.get(task["id"]) == {**task, "history": at.get(task["id"])["history"]}
    gate = new_name()
    running = at.begin(f"hold {gate}")
    assert state_of(at.until(running["id"], "WORKING")) == "WORKING"
    at.release(gate)


@B.line("V1-GET-02", Level.MUST, "an unknown task is not found")
def an_unknown_task_is_not_found(at: Speaker) -> None:
    at.ask("GetTask", {"id": UNKNOWN}).refuses("TaskNotFound")


def _conversation(at: Speaker, context: str = "") -> tuple[str, list[str]]:
    """Create a task with three turns; return its id and the ids of the user's messages."""
    ids = [new_name() for _ in range(3)]
    first = at.task("ask", messageId=ids[0], **({"contextId": context} if context else {}))
    same = {"taskId": first["id"], "contextId": first["contextId"]}
    at.task("ask", messageId=ids[1], **same)
    at.task("echo", messageId=ids[2], **same)
    return first["id"], ids


def _ids(task: dict[str, Any]) -> list[str]:
    return [turn["messageId"] for turn in task.get("history", ())]


@B.line("V1-HIST-01", Level.SHOULD, "a length of 0 omits the history")
def no_history_where_none_is_wanted(at: Speaker) -> None:
    assert "history" not in at.get(at.task("echo")["id"], historyLength=0)


@B.line("V1-HIST-02", Level.MUST, "a length of n returns at most the last n messages")
def the_last_messages_are_given(at: Speaker) -> None:
    id, _ = _conversation(at)
    whole = _ids(at.get(id))
    assert len(whole) >= 4
    for length in (1, 2, 4, 100):
        assert _ids(at.get(id, historyLength=length)) == whole[-length:]


@B.line("V1-HIST-03", Level.MUST, "the length has the same meaning in every operation")
def a_length_means_the_same_everywhere(at: Speaker) -> None:
    context = new_name()
    id, _ = _conversation(at, context)
    for length in (0, 2):
        (listed,) = at.listed(contextId=context, historyLength=length)
        assert _ids(listed) == _ids(at.get(id, historyLength=length))
        sent = at.task("echo", configuration={"historyLength": length})
        assert _ids(sent) == _ids(at.get(sent["id"], historyLength=length))


@B.line("V1-HIST-04", Level.SHOULD, "the history is in chronological order")
def the_history_is_in_order(at: Speaker) -> None:
    id, ids = _conversation(at)
    assert [one for one in _ids(at.get(id)) if one in ids] == ids


@B.line("V1-HIST-05", Level.SHOULD, "the history has the messages of both sides")
def the_history_is_what_was_said(at: Speaker) -> None:
    task = at.task("ask", {"data": [1]}, messageId="said")
    at.task("echo", taskId=task["id"], contextId=task["contextId"])
    first, second, *_ = at.get(task["id"])["history"]
    assert (first["messageId"], first["parts"]) == ("said", [{"text": "ask"}, {"data": [1]}])
    assert (second["role"], second["parts"]) == ("ROLE_AGENT", [{"text": "Which size?"}])


B.without_check(
    "V1-HIST-07",
    Level.MAY,
    "the agent decides which messages are stored",
    Verdict.UNTESTED,
    "whatever is kept is allowed; here that is all but progress texts",
)


@B.line("V1-HIST-06", Level.MUST, "the length does not change the stored task")
def a_length_changes_nothing(at: Speaker) -> None:
    id, _ = _conversation(at)
    whole = _ids(at.get(id))
    at.get(id, historyLength=0)
    at.listed(historyLength=1)
    assert _ids(at.get(id)) == whole


# -- contexts -----------------------------------------------------------------------------------------------------------


@B.line("V1-CTX-01", Level.MUST, "a context id that the server generates is returned")
def a_generated_context_id_is_returned(at: Speaker) -> None:
    first, second = at.task("echo"), at.task("echo")
    assert first["contextId"]
    assert first["contextId"] != second["contextId"]


@B.line("V1-CTX-02", Level.MUST, "a context id of the client is used")
def a_client_s_context_is_kept(at: Speaker) -> None:
    context = f"mine/{new_name()} \u00e9"
    task = at.task("echo", contextId=context)
    assert task["contextId"] == context
    assert at.get(task["id"])["contextId"] == context


@B.line("V1-CTX-03", Level.MUST, "task ids are unique")
def ids_of_tasks_differ(at: Speaker) -> None:
    ids = [at.task("echo", messageId="the same")["id"] for _ in range(20)]
    assert len(set(ids)) == 20
    assert all(ids)


@B.line("V1-CTX-04", Level.MUST, "the context of a task is inferred from its id")
def a_task_stands_for_its_context(at: Speaker) -> None:
    asked = at.task("ask")
    for text in ("ask", "ask", "echo"):
        assert at.task(text, taskId=asked["id"])["contextId"] == asked["contextId"]


@B.line("V1-CTX-05", Level.MUST, "a task id with the id of another context is refused")
def another_context_is_refused(at: Speaker) -> None:
    asked = at.task("ask")
    at.send("echo", taskId=asked["id"], contextId=new_name()).refuses("InvalidParams")
    assert state_of(at.get(asked["id"])) == "INPUT_REQUIRED"


@B.line("V1-CTX-06", Level.MUST, "a context id without a task id starts a new task")
def a_context_alone_begins_a_task(at: Speaker) -> None:
    context = new_name()
    first, second = (at.task("ask", contextId=context) for _ in range(2))
    assert first["id"] != second["id"]
    assert first["contextId"] == second["contextId"] == context


@B.line("V1-CTX-07", Level.MUST, "an answer to a question continues the task")
def an_answer_goes_on_with_the_task(at: Speaker) -> None:
    asked = at.task("ask")
    answered = at.task("large", taskId=asked["id"], contextId=asked["contextId"])
    assert (answered["id"], state_of(answered), text_of(answered)) == (asked["id"], "COMPLETED", "large")


@B.line("V1-CTX-08", Level.SHOULD, "the agent receives references to other tasks")
def references_reach_the_agent(at: Speaker) -> None:
    ids = [at.task("echo")["id"] for _ in range(2)]
    assert received(at, referenceTaskIds=ids)["references"] == ids
