"""Protocol 0.3 over HTTP+JSON: the JSON of its proto, which all clients and servers of that binding use (proto 0.3).

The names of states and roles, of the content of messages and of the content of files differ from the dialect of
JSON-RPC, and objects have no ``kind``. The specification also shows the other dialect for this binding, so it is
accepted when reading. A configuration without ``blocking`` does not block, because a member absent from proto JSON is
false; official clients omit it.

Official readers refuse unknown members. Except in cards, only members of the proto are therefore written: it has no
``referenceTaskIds``, and a cancel has no metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from a2a_sync import card as c
from a2a_sync import operations as op
from a2a_sync import types as t
from a2a_sync.codec import members as m
from a2a_sync.codec import v10
from a2a_sync.codec.fields import MOMENT, STRUCT, TEXT, Kind, Scalar, many, names
from a2a_sync.codec.records import Member, OneOf, Record, load_member, required
from a2a_sync.codec.v03 import KINDS as JSONRPC_KINDS
from a2a_sync.codec.v03 import METHODS as JSONRPC_METHODS
from a2a_sync.codec.v03 import V03Codec, cards, requests, tasks
from a2a_sync.codec.v03.parts import DATA, File, Parts
from a2a_sync.codec.v03.tasks import FINAL, HISTORY_LENGTH
from a2a_sync.jsontext import MAX_EVENT_DEPTH, dumps
from a2a_sync.lifecycle import ends_run
from a2a_sync.operations import StreamItem

# The second L was lost with 1.0.
TASK_STATE = names(
    {**v10.STATE_NAMES, t.TaskState.CANCELED: "TASK_STATE_CANCELLED"},
    t.TaskState.UNSPECIFIED,
    aliases={"TASK_STATE_CANCELED": t.TaskState.CANCELED},
)
ROLE = names(v10.ROLE_NAMES, t.Role.UNSPECIFIED, unspecified_name="ROLE_AGENT")


def _read_only(kind: Kind) -> Scalar:
    return Scalar(kind.load, lambda value: None, empty=kind.empty)


# -- parts, messages and tasks ------------------------------------------------------------------------------------------


def _load_data(value: Any, strict: bool) -> Any:
    return load_member(STRUCT.load(value, strict), "data", DATA, strict)


PART = Parts(File("fileWithBytes", "fileWithUri"), Scalar(_load_data, lambda data: {"data": data}), named=False)
PARTS = many(PART)
MESSAGE = Record(t.Message, *m.message(ROLE, PARTS, _read_only(m.TEXTS), "content"))
ARTIFACT = Record(t.Artifact, *m.artifact(PARTS))
TASK_STATUS = Record(t.TaskStatus, *m.status(TASK_STATE, MESSAGE, "update"))
TASK = Record(t.Task, *m.task(TASK_STATUS, ARTIFACT, MESSAGE, Member("context_id", TEXT)))

# -- events -------------------------------------------------------------------------------------------------------------


class _StatusUpdate(Record):
    def dump(self, obj: Any) -> dict[str, Any]:
        written = super().dump(obj)
        written.pop("final", None)
        if ends_run(obj):
            written["final"] = True
        return written


STATUS_UPDATE = _StatusUpdate(t.TaskStatusUpdateEvent, *m.status_update(TASK_STATUS), FINAL)
ARTIFACT_UPDATE = Record(t.TaskArtifactUpdateEvent, *m.artifact_update(ARTIFACT))


class _ProtoUnion(OneOf):
    """A union whose members are under their names.

    Some writers use the proto's name for a message, which is accepted.
    """

    def load(self, value: Any, strict: bool) -> Any:
        if isinstance(value, dict) and value.get("msg") is not None and value.get("message") is None:
            value = {**value, "message": value["msg"]}
        return super().load(value, strict)


class _EitherDialect:
    """A kind that is written in this dialect, and read in the other one if the object has a ``kind``."""

    empty = None

    def __init__(self, ours: Record | OneOf, other: Kind) -> None:
        self._ours = ours.load
        self._other = other.load
        self.dump: Final = ours.dump

    def load(self, value: Any, strict: bool) -> Any:
        named = isinstance(value, dict) and isinstance(value.get("kind"), str)
        return self._other(value, strict) if named else self._ours(value, strict)


SEND_MESSAGE_RESPONSE = _EitherDialect(_ProtoUnion(task=TASK, message=MESSAGE), tasks.SEND_MESSAGE_RESPONSE)
STREAM_RESPONSE = _EitherDialect(
    _ProtoUnion(task=TASK, message=MESSAGE, status_update=STATUS_UPDATE, artifact_update=ARTIFACT_UPDATE),
    tasks.STREAM_RESPONSE,
)

# -- webhooks -----------------------------------------------------------------------------------------------------------

_CONFIGS = "/pushNotificationConfigs/"


def _load_push_config(value: Any, strict: bool) -> t.TaskPushNotificationConfig:
    value = STRUCT.load(value, strict)
    name = load_member(value, "name", TEXT, strict) if value.get("name") is not None else ""
    config = _load_webhook(value, strict)
    task_id, _, own_id = name.removeprefix("tasks/").partition(_CONFIGS)
    if config.id and name.endswith(_CONFIGS + config.id):
        task_id = name.removeprefix("tasks/").removesuffix(_CONFIGS + config.id)
    return replace(config, task_id=task_id, id=config.id or own_id)


def _load_webhook(value: dict[str, Any], strict: bool) -> t.TaskPushNotificationConfig:
    name = "push_notification_config" if "push_notification_config" in value else "pushNotificationConfig"
    config: t.TaskPushNotificationConfig | None = load_member(value, name, requests.WEBHOOK, strict)
    return config or t.TaskPushNotificationConfig(url="")


def _dump_push_config(config: t.TaskPushNotificationConfig) -> dict[str, Any]:
    return {
        "name": f"tasks/{config.task_id}{_CONFIGS}{config.id}",
        "pushNotificationConfig": requests.WEBHOOK.dump(config),
    }


PUSH_CONFIG = Scalar(_load_push_config, _dump_push_config)
PUSH_CONFIGS = Record(t.ListTaskPushNotificationConfigsResponse, *m.push_configs(PUSH_CONFIG))


def _load_create(value: Any, strict: bool) -> t.TaskPushNotificationConfig:
    """Load the body of a request that creates a webhook: the proto's whole request, or only its configuration."""
    value = STRUCT.load(value, strict)
    found = _CREATE.found(value, strict)
    config = found.get("config") or _load_push_config(value, strict)
    task_id = load_member(value, "taskId", TEXT, strict)
    # Servers of 0.3 keep one webhook per task for clients that give it no id: setting it twice replaces it.
    return replace(config, task_id=task_id, id=found.get("config_id") or config.id or task_id)


