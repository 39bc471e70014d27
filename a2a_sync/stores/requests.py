"""The stored form of a `RunRequest`, in the JSON of protocol 1.0, from which any worker can resume a run.

The webhook of a send is omitted: it contains credentials, which must not be stored here, and no run needs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from a2a_sync.codec import by_version
from a2a_sync.operations import Principal, RunRequest
from a2a_sync.types import Message, SendMessageConfiguration

_CODEC = by_version("1.0")


def dump(request: RunRequest, *, message: bool = True) -> dict[str, Any]:
    """`request` as JSON; with ``message=False`` the message is omitted, because the log has it."""
    value: dict[str, Any] = {}
    if message:
        value["message"] = _CODEC.dump(request.message)
    if request.configuration is not None:
        value["configuration"] = _CODEC.dump(replace(request.configuration, task_push_notification_config=None))
    if request.principal is not None:
        value["principal"] = {
            "id": request.principal.id,
            "scopes": list(request.principal.scopes),
            "claims": dict(request.principal.claims),
        }
    for name in ("metadata", "extensions", "trace", "headers"):
        if getattr(request, name):
            value[name] = dict(getattr(request, name))
    if request.tenant:
        value["tenant"] = request.tenant
    if request.attempt > 1:
        value["attempt"] = request.attempt
    return value


def load(value: dict[str, Any], message: Message | None = None) -> RunRequest:
    """The request that `dump` wrote; `message` is the omitted message."""
    configuration, principal = value.get("configuration"), value.get("principal")
    return RunRequest(
        message=message or _CODEC.load(Message, value["message"], strict=False),
        configuration=None
        if configuration is None
        else _CODEC.load(SendMessageConfiguration, configuration, strict=False),
        principal=None
        if principal is None
        else Principal(id=principal["id"], scopes=tuple(principal["scopes"]), claims=principal["claims"]),
        metadata=value.get("metadata", {}),
        tenant=value.get("tenant", ""),
        extensions=value.get("extensions", {}),
        trace=value.get("trace", {}),
        headers=value.get("headers", {}),
        attempt=value.get("attempt", 1),
    )
