"""Messages, tasks and events of 0.3, where objects name their ``kind``."""

from __future__ import annotations

from typing import Any

from a2a_sync import types as t
from a2a_sync.codec import members as m
from a2a_sync.codec.fields import INT32, TEXT, Scalar, names
from a2a_sync.codec.records import Record, Tagged, Variants, optional, required
from a2a_sync.codec.v03.parts import PARTS
from a2a_sync.lifecycle import ends_run

TASK_STATE = names(
    {**{state: state.value for state in t.TaskState}, t.TaskState.UNSPECIFIED: "unknown"},
    t.TaskState.UNSPECIFIED,
    numbered=False,
    unspecified_name="unknown",
)
ROLE = names({t.Role.USER: "user", t.Role.AGENT: "agent"}, t.Role.UNSPECIFIED, numbered=False, unspecified_name="agent")
# 0 is "all" in 0.3, as is nothing at all.
HISTORY_LENGTH = optional("history_length", Scalar(lambda value, strict: INT32.load(value, strict) or None))

# -- tasks and messages -------------------------------------------------------------------------------------------------

MESSAGE = Tagged("kind", "message", t.Message, *m.message(ROLE, PARTS, m.TEXTS))
ARTIFACT = Record(t.Artifact, *m.artifact(PARTS))
TASK_STATUS = Record(t.TaskStatus, *m.status(TASK_STATE, MESSAGE))
TASK = Tagged("kind", "task", t.Task, *m.task(TASK_STATUS, ARTIFACT, MESSAGE, required("context_id", TEXT)))

#: Read if it is a boolean; other values are ignored, so that the event is not refused.
FINAL = optional("final", Scalar(lambda value, strict: value if isinstance(value, bool) else None))

# -- events -------------------------------------------------------------------------------------------------------------


class _StatusUpdate(Tagged):
    def dump(self, obj: Any) -> dict[str, Any]:
        return {**super().dump(obj), "final": ends_run(obj)}


STATUS_UPDATE = _StatusUpdate("kind", "status-update", t.TaskStatusUpdateEvent, *m.status_update(TASK_STATUS), FINAL)
ARTIFACT_UPDATE = Tagged("kind", "artifact-update", t.TaskArtifactUpdateEvent, *m.artifact_update(ARTIFACT))
_MARKER_MEMBERS = {"messageId": "message", "artifact": "artifact-update", "taskId": "status-update", "id": "task"}
SEND_MESSAGE_RESPONSE = Variants("kind", TASK, MESSAGE, marks=_MARKER_MEMBERS)
STREAM_RESPONSE = Variants("kind", TASK, MESSAGE, STATUS_UPDATE, ARTIFACT_UPDATE, marks=_MARKER_MEMBERS)
RECORDS = (MESSAGE, ARTIFACT, TASK_STATUS, TASK, STATUS_UPDATE, ARTIFACT_UPDATE)