def _dump_create(config: t.TaskPushNotificationConfig) -> dict[str, Any]:
    written = {"taskId": config.task_id, "parent": f"tasks/{config.task_id}", "config": _dump_push_config(config)}
    return {**written, "configId": config.id} if config.id else written


class _Create:
    """The proto's request that creates a webhook. It differs from the created object."""


_CREATE = Record(_Create, Member("config", PUSH_CONFIG), Member("config_id", TEXT))


# -- requests -----------------------------------------------------------------------------------------------------------


class _Configuration(Record):
    def load(self, value: Any, strict: bool) -> Any:
        if isinstance(value, dict) and value.get("blocking") is None:
            value = {**value, "blocking": False}
        return super().load(value, strict)


SEND_MESSAGE_CONFIGURATION = _Configuration(
    t.SendMessageConfiguration,
    Member("accepted_output_modes", m.TEXTS),
    Member("task_push_notification_config", requests.WEBHOOK, "pushNotification"),
    HISTORY_LENGTH,
    requests.BLOCKING,
)


class _SendRequest(requests.SendRequest):
    """A send. If its message is in the other dialect, the whole request is read in that dialect."""

    def load(self, value: Any, strict: bool) -> Any:
        message = value.get("message") if isinstance(value, dict) else None
        if isinstance(message, dict) and ("kind" in message or "parts" in message):
            return requests.SEND_MESSAGE_REQUEST.load(value, strict)
        return super().load(value, strict)


