"""Objects as they are after a conversion to protocol 0.3 and back: members that 0.3 does not have are lost."""

from __future__ import annotations

import dataclasses
from typing import Any

from a2a_sync import card as c
from a2a_sync import types as t


def after_v03(value: Any, *, proto: bool = False) -> Any:
    """`value` after the conversion; with `proto`, to the HTTP+JSON dialect."""
    if isinstance(value, tuple):
        return tuple(after_v03(item, proto=proto) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    members = {f.name: after_v03(getattr(value, f.name), proto=proto) for f in dataclasses.fields(value)}
    value = dataclasses.replace(value, **members)
    return dataclasses.replace(value, **_lost(value), **(_lost_in_proto(value) if proto else _kept_in_proto(value)))


def _lost(value: Any) -> dict[str, Any]:
    match value:
        case t.TextPart() | t.DataPart():
            return {"media_type": "", "filename": ""}
        case t.SendMessageRequest():
            return {"tenant": "", "configuration": value.configuration or t.SendMessageConfiguration()}
        case t.SendMessageConfiguration(task_push_notification_config=None):
            return {"history_length": value.history_length or None}
        case t.SendMessageConfiguration(task_push_notification_config=hook):
            hook = dataclasses.replace(hook, task_id="")
            return {"history_length": value.history_length or None, "task_push_notification_config": hook}
        case t.GetTaskRequest():
            return {"tenant": "", "history_length": value.history_length or None}
        case c.AgentInterface():
            return {"tenant": "", "protocol_version": "0.3"}
        case c.AuthorizationCodeOAuthFlow():
            return {"pkce_required": False}
        case c.AgentCapabilities():
            return {"extended_agent_card": None}
        case _ if hasattr(value, "tenant"):
            return {"tenant": ""}
    return {}


def _lost_in_proto(value: Any) -> dict[str, Any]:
    match value:
        case t.Message():
            return {"reference_task_ids": ()}
        case t.CancelTaskRequest():
            return {"metadata": {}}
    return {}


def _kept_in_proto(value: Any) -> dict[str, Any]:
    match value:
        case t.ListTaskPushNotificationConfigsRequest():
            return {"page_size": 0, "page_token": ""}
        case t.ListTaskPushNotificationConfigsResponse():
            return {"next_page_token": ""}
    return {}


def has_compat_wrapper(value: Any) -> bool:
    """Whether a data part has the wrapper that marks data converted for 0.3."""
    return "data_part_compat" in repr(value)
