"""Section A: the encoding of 1.0, and its validation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.conformance.suite import BOTH, A, Level
from tests.conformance.system import Speaker, message, new_name

#: Members with arbitrary content of users.
_FREE = {"data", "metadata", "params", "header"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_CONTENTS = {"text", "raw", "url", "data"}


def tour(at: Speaker) -> list[Any]:
    """The results of most operations, on tasks of every kind."""
    context = new_name()
    meta = {"of_the_user": {"as_it": ["is", None]}}
    file = {"raw": "+/8=", "filename": "two", "mediaType": "application/octet-stream"}
    sent = at.send("echo", {"text": "a", "metadata": meta}, {"data": None}, file, contextId=context, metadata=meta)
    asked = at.task("ask", contextId=context)
    holding = at.begin(f"hold {new_name()}", contextId=context)
    results = [
        sent.result,
        asked,
        at.get(asked["id"]),
        at.ask("CancelTask", {"id": holding["id"]}).result,
        at.ask("ListTasks", {"contextId": context, "includeArtifacts": True}).result,
        *at.stream("count 2", contextId=context).all(),
    ]
    return [*results, card(at)]


def card(at: Speaker) -> Any:
    """The card of 1.0 without members of 0.3."""
    reply = at.exchange("GET", "/.well-known/agent-card.json", headers={"A2A-Version": "1.0"})
    assert reply.status == 200
    return reply.json


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """All members in a value at any depth, except those of users."""
    for item in value if isinstance(value, list) else [value] if isinstance(value, dict) else []:
        if isinstance(item, dict):
            for name, member in item.items():
                yield name, member
                if name not in _FREE:
                    yield from members(member)
        else:
            yield from members(item)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a value at any depth, except those of users."""
    if isinstance(value, list):
        for item in value:
            yield from objects(item)
    elif isinstance(value, dict):
        yield value
        for name, member in value.items():
            if name not in _FREE:
                yield from objects(member)


def echoed(at: Speaker, *parts: Any) -> list[Any]:
    """The parts of the response to a send with these parts."""
    (artifact,) = at.task("echo", *parts)["artifacts"]
    returned: list[Any] = artifact["parts"]
    return returned


# -- output -------------------------------------------------------------------------------------------------------------


@A.line("V1-ENC-01", Level.MUST, "member names are camelCase")
def names_are_camel_case(at: Speaker) -> None:
    found = {name for name, _ in members(tour(at))}
    assert {"contextId", "artifactId", "nextPageToken", "supportedInterfaces"} <= found
    # Names of security schemes are chosen by users; this card has none.
    assert not {name for name in found if "_" in name}


