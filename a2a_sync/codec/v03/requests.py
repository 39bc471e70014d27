"""Webhooks and requests of 0.3 in the dialect of JSON-RPC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from a2a_sync import types as t
from a2a_sync.codec.fields import FLAG, STRUCT, TEXT, Invalid, Scalar, many
from a2a_sync.codec.members import METADATA, TEXTS, send_request
from a2a_sync.codec.records import Member, Record, load_member, required
from a2a_sync.codec.v03.tasks import HISTORY_LENGTH, MESSAGE

# -- push configuration -------------------------------------------------------------------------------------------------


def _load_first(value: Any, strict: bool) -> str:
    schemes = TEXTS.load(value, strict)
    return schemes[0] if schemes else ""


class _AuthenticationInfo(Record):
    """Schemes are a list in 0.3: the first is the one in use."""

    def load(self, value: Any, strict: bool) -> Any:
        info = super().load(value, strict)
        others = TEXTS.load(value.get("schemes") or [], strict)[1:]
        return replace(info, other_schemes=others) if others else info

    def dump(self, obj: Any) -> dict[str, Any]:
        written = super().dump(obj)
        if obj.other_schemes:
            written["schemes"] = [*written["schemes"], *obj.other_schemes]
        return written


AUTHENTICATION_INFO = _AuthenticationInfo(
    t.AuthenticationInfo,
    required("scheme", Scalar(_load_first, lambda scheme: [scheme], empty=""), "schemes"),
    Member("credentials", TEXT),
)


def _load_authentication(value: Any, strict: bool) -> Any:
    # Some clients of HTTP+JSON write an empty object for no authentication.
    return None if value == {} else AUTHENTICATION_INFO.load(value, strict)


WEBHOOK = Record(
    t.TaskPushNotificationConfig,
    Member("id", TEXT),
    required("url", TEXT),
    Member("token", TEXT),
    Member("authentication", Scalar(_load_authentication, AUTHENTICATION_INFO.dump)),
)
_TASK_OF_WEBHOOK = Record(t.TaskPushNotificationConfig, required("task_id", TEXT), METADATA)


def _load_push_config(value: Any, strict: bool) -> t.TaskPushNotificationConfig:
    value = STRUCT.load(value, strict)
    found = _TASK_OF_WEBHOOK.found(value, strict)
    task_id = found.get("task_id", "")
    if strict and not task_id:
        raise Invalid("is required", "taskId")
    config = load_member(value, "pushNotificationConfig", WEBHOOK, strict) or t.TaskPushNotificationConfig(url="")
    # Servers of 0.3 keep one webhook per task for clients that give it no id: setting it twice replaces it.
    own_id = config.id or (task_id if strict else "")
    return replace(config, task_id=task_id, id=own_id, metadata=found.get("metadata", {}))


def _dump_push_config(config: t.TaskPushNotificationConfig) -> dict[str, Any]:
    written: dict[str, Any] = {"taskId": config.task_id, "pushNotificationConfig": WEBHOOK.dump(config)}
    if config.metadata:
        written["metadata"] = config.metadata
    return written


PUSH_CONFIG = Scalar(_load_push_config, _dump_push_config)


_CONFIG_LIST = many(PUSH_CONFIG)
PUSH_CONFIGS = Scalar(
    lambda value, strict: t.ListTaskPushNotificationConfigsResponse(configs=_CONFIG_LIST.load(value, strict)),
    lambda response: [_dump_push_config(config) for config in response.configs],
)


# -- requests -----------------------------------------------------------------------------------------------------------

# Always written, because servers of 0.3 have different defaults.
BLOCKING = Member(
    "return_immediately",
    Scalar(lambda value, strict: not FLAG.load(value, strict), lambda at_once: not at_once, empty=False),
    "blocking",
    always=True,
)
SEND_MESSAGE_CONFIGURATION = Record(
    t.SendMessageConfiguration,
    Member("accepted_output_modes", TEXTS),
    Member("task_push_notification_config", WEBHOOK, "pushNotificationConfig"),
    HISTORY_LENGTH,
    BLOCKING,
)


class SendRequest(Record):
    """The kind of a send, whose configuration is always written."""

    def dump(self, obj: Any) -> dict[str, Any]:
        if obj.configuration is None:
            obj = replace(obj, configuration=t.SendMessageConfiguration())
        return super().dump(obj)


SEND_MESSAGE_REQUEST = SendRequest(t.SendMessageRequest, *send_request(MESSAGE, SEND_MESSAGE_CONFIGURATION))

RECORDS = (AUTHENTICATION_INFO, SEND_MESSAGE_CONFIGURATION, SEND_MESSAGE_REQUEST)