SEND_MESSAGE_REQUEST = _SendRequest(
    t.SendMessageRequest, *m.send_request(MESSAGE, SEND_MESSAGE_CONFIGURATION, "request")
)


class _CancelRequest(Record):
    """A cancel whose body repeats the task name of the path, as in official clients."""

    def dump(self, obj: Any) -> dict[str, Any]:
        return {**super().dump(obj), "name": f"tasks/{obj.id}"}


_RECORDS = (
    MESSAGE,
    ARTIFACT,
    TASK_STATUS,
    STATUS_UPDATE,
    ARTIFACT_UPDATE,
    SEND_MESSAGE_CONFIGURATION,
    SEND_MESSAGE_REQUEST,
    # 0.3 defines the path of a list but not its members. They are those of 1.0, with the tasks and states of this dialect.
    Record(t.ListTasksRequest, *m.task_query(TASK_STATE, MOMENT)),
    Record(t.ListTasksResponse, *m.task_page(TASK)),
    _CancelRequest(t.CancelTaskRequest, required("id", TEXT), Member("metadata", _read_only(STRUCT))),
    Record(t.GetTaskPushNotificationConfigRequest, m.TASK_ID, required("id", TEXT)),
    Record(t.ListTaskPushNotificationConfigsRequest, m.TASK_ID, *m.PAGE),
    Record(t.DeleteTaskPushNotificationConfigRequest, m.TASK_ID, required("id", TEXT)),
    PUSH_CONFIGS,
)
#: Written in both dialects: some clients need the names of the proto, others those of the other dialect.
_SCHEME = Scalar(
    cards.SECURITY_SCHEME.load,
    lambda scheme: {**v10.SECURITY_SCHEME.dump(scheme), **cards.SECURITY_SCHEME.dump(scheme)},
)
#: The kind of each type of the model. Cards are those of the other dialect, except for their schemes.
KINDS: Mapping[Any, Kind] = {
    **JSONRPC_KINDS,
    **{record.cls: record for record in _RECORDS},
    **dict.fromkeys((t.Part, t.TextPart, t.FilePart, t.DataPart), PART),
    c.AgentCard: cards.agent_card(_SCHEME),
    t.Task: _EitherDialect(TASK, tasks.TASK),
    t.SendMessageResponse: SEND_MESSAGE_RESPONSE,
    t.StreamResponse: STREAM_RESPONSE,
    t.TaskPushNotificationConfig: PUSH_CONFIG,
    _Create: Scalar(_load_create, _dump_create),
}


class ProtoCodec(V03Codec):
    """The codec of the proto's JSON. `METHODS` lists the operations of this binding; their names are not sent."""

    def load_request(self, operation: op.AnyOperation, params: Any) -> Any:
        if operation is op.CREATE_PUSH_CONFIG:
            return self.load(_Create, params)
        return super().load_request(operation, params)

    def dump_request(self, operation: op.AnyOperation, request: Any) -> Any:
        return _dump_create(request) if operation is op.CREATE_PUSH_CONFIG else super().dump_request(operation, request)

    def encode_end(self, item: StreamItem) -> bytes | None:
        written = self.dump_event(item.event)
        written["statusUpdate"] = {**written["statusUpdate"], "final": True}
        return dumps(written, max_depth=MAX_EVENT_DEPTH)

    def ends_stream(self, value: Any) -> bool:
        update = value.get("statusUpdate", value) if isinstance(value, dict) else None
        return isinstance(update, dict) and update.get("final") is True


#: HTTP+JSON lists tasks, JSON-RPC does not (0.3: 3.5.6).
METHODS: dict[op.AnyOperation, str] = {**JSONRPC_METHODS, op.LIST_TASKS: "tasks/list"}
CODEC = ProtoCodec("0.3", KINDS, METHODS, dialect="proto")
