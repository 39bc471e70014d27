"""Protocol 0.3 in JSON, in the objects of 1.0: its names, its members, its methods (A2A 0.3.0, types.ts).

This is the dialect of JSON-RPC, of cards and of webhooks, in which objects have a ``kind``; the dialect of HTTP+JSON is
in `http`. Information that only one of the versions can represent is omitted silently; docs/explanation/versions.md
lists it. Redundant members (``kind``, ``final``) are always written, and mostly ignored when read, because peers are
careless with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from a2a_sync import operations as op
from a2a_sync import types as t
from a2a_sync.codec.base import Codec
from a2a_sync.codec.fields import TEXT, Kind
from a2a_sync.codec.members import METADATA
from a2a_sync.codec.records import Member, Record, required
from a2a_sync.codec.v03 import cards, requests, tasks
from a2a_sync.codec.v03.parts import PART
from a2a_sync.errors import AgentError, ExtensionSupportRequiredError, UnsupportedOperationError
from a2a_sync.jsontext import MAX_EVENT_DEPTH, dumps
from a2a_sync.operations import StreamItem

_TASK_ID = required("task_id", TEXT, "id")
_CONFIG_ID = "pushNotificationConfigId"
_RECORDS = (
    *tasks.RECORDS,
    *requests.RECORDS,
    Record(t.GetTaskRequest, required("id", TEXT), tasks.HISTORY_LENGTH),
    Record(t.CancelTaskRequest, required("id", TEXT), METADATA),
    Record(t.SubscribeToTaskRequest, required("id", TEXT)),
    # Without a configuration id, as old clients send it, the request is for the first one of the task.
    Record(t.GetTaskPushNotificationConfigRequest, _TASK_ID, Member("id", TEXT, _CONFIG_ID)),
    Record(t.ListTaskPushNotificationConfigsRequest, _TASK_ID),
    Record(t.DeleteTaskPushNotificationConfigRequest, _TASK_ID, required("id", TEXT, _CONFIG_ID)),
    Record(t.GetExtendedAgentCardRequest),
)
#: The kind of each type of the model; only `http` has ListTasks.
KINDS: Mapping[Any, Kind] = {
    **{record.cls: record for record in _RECORDS},
    **dict.fromkeys((t.Part, t.TextPart, t.FilePart, t.DataPart), PART),
    **cards.KINDS,
    t.SendMessageResponse: tasks.SEND_MESSAGE_RESPONSE,
    t.StreamResponse: tasks.STREAM_RESPONSE,
    t.TaskPushNotificationConfig: requests.PUSH_CONFIG,
    t.ListTaskPushNotificationConfigsResponse: requests.PUSH_CONFIGS,
}
METHODS: dict[op.AnyOperation, str] = {
    op.SEND_MESSAGE: "message/send",
    op.SEND_STREAMING_MESSAGE: "message/stream",
    op.GET_TASK: "tasks/get",
    op.CANCEL_TASK: "tasks/cancel",
    op.SUBSCRIBE_TO_TASK: "tasks/resubscribe",
    op.CREATE_PUSH_CONFIG: "tasks/pushNotificationConfig/set",
    op.GET_PUSH_CONFIG: "tasks/pushNotificationConfig/get",
    op.LIST_PUSH_CONFIGS: "tasks/pushNotificationConfig/list",
    op.DELETE_PUSH_CONFIG: "tasks/pushNotificationConfig/delete",
    op.GET_EXTENDED_CARD: "agent/getAuthenticatedExtendedCard",
}


class V03Codec(Codec):
    """The common part of the dialects of 0.3; see `Codec`."""

    def dump_error(self, error: AgentError) -> dict[str, Any]:
        written = super().dump_error(error)
        if isinstance(error, ExtensionSupportRequiredError):
            # 0.3 has no code for this error; the details still identify it.
            written["code"] = UnsupportedOperationError.jsonrpc_code
        return written


class _KindCodec(V03Codec):
    """The codec of the dialect whose objects have a ``kind``."""

    def encode_end(self, item: StreamItem) -> bytes | None:
        return dumps({**self.dump_event(item.event), "final": True}, max_depth=MAX_EVENT_DEPTH)

    def ends_stream(self, value: Any) -> bool:
        return isinstance(value, dict) and value.get("final") is True


CODEC = _KindCodec("0.3", KINDS, METHODS)
