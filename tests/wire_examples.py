"""The wire examples in ``tests/spec``, and their comparison by the rules of the JSON mapping (spec 5.5, 5.6)."""

from __future__ import annotations

import binascii
import json
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from a2a_sync import card, types

SPEC = Path(__file__).parent / "spec"
#: The protocol's names for this library's unions.
UNIONS = {
    "Part": types.Part,
    "SendMessageResponse": types.SendMessageResponse,
    "StreamResponse": types.StreamResponse,
    "SecurityScheme": card.SecurityScheme,
    "OAuthFlows": card.OAuthFlow,
}
_FREE = {"data", "metadata", "params", "header"}
_MOMENTS = {"timestamp", "statusTimestampAfter"}
#: Members for which an empty value differs from an absent one.
_EMPTY_IS_SIGNIFICANT = {"text", "url", "uri", "raw", "bytes", "historyLength", "final", "blocking"}


class Example(NamedTuple):
    """A payload: its file, the protocol's name of its type, and the JSON."""

    name: str
    type: str
    value: Any


def entries(*shapes: str, version: str = "1.0") -> list[dict[str, Any]]:
    """The manifest's rows with one of these shapes, of one protocol version."""
    manifest = json.loads((SPEC / "manifest.json").read_text())
    return [entry for entry in manifest if entry["version"] == version and entry["shape"] in shapes]


def content(entry: dict[str, Any]) -> Any:
    """The document that a row refers to."""
    return json.loads((SPEC / entry["file"]).read_text())


def type_named(name: str) -> Any:
    """The class or union with this protocol name."""
    return UNIONS.get(name) or getattr(types, name, None) or getattr(card, name)


def payloads() -> list[Example]:
    """All payloads of the 1.0 model, bare or extracted from their envelope."""
    found = [
        Example(entry["file"], entry["type"], content(entry))
        for entry in entries("message")
        if not entry["type"].startswith("google.")
    ]
    for entry in entries("jsonrpc-request", "jsonrpc-response"):
        if entry["payload"] and entry["type"] != "null":
            found += [Example(entry["file"], entry["type"], content(entry)[entry["payload"]])]
    for entry in entries("jsonrpc-response-list", "jsonrpc-mixed-list"):
        results = [frame["result"] for frame in content(entry) if "result" in frame]
        found += [Example(f"{entry['file']}[{index}]", entry["type"], result) for index, result in enumerate(results)]
    for entry in entries("push-delivery"):
        found += [Example(entry["file"], entry["type"], content(entry)["request"]["body"])]
    return found


#: The model's types by their names in the 0.3 schema.
V03_TYPES: dict[str, Any] = {
    **dict.fromkeys(("TextPart", "FilePart", "DataPart"), types.Part),
    **dict.fromkeys(
        (
            "APIKeySecurityScheme",
            "HTTPAuthSecurityScheme",
            "OAuth2SecurityScheme",
            "OpenIdConnectSecurityScheme",
            "MutualTLSSecurityScheme",
        ),
        card.SecurityScheme,
    ),
    "PushNotificationAuthenticationInfo": types.AuthenticationInfo,
    "MessageSendConfiguration": types.SendMessageConfiguration,
    "MessageSendParams": types.SendMessageRequest,
    "TaskQueryParams": types.GetTaskRequest,
    "TaskIdParams": types.CancelTaskRequest,
    "GetTaskPushNotificationConfigParams": types.GetTaskPushNotificationConfigRequest,
    "ListTaskPushNotificationConfigParams": types.ListTaskPushNotificationConfigsRequest,
    "DeleteTaskPushNotificationConfigParams": types.DeleteTaskPushNotificationConfigRequest,
}
#: The operations by their names in the requests and responses of the 0.3 schema.
V03_OPERATIONS = {
    "SendMessage": "SendMessage",
    "SendStreamingMessage": "SendStreamingMessage",
    "GetTask": "GetTask",
    "CancelTask": "CancelTask",
    "TaskResubscription": "SubscribeToTask",
    "SetTaskPushNotificationConfig": "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig": "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfig": "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig": "DeleteTaskPushNotificationConfig",
    "GetAuthenticatedExtendedCard": "GetExtendedAgentCard",
}


def v03_objects() -> list[tuple[str, Any, Any]]:
    """All bare objects of 0.3: file, class of the model, JSON."""
    found = []
    for entry in entries("schema", version="0.3"):
        value = content(entry)
        if "jsonrpc" in value:
            continue
        if entry["type"] == "PushNotificationConfig":
            # Has no class of its own: it is part of a configuration.
            found.append((entry["file"], types.SendMessageConfiguration, {"pushNotificationConfig": value}))
        else:
            name = entry["type"]
            found.append((entry["file"], V03_TYPES.get(name) or type_named(name), value))
    deliveries = entries("push-delivery", version="0.3")
    return found + [(entry["file"], types.Task, content(entry)["request"]["body"]) for entry in deliveries]


def v03_calls(end: str) -> list[tuple[str, str, Any]]:
    """All requests (`end` is ``Request``) or responses (``SuccessResponse``): file, name of the operation, JSON."""
    found = []
    for entry in entries("schema", "schema-list", version="0.3"):
        name = V03_OPERATIONS.get(entry["type"].removesuffix(end)) if entry["type"].endswith(end) else None
        if name:
            value = content(entry)
            found += [(entry["file"], name, one) for one in (value if isinstance(value, list) else [value])]
    return found


def canonical(value: Any, key: str = "") -> Any:
    """A form that is equal for equivalent documents: defaults dropped, timestamps and bytes decoded, numbers as in Python."""
    if key in _FREE:
        return value
    if key in _MOMENTS:
        return datetime.fromisoformat(value)
    if key in ("raw", "bytes"):
        return binascii.a2b_base64(value)
    if isinstance(value, dict):
        members = {name: canonical(item, name) for name, item in value.items()}
        return {
            name: item for name, item in members.items() if name in _EMPTY_IS_SIGNIFICANT or item not in ("", [], 0)
        }
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return value