@A.line("V1-ENC-02", Level.MUST, "states and roles have their proto names")
def enums_are_names(at: Speaker) -> None:
    values = {value for name, value in members(tour(at)) if name in ("state", "role")}
    assert {"TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "ROLE_USER", "ROLE_AGENT"} <= values
    assert all(re.fullmatch(r"(TASK_STATE|ROLE)_[A-Z_]+", value) for value in values)


def _times(at: Speaker) -> list[str]:
    times = [value for name, value in members(tour(at)) if name == "timestamp"]
    assert times
    return times


@A.line("V1-ENC-03", Level.MUST, "timestamps are ISO 8601 in UTC with the suffix Z")
def times_are_utc(at: Speaker) -> None:
    assert all(_TIME.fullmatch(time) for time in _times(at))


@A.line("V1-ENC-04", Level.SHOULD, "timestamps have milliseconds")
def times_have_milliseconds(at: Speaker) -> None:
    assert all(re.search(r"\.\d{3}Z$", time) for time in _times(at))


@A.line("V1-ENC-05", Level.MUST, "timestamps in another zone are converted to UTC")
def other_zones_are_shifted(at: Speaker) -> None:
    assert re.fullmatch(r"2031-06-01T10:00:00(\.000)?Z", at.task("stamp")["status"]["timestamp"])


@A.line("V1-ENC-06", Level.MUST, "a part has exactly one content and no kind")
def parts_have_one_content(at: Speaker) -> None:
    parts = [part for name, value in members(tour(at)) if name == "parts" for part in value]
    assert len(parts) > 5
    assert all(len(_CONTENTS & part.keys()) == 1 and "kind" not in part for part in parts)


@A.line("V1-ENC-07", Level.MUST, "bytes are standard base64 with padding")
def bytes_are_standard_base64(at: Speaker) -> None:
    (artifact,) = at.task("bytes")["artifacts"]
    assert artifact["parts"][0]["raw"] == "+/8="


# -- input --------------------------------------------------------------------------------------------------------------


@A.line("V1-ENC-08", Level.MUST, "snake_case member names are accepted")
def snake_case_is_accepted(at: Speaker) -> None:
    context = new_name()
    body = {
        "message": {
            "message_id": "snake",
            "context_id": context,
            "role": "ROLE_USER",
            "parts": [{"text": "echo"}, {"raw": "+/8=", "media_type": "image/png"}],
        },
        "configuration": {"history_length": 0, "accepted_output_modes": ["image/png"]},
    }
    task = at.ask("SendMessage", body).result["task"]
    assert task["contextId"] == context
    assert task["artifacts"][0]["parts"] == [{"raw": "+/8=", "mediaType": "image/png"}]
    assert "history" not in task
    assert at.get(task["id"])["history"][0]["messageId"] == "snake"
    if not at.rest:
        # Query names are camelCase (11.5).
        assert [one["id"] for one in at.listed(context_id=context)] == [task["id"]]


@A.line("V1-ENC-09", Level.MUST, "null means that a member is not set")
def null_is_not_set(at: Speaker) -> None:
    unset = {"contextId": None, "taskId": None, "metadata": None, "extensions": None, "referenceTaskIds": None}
    params = message("echo", {"text": "x", "mediaType": None, "url": None}, **unset)
    task = at.ask("SendMessage", {**params, "configuration": None, "metadata": None, "tenant": None}).result["task"]
    assert task["contextId"]
    assert task["artifacts"][0]["parts"] == [{"text": "x"}]


@A.line("V1-ENC-10", Level.MUST, "null is a valid value of data")
def null_data_is_data(at: Speaker) -> None:
    assert echoed(at, {"data": None}) == [{"data": None}]


@A.line("V1-ENC-11", Level.MUST, "data is any JSON value")
def data_is_any_value(at: Speaker) -> None:
    values = [[1, [2]], 7, 2.5, "text", True, False, {"a": {"b": None}}, [], {}]
    assert echoed(at, *({"data": value} for value in values)) == [{"data": value} for value in values]


@A.line("V1-ENC-12", Level.MUST, "enum numbers are accepted")
def enum_numbers_are_accepted(at: Speaker) -> None:
    task = at.task("echo", role=1)
    assert at.get(task["id"])["history"][0]["role"] == "ROLE_USER"


@A.line("V1-ENC-13", Level.MUST, "URL-safe and unpadded base64 is accepted")
def other_base64_is_accepted(at: Speaker) -> None:
    assert [part["raw"] for part in echoed(at, {"raw": "-_8"}, {"raw": "-_8="}, {"raw": "+/8"})] == ["+/8="] * 3


@A.line("V1-ENC-14", Level.MUST, "a timestamp with an offset is accepted")
def offsets_are_understood(at: Speaker) -> None:
    context = new_name()
    task = at.task("echo", contextId=context)
    there = datetime.fromisoformat(task["status"]["timestamp"]).astimezone(UTC) + timedelta(hours=2)

    def since(seconds: int) -> list[str]:
        moment = (there + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "+02:00")
        return [one["id"] for one in at.listed(contextId=context, statusTimestampAfter=moment)]

    assert (since(0), since(-1), since(1)) == ([task["id"]], [task["id"]], [])


@A.line("V1-ENC-15", Level.MUST, "integers may be strings or have a zero fraction; other values are refused", ways=BOTH)
def whole_numbers_are_lenient(at: Speaker) -> None:
    for value in ("1", 1.0, 1):
        task = at.task("echo", configuration={"historyLength": value})
        assert len(task["history"]) == 1
    at.send("echo", configuration={"historyLength": 2.5}).refuses("InvalidParams")
    at.send("echo", configuration={"historyLength": "2.5"}).refuses("InvalidParams")


@A.line("V1-ENC-16", Level.SHOULD, "unknown members are ignored at any depth", ways=BOTH)
def unknown_members_are_passed_over(at: Speaker) -> None:
    params = message("echo", {"text": "x", "x-new": [1]}, **{"x-new": {}})
    task = at.ask("SendMessage", {**params, "x-new": {}, "configuration": {"xNew": None}}).result["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "x"}]


@A.line("V1-ENC-17", Level.MUST, "members that are not set are omitted, never null")
def nothing_is_null(at: Speaker) -> None:
    assert not [name for name, value in members(tour(at)) if value is None and name != "data"]


@A.line("V1-ENC-18", Level.MUST, "text of any script is returned unchanged")
def text_survives(at: Speaker) -> None:
    text = 'na\u00efve e\u0301 \U0001f355\U0001f468\u200d\U0001f469 \u05d0\u05d1 \u0000 \u2028 \r\n \t\\" </script>'
    assert echoed(at, {"text": text}) == [{"text": text}]


# -- validation ---------------------------------------------------------------------------------------------------------


@A.line("V1-VAL-01", Level.MUST, "a send without a message is refused")
def a_message_is_needed(at: Speaker) -> None:
    at.ask("SendMessage", {}).refuses("InvalidParams")
    at.ask("SendMessage", {"message": None}).refuses("InvalidParams")


@A.line("V1-VAL-02", Level.MUST, "a message without an id is refused")
def an_id_is_needed(at: Speaker) -> None:
    at.send("echo", messageId="").refuses("InvalidParams")
    at.send("echo", messageId=None).refuses("InvalidParams")


@A.line("V1-VAL-03", Level.MUST, "a message without a role is refused")
def a_role_is_needed(at: Speaker) -> None:
    said = message("echo")
    del said["message"]["role"]
    at.ask("SendMessage", said).refuses("InvalidParams")
    at.send("echo", role=None).refuses("InvalidParams")
    at.send("echo", role="ROLE_UNSPECIFIED").refuses("InvalidParams")


@A.line("V1-VAL-04", Level.MUST, "a message without parts is refused")
def parts_are_needed(at: Speaker) -> None:
    at.send("echo", parts=[]).refuses("InvalidParams")
    at.send("echo", parts=None).refuses("InvalidParams")


@A.line("V1-VAL-05", Level.MUST, "a part with two contents is refused", ways=BOTH)
def two_contents_are_refused(at: Speaker) -> None:
    at.send("echo", {"text": "a", "url": "https://x.example/"}).refuses("InvalidParams")
    at.send("echo", {"text": "a", "data": {}}).refuses("InvalidParams")


@A.line("V1-VAL-13", Level.CHOICE, "a part without content is refused")
def no_content_is_refused(at: Speaker) -> None:
    at.send("echo", {}).refuses("InvalidParams")


@A.line("V1-VAL-06", Level.MUST, "a member of the wrong JSON type is refused", ways=BOTH)
def other_types_are_refused(at: Speaker) -> None:
    at.send("echo", messageId={"a": 1}).refuses("InvalidParams")
    at.send("echo", parts={"text": "a"}).refuses("InvalidParams")
    at.send("echo", {"text": 5}).refuses("InvalidParams")
    if not at.rest:
        at.ask("GetTask", {"id": {"a": 1}}).refuses("InvalidParams")


@A.line("V1-VAL-07", Level.MUST, "the whole request is validated before it has an effect", ways=BOTH)
def a_refused_send_leaves_nothing(at: Speaker) -> None:
    before = at.ask("ListTasks", {"pageSize": 1}).result["totalSize"]
    context = new_name()
    at.send("echo", {"text": "a", "url": "u"}, contextId=context).refuses("InvalidParams")
    at.send("echo", contextId=context, configuration={"historyLength": -1}).refuses("InvalidParams")
    assert at.listed(contextId=context) == []
    assert at.ask("ListTasks", {"pageSize": 1}).result["totalSize"] == before


@A.line("V1-VAL-08", Level.SHOULD, "the error names the member")
def the_member_is_named(at: Speaker) -> None:
    reply = at.send("echo", messageId="")
    reply.refuses("InvalidParams")
    violations = [violation for detail in reply.details for violation in detail.get("fieldViolations", ())]
    assert all(violation["field"] for violation in violations)
    assert violations


@A.line("V1-VAL-09", Level.SHOULD, "an unknown enum name is refused", ways=BOTH)
def unknown_names_are_refused(at: Speaker) -> None:
    at.ask("ListTasks", {"status": "TASK_STATE_RUNNING"}).refuses("InvalidParams")
    at.send("echo", role="ROLE_KING").refuses("InvalidParams")


@A.line("V1-VAL-10", Level.MUST, "a negative history length is refused")
def negative_lengths_are_refused(at: Speaker) -> None:
    at.send("echo", configuration={"historyLength": -1}).refuses("InvalidParams")
    at.ask("GetTask", {"id": at.task("echo")["id"], "historyLength": -1}).refuses("InvalidParams")
    at.ask("ListTasks", {"historyLength": -1}).refuses("InvalidParams")


@A.line("V1-VAL-11", Level.MUST, "all objects in a response have their required members")
def required_members_are_there(at: Speaker) -> None:
    needed = {"messageId": ("messageId", "role", "parts"), "artifactId": ("artifactId", "parts")}
    seen = set()
    for value in objects(tour(at)):
        if "history" in value:
            seen.add("task")
            assert value["id"]
            assert value["status"]["state"]
        if "taskId" in value and (value.keys() & {"status", "artifact"}):
            seen.add("event")
            assert value["taskId"]
            assert value["contextId"]
        for mark, names in needed.items():
            if mark in value:
                seen.add(mark)
                assert all(value[name] for name in names)
    assert seen == {"task", "event", "messageId", "artifactId"}


@A.line("V1-VAL-12", Level.SHOULD, "bodies are limited in size and depth, and the server continues", ways=BOTH)
def bodies_are_bounded(at: Speaker) -> None:
    large = at.request("SendMessage", message("x" * 11_000_000))
    reply = at.exchange(large.verb, large.path, large.body, large.headers)
    assert reply.error
    deep = at.request("SendMessage", message("echo", {"data": "HERE"}))
    nested = json.dumps("HERE").encode()
    reply = at.exchange(deep.verb, deep.path, deep.body.replace(nested, b"[" * 9000 + b"]" * 9000), deep.headers)
    assert reply.error
    assert at.task("echo")["status"]["state"] == "TASK_STATE_COMPLETED"
