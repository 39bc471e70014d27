"""Encoding and validation, broken."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from a2a_sync import A2AApp, Message, Role, TextPart, operations, types
from a2a_sync.operations import Call
from tests.conformance.breaking import (
    Answer,
    answering,
    asking_with,
    changing_json,
    deep,
    in_parameters,
    leaves,
    with_requests,
)
from tests.conformance.ours import Variant


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def _times(change: Any) -> Any:
    return changing_json(leaves(lambda leaf: change(leaf) if isinstance(leaf, str) and _TIME.fullmatch(leaf) else leaf))


def _in_oslo(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone(timezone(timedelta(hours=2))).isoformat()


#: Every member that a request may have.
_KNOWN = {"jsonrpc", "method", "params", "text", "raw", "url", "data", "file"} | {
    _camel(field.name)
    for cls in vars(types).values()
    if isinstance(cls, type) and is_dataclass(cls)
    for field in fields(cls)
}


def _strictly(members: dict[str, Any]) -> dict[str, Any]:
    """A reader that minds unknown members: it is made to read something that it cannot."""
    unknown = {name for name in members if name not in _KNOWN and "_" not in name}
    return {"jsonrpc": "2.0", "id": "c-1", "method": "nothing"} if unknown else members


def _states(members: dict[str, Any]) -> dict[str, Any]:
    state = members.get("state")
    return {**members, "state": state.removeprefix("TASK_STATE_").lower()} if isinstance(state, str) else members


def _parts(change: Any) -> Any:
    def within(members: dict[str, Any]) -> dict[str, Any]:
        parts = members.get("parts")
        return {**members, "parts": [change(part) for part in parts]} if isinstance(parts, list) else members

    return deep(within)


def _late(app: A2AApp) -> Any:
    """A task is begun before the request is looked at."""

    def change(answer: Answer) -> None:
        if answer.environ["REQUEST_METHOD"] == "POST" and answer.error is not None:
            message = Message(role=Role.USER, parts=(TextPart("echo"),), message_id=types.new_id())
            app.endpoint()(Call(operations.SEND_MESSAGE, types.SendMessageRequest(message=message)))

    return answering(change)(app)


def _without_violations(answer: Answer) -> None:
    value = answer.value
    if answer.error is None:
        return
    for name in ("data", "details"):
        if name in value["error"]:
            value["error"][name] = [one for one in value["error"][name] if "fieldViolations" not in one]
    answer.value = value


def _any_length(request: Any) -> Any:
    if getattr(request, "history_length", None) is not None and request.history_length < 0:
        return replace(request, history_length=None)
    configuration = getattr(request, "configuration", None)
    return replace(request, configuration=_any_length(configuration)) if configuration is not None else request


def _boundless(agent: Any, **options: Any) -> A2AApp:
    return A2AApp(agent, **{**options, "limits": replace(options["limits"], max_body_bytes=10**9)})


BROKEN: dict[str, Variant] = {
    "snake case": Variant(
        "V1-ENC-01",
        "members have the names of the proto: `context_id`",
        wsgi=changing_json(deep(lambda members: {snake(name): value for name, value in members.items()})),
    ),
    "states of 0.3": Variant(
        "V1-ENC-02", "states are `completed`, not `TASK_STATE_COMPLETED`", wsgi=changing_json(deep(_states))
    ),
    "zero offset": Variant(
        "V1-ENC-03", "timestamps end with `+00:00` instead of `Z`", wsgi=_times(lambda text: text[:-1] + "+00:00")
    ),
    "whole seconds": Variant(
        "V1-ENC-04", "timestamps have no fraction", wsgi=_times(lambda text: re.sub(r"\.\d+Z", "Z", text))
    ),
    "local times": Variant("V1-ENC-05", "timestamps are in the server's time zone", wsgi=_times(_in_oslo)),
    "kind in parts": Variant(
        "V1-ENC-06",
        "parts have a `kind`, as in 0.3",
        wsgi=changing_json(_parts(lambda part: {"kind": "text", **part})),
    ),
    "two contents": Variant(
        "V1-ENC-06",
        "parts have every content, most of them empty",
        wsgi=changing_json(_parts(lambda part: {"url": "", **part})),
    ),
    "bytes for URLs": Variant(
        "V1-ENC-07",
        "bytes are written as URL-safe base64 without padding",
        wsgi=changing_json(
            _parts(
                lambda part: (
                    {**part, "raw": part["raw"].translate(str.maketrans("+/", "-_")).rstrip("=")}
                    if "raw" in part
                    else part
                )
            )
        ),
    ),
    "camel case only": Variant(
        "V1-ENC-08",
        "snake_case names in requests are ignored",
        wsgi=asking_with(deep(lambda members: {name: value for name, value in members.items() if "_" not in name})),
    ),
    "null is a value": Variant(
        "V1-ENC-09",
        "null is refused as a wrong type",
        wsgi=asking_with(leaves(lambda leaf: [] if leaf is None else leaf)),
    ),
    "no null in data": Variant(
        "V1-ENC-10",
        "a data part with null is returned as an empty object",
        wsgi=changing_json(_parts(lambda part: {**part, "data": {}} if part.get("data", 0) is None else part)),
    ),
    "objects only": Variant(
        "V1-ENC-11",
        "data that is not an object is wrapped in one",
        wsgi=changing_json(
            _parts(
                lambda part: (
                    {**part, "data": {"value": part["data"]}}
                    if isinstance(part.get("data"), (int, float, str, list))
                    else part
                )
            )
        ),
    ),
    "names of enums only": Variant(
        "V1-ENC-12",
        "enum numbers are refused",
        wsgi=in_parameters("role", lambda role: str(role)),
    ),
    "one alphabet": Variant(
        "V1-ENC-13",
        "URL-safe base64 is refused",
        wsgi=in_parameters("raw", lambda raw: "?" if set("-_") & set(raw) else raw),
    ),
    "padding required": Variant(
        "V1-ENC-13",
        "unpadded base64 is refused",
        wsgi=in_parameters("raw", lambda raw: raw if len(raw) % 4 == 0 else "?"),
    ),
    "offset ignored": Variant(
        "V1-ENC-14",
        "the offset of a timestamp is ignored",
        wsgi=in_parameters("statusTimestampAfter", lambda text: re.sub(r"[+-]\d\d:\d\d$", "Z", text)),
    ),
    "rounded": Variant(
        "V1-ENC-15",
        "a fractional number is truncated to an integer",
        wsgi=in_parameters(
            "historyLength", lambda value: re.sub(r"\..*", "", value) if isinstance(value, str) else int(value)
        ),
    ),
    "no numbers in texts": Variant(
        "V1-ENC-15",
        "an integer in a string is refused",
        wsgi=asking_with(
            deep(
                lambda members: {
                    n: [] if n == "historyLength" and isinstance(v, str) else v for n, v in members.items()
                }
            )
        ),
    ),
    "strict": Variant("V1-ENC-16", "a request with an unknown member is refused", wsgi=asking_with(deep(_strictly))),
    "nulls": Variant(
        "V1-ENC-17",
        "members of a task that are not set are null",
        wsgi=changing_json(deep(lambda members: {"metadata": None, **members} if "status" in members else members)),
    ),
    "no astral planes": Variant(
        "V1-ENC-18",
        "characters outside of the basic plane become question marks",
        wsgi=changing_json(
            leaves(lambda leaf: re.sub("[\U00010000-\U0010ffff]", "?", leaf) if isinstance(leaf, str) else leaf)
        ),
    ),
    "composed": Variant(
        "V1-ENC-18",
        "combining marks are dropped",
        wsgi=changing_json(leaves(lambda leaf: re.sub("[\u0300-\u036f]", "", leaf) if isinstance(leaf, str) else leaf)),
    ),
    "no message": Variant(
        "V1-VAL-01",
        "a send without a message is treated as an empty message",
        wsgi=asking_with(
            deep(
                lambda members: (
                    {
                        **members,
                        "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo"}]}},
                    }
                    if members.get("method") == "SendMessage" and not members.get("params")
                    else members
                )
            )
        ),
    ),
    "message ids made up": Variant(
        "V1-VAL-02",
        "a message without an id is accepted",
        wsgi=asking_with(
            deep(
                lambda members: (
                    {**members, "messageId": members.get("messageId") or "m-1"} if "parts" in members else members
                )
            )
        ),
    ),
    "role by default": Variant(
        "V1-VAL-03",
        "a message without a role is accepted as the user's",
        wsgi=asking_with(deep(lambda members: {"role": "ROLE_USER", **members} if "parts" in members else members)),
    ),
    "unspecified role": Variant(
        "V1-VAL-03",
        "`ROLE_UNSPECIFIED` is accepted as the user's",
        wsgi=in_parameters("role", lambda role: "ROLE_USER" if role == "ROLE_UNSPECIFIED" else role),
    ),
    "no parts": Variant(
        "V1-VAL-04",
        "a message without parts is accepted",
        wsgi=in_parameters("parts", lambda parts: parts or [{"text": "echo"}]),
    ),
    "first content": Variant(
        "V1-VAL-05",
        "the first of two contents of a part is used",
        wsgi=asking_with(_parts(lambda part: {"text": part["text"]} if "text" in part else part)),
    ),
    "everything a text": Variant(
        "V1-VAL-06",
        "an id of another type is converted to a string",
        wsgi=in_parameters("id", lambda id: id if isinstance(id, (str, int)) else str(id)),
    ),
    "looked at too late": Variant("V1-VAL-07", "an invalid send leaves a task behind", wsgi=_late),
    "members not named": Variant("V1-VAL-08", "errors do not name the member", wsgi=answering(_without_violations)),
    "unknown state": Variant(
        "V1-VAL-09",
        "an unknown state is ignored as a filter",
        wsgi=in_parameters(
            "status",
            lambda state: state if str(state).removeprefix("TASK_STATE_") in types.TaskState.__members__ else None,
        ),
    ),
    "any length": Variant(
        "V1-VAL-10",
        "a negative history length selects all of it",
        app=with_requests(_any_length, operations.SEND_MESSAGE, operations.GET_TASK, operations.LIST_TASKS),
    ),
    "events without context": Variant(
        "V1-VAL-11",
        "status events have no context id",
        wsgi=changing_json(
            deep(
                lambda members: (
                    {n: v for n, v in members.items() if n != "contextId"}
                    if {"taskId", "status"} <= members.keys()
                    else members
                )
            )
        ),
    ),
    "artifacts without id": Variant(
        "V1-VAL-11",
        "artifacts have no id",
        wsgi=changing_json(deep(lambda members: {n: v for n, v in members.items() if n != "artifactId"})),
    ),
    "boundless": Variant("V1-VAL-12", "a body may be of any size", app=_boundless),
    "empty parts": Variant(
        "V1-VAL-13",
        "a part without content is an empty text",
        wsgi=asking_with(_parts(lambda part: part or {"text": ""})),
    ),
}
