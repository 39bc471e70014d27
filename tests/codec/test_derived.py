"""Codecs of later 1.x versions, which derive from that of 1.0."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_sync.codec import by_version, v10
from a2a_sync.errors import InvalidParamsError
from a2a_sync.operations import GET_TASK, SEND_MESSAGE
from a2a_sync.types import (
    Artifact,
    Message,
    Role,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TextPart,
)
from tests.strategies import EVERY_TYPE

MESSAGE = Message(role=Role.USER, parts=(TextPart("hello"),), message_id="m", context_id="c")
TASK = Task(
    id="t",
    context_id="c",
    status=TaskStatus(state=TaskState.INPUT_REQUIRED, message=MESSAGE),
    artifacts=(Artifact(artifact_id="a", parts=(TextPart("x"),)),),
    history=(MESSAGE,),
)
SAME = v10.derive("1.1", {})
NEXT = v10.derive("1.1", {(Message, "message_id"): "id", (Artifact, "artifact_id"): "artifactKey"})


def test_a_renamed_member_is_written_with_its_new_name_wherever_its_object_is() -> None:
    written = NEXT.dump(TASK)
    assert [written["status"]["message"]["id"], written["history"][0]["id"]] == ["m", "m"]
    assert written["artifacts"][0]["artifactKey"] == "a"
    event = TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=TASK.artifacts[0])
    assert NEXT.dump_event(event)["artifactUpdate"]["artifact"]["artifactKey"] == "a"
    assert "messageId" not in str(written)


def test_a_renamed_member_is_read_by_its_new_name_and_not_by_the_old_one() -> None:
    params = NEXT.dump_request(SEND_MESSAGE, SendMessageRequest(message=MESSAGE))
    assert NEXT.load_request(SEND_MESSAGE, params) == SendMessageRequest(message=MESSAGE)
    params["message"]["messageId"] = params["message"].pop("id")
    with pytest.raises(InvalidParamsError, match=r"message\.id: is required"):
        NEXT.load_request(SEND_MESSAGE, params)
    for union, obj in ((SendMessageResponse, TASK), (SendMessageResponse, MESSAGE), (StreamResponse, TASK)):
        kind = v10.KINDS[union].dump(obj)  # type: ignore[misc]
        assert kind != NEXT._kinds[union].dump(obj)  # type: ignore[misc]
        assert NEXT.load(union, NEXT._kinds[union].dump(obj)) == obj  # type: ignore[misc]


def test_all_other_members_and_the_version_1_0_stay_as_they_are() -> None:
    renamed = NEXT.dump(TASK)
    renamed["status"]["message"]["messageId"] = renamed["status"]["message"].pop("id")
    renamed["history"][0]["messageId"] = renamed["history"][0].pop("id")
    renamed["artifacts"][0]["artifactId"] = renamed["artifacts"][0].pop("artifactKey")
    assert renamed == by_version("1.0").dump(TASK)
    assert (NEXT.version, NEXT.method(GET_TASK)) == ("1.1", "GetTask")


@pytest.mark.parametrize("cls", EVERY_TYPE, ids=lambda cls: getattr(cls, "__name__", str(cls)))
@settings(max_examples=10)
@given(data=st.data())
def test_a_codec_without_renamed_members_reads_and_writes_every_type_as_1_0(cls: Any, data: st.DataObject) -> None:
    obj = data.draw(EVERY_TYPE[cls])
    written = SAME.dump(obj)
    assert written == by_version("1.0").dump(obj)
    assert SAME.load(cls, written, strict=False) == by_version("1.0").load(cls, written, strict=False)
