"""Messages, tasks and events of 0.3, where objects name their ``kind``."""

from __future__ import annotations

from typing import Any

from a2a_sync import types as t
from a2a_sync.codec.fields import FLAG, INT32, MOMENT, TEXT, Scalar, many, names
from a2a_sync.codec.records import Member, Record, Tagged, Variants, optional, required
from a2a_sync.codec.v03.parts import METADATA, PARTS
from a2a_sync.lifecycle import ends_run

_S = t.TaskState

TASK_STATE = names(
    {
        _S.SUBMITTED: "submitted",
        _S.WORKING: "working",
        _S.INPUT_REQUIRED: "input-required",
        _S.COMPLETED: "completed",
        _S.CANCELED: "canceled",
        _S.FAILED: "failed",
        _S.REJECTED: "rejected",
        _S.AUTH_REQUIRED: "auth-required",
        _S.UNSPECIFIED: "unknown",
    },
    _S.UNSPECIFIED,
    numbered=False,
    unsaid="unknown",
)
ROLE = names({t.Role.USER: "user", t.Role.AGENT: "agent"}, t.Role.UNSPECIFIED, numbered=False, unsaid="agent")
TEXTS = many(TEXT)
EXTENSIONS = Member("extensions", TEXTS)
# 0 is "all" in 0.3, as is nothing at all.
HISTORY_LENGTH = optional("history_length", Scalar(lambda value, strict: INT32.load(value, strict) or None))

# -- tasks and messages -------------------------------------------------------------------------------------------------

MESSAGE = Tagged(
    "kind",
    "message",
    t.Message,
    required("message_id", TEXT),
    required("role", ROLE),
    required("parts", PARTS),
    Member("context_id", TEXT),
    Member("task_id", TEXT),
    METADATA,
    EXTENSIONS,
    Member("reference_task_ids", TEXTS),
)
ARTIFACT = Record(
    t.Artifact,
    required("artifact_id", TEXT),
    Member("name", TEXT),
    Member("description", TEXT),
    required("parts", PARTS),
    METADATA,
    EXTENSIONS,
)
TASK_STATUS = Record(
    t.TaskStatus, required("state", TASK_STATE), Member("message", MESSAGE), Member("timestamp", MOMENT)
)
TASK = Tagged(
    "kind",
    "task",
    t.Task,
    required("id", TEXT),
    required("context_id", TEXT),
    required("status", TASK_STATUS),
    Member("artifacts", many(ARTIFACT)),
    Member("history", many(MESSAGE)),
    METADATA,
)

#: Read where it is a flag; anything else is no reason to refuse the event.
FINAL = optional("final", Scalar(lambda value, strict: value if isinstance(value, bool) else None))

# -- events -------------------------------------------------------------------------------------------------------------


class _StatusUpdate(Tagged):
    def dump(self, obj: Any) -> dict[str, Any]:
        return {**super().dump(obj), "final": ends_run(obj)}


STATUS_UPDATE = _StatusUpdate(
    "kind",
    "status-update",
    t.TaskStatusUpdateEvent,
    required("task_id", TEXT),
    required("context_id", TEXT),
    required("status", TASK_STATUS),
    METADATA,
    FINAL,
)
ARTIFACT_UPDATE = Tagged(
    "kind",
    "artifact-update",
    t.TaskArtifactUpdateEvent,
    required("task_id", TEXT),
    required("context_id", TEXT),
    required("artifact", ARTIFACT),
    Member("append", FLAG),
    Member("last_chunk", FLAG),
    METADATA,
)
_MARKS = {"messageId": "message", "artifact": "artifact-update", "taskId": "status-update", "id": "task"}
SEND_MESSAGE_RESPONSE = Variants("kind", TASK, MESSAGE, marks=_MARKS)
STREAM_RESPONSE = Variants("kind", TASK, MESSAGE, STATUS_UPDATE, ARTIFACT_UPDATE, marks=_MARKS)
RECORDS = (MESSAGE, ARTIFACT, TASK_STATUS, TASK, STATUS_UPDATE, ARTIFACT_UPDATE)
