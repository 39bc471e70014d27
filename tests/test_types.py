import copy
import dataclasses
import itertools
import json
import os
import pickle
import subprocess
import sys
import threading
from datetime import UTC, datetime
from uuid import RFC_4122, UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.codec import by_version
from a2a_sync.codec.v03 import KINDS
from a2a_sync.errors import A2AError, InvalidParamsError, NoTaskError, VersionNotSupportedError
from tests.stopwatch import set_clock
from tests.strategies import CARDS, EVENTS, EVERY_TYPE, REQUESTS, RUN_REQUESTS

STATE = t.TaskState


# -- states -------------------------------------------------------------------------------------------------------------


def test_every_state_is_terminal_interrupted_or_goes_on():
    terminal = {STATE.COMPLETED, STATE.FAILED, STATE.CANCELED, STATE.REJECTED}
    interrupted = {STATE.INPUT_REQUIRED, STATE.AUTH_REQUIRED}
    assert {state for state in STATE if state.terminal} == terminal
    assert {state for state in STATE if state.interrupted} == interrupted
    assert {state for state in STATE if state.paused} == terminal | interrupted


def test_states_and_roles_read_as_the_words_people_use():
    assert f"{STATE.INPUT_REQUIRED}" == "input-required"
    assert STATE.COMPLETED == "completed"
    assert f"{t.Role.AGENT}" == "agent"


# -- parts --------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_from_its_path(tmp_path):
    path = tmp_path / "sales.csv"
    path.write_bytes(b"a,b\n")
    part = t.FilePart.from_path(path)
    assert part == t.FilePart(raw=b"a,b\n", filename="sales.csv", media_type="text/csv")
    assert t.FilePart.from_path(str(path), media_type="text/plain", metadata={"k": 1}) == t.FilePart(
        raw=b"a,b\n", filename="sales.csv", media_type="text/plain", metadata={"k": 1}
    )


def test_a_file_of_an_unknown_kind_is_bytes(tmp_path):
    path = tmp_path / "thing.unheard-of"
    path.write_bytes(b"")
    assert t.FilePart.from_path(path).media_type == "application/octet-stream"


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        t.FilePart.from_path(tmp_path / "none")


@pytest.mark.parametrize("content", [{}, {"raw": b"x", "url": "https://x.example"}])
def test_a_file_part_has_bytes_or_a_url(content):
    with pytest.raises(ValueError, match="either raw bytes or a url"):
        t.FilePart(**content)


def test_an_empty_file_is_a_file():
    assert t.FilePart(raw=b"").raw == b""


# -- what is shown ------------------------------------------------------------------------------------------------------

MIXED = (t.TextPart("a"), t.DataPart({"k": 1}), t.TextPart("b"), t.FilePart(raw=b"x"))


def test_a_message_s_text_is_its_text_parts_on_lines():
    assert t.Message(role=t.Role.USER, parts=MIXED).text == "a\nb"
    assert t.Message(role=t.Role.USER, parts=(t.DataPart(1),)).text == ""


def test_an_artifact_s_text_joins_its_chunks_without_a_seam():
    assert t.Artifact(parts=MIXED).text == "ab"


def test_files_are_the_file_parts():
    files = (t.FilePart(raw=b"x"),)
    assert t.Message(role=t.Role.USER, parts=MIXED).files == files
    assert t.Artifact(parts=MIXED).files == files


def task(state, text=None, artifacts=()):
    message = t.Message(role=t.Role.AGENT, parts=(t.TextPart(text),)) if text is not None else None
    return t.Task(id="t", status=t.TaskStatus(state=state, message=message), artifacts=artifacts)


ARTIFACTS = (
    t.Artifact(parts=(t.TextPart("one"),), artifact_id="1", name="first"),
    t.Artifact(parts=(t.DataPart(1),), artifact_id="2"),
    t.Artifact(parts=(t.TextPart("three"),), artifact_id="3"),
)


@pytest.mark.parametrize("state", [STATE.INPUT_REQUIRED, STATE.AUTH_REQUIRED, STATE.FAILED, STATE.REJECTED])
def test_a_task_that_waits_or_went_wrong_says_why(state):
    assert task(state, "which size?", ARTIFACTS).text == "which size?"
    assert task(state, None, ARTIFACTS).text == "one\nthree"


@pytest.mark.parametrize("state", [STATE.COMPLETED, STATE.WORKING, STATE.SUBMITTED, STATE.CANCELED])
def test_any_other_task_shows_its_artifacts(state):
    assert task(state, "working on it", ARTIFACTS).text == "one\nthree"
    assert task(state).text == ""


def said(role, text):
    return t.Message(role=role, parts=(t.TextPart(text),))


USER, AGENT = said(t.Role.USER, "u"), said(t.Role.AGENT, "a")


@pytest.mark.parametrize("state", [STATE.COMPLETED, STATE.CANCELED, STATE.FAILED, STATE.INPUT_REQUIRED])
def test_without_artifacts_the_answer_is_the_message_of_the_status_or_the_agent_s_last(state):
    in_status = dataclasses.replace(task(state, "in the status"), history=(USER, AGENT))
    assert (in_status.text, in_status.answer_message) == ("in the status", in_status.status.message)
    in_history = dataclasses.replace(task(state), history=(USER, AGENT))
    assert (in_history.text, in_history.answer_message) == ("a", AGENT)
    data = t.Message(role=t.Role.AGENT, parts=(t.DataPart(1),))
    status = dataclasses.replace(in_history.status, message=data)
    of_data = dataclasses.replace(in_history, status=status)
    assert (of_data.text, of_data.answer_message) == ("a", data)
    of_before = dataclasses.replace(task(state), history=(AGENT, USER))
    assert (of_before.text, of_before.answer_message) == ("", None)


@pytest.mark.parametrize("state", [STATE.WORKING, STATE.SUBMITTED, STATE.UNSPECIFIED])
def test_progress_is_no_answer(state):
    working = dataclasses.replace(task(state, "working on it"), history=(USER, AGENT))
    assert (working.text, working.answer_message) == ("", None)


def test_an_artifact_is_found_by_name_or_id():
    found = task(STATE.COMPLETED, artifacts=ARTIFACTS)
    assert found.artifact("first") is ARTIFACTS[0]
    assert found.artifact("3") is ARTIFACTS[2]
    assert found.state is STATE.COMPLETED
    with pytest.raises(KeyError, match="no artifact 'second'; the task has 'first', "):
        found.artifact("second")
    with pytest.raises(KeyError, match="no artifact 'x'; the task has no artifacts"):
        task(STATE.COMPLETED).artifact("x")


def test_an_unknown_state_is_refused_with_those_that_there_are():
    with pytest.raises(
        ValueError, match=r"'done' is no state of a task; the states are .*'working', 'completed', "
    ) as caught:
        t.TaskState("done")
    assert all(repr(state.value) in str(caught.value) for state in t.TaskState)
    assert t.TaskState("cancelled") is t.TaskState.CANCELED


def test_secrets_are_not_shown():
    config = t.TaskPushNotificationConfig(
        url="u", token="secret-1", authentication=t.AuthenticationInfo(scheme="Bearer", credentials="secret-2")
    )
    assert "secret" not in repr(config)


def test_new_objects_have_ids_of_their_own():
    first, second = (t.Message(role=t.Role.USER, parts=()) for _ in range(2))
    assert first.message_id != second.message_id
    assert not set(t.new_id()) & set("/:%")


def test_ids_sort_in_the_order_in_which_they_were_made(monkeypatch):
    moments = itertools.count(1_700_000_000_000_000_000, 1000)
    set_clock(monkeypatch, t, time_ns=lambda: next(moments))
    made = [t.new_id() for _ in range(5000)]
    assert made == sorted(made)
    assert {(UUID(one).version, UUID(one).variant) for one in made} == {(7, RFC_4122)}


def test_ids_of_many_threads_differ_and_ask_the_system_rarely(monkeypatch):
    asked = []
    real = os.urandom
    monkeypatch.setattr(t.os, "urandom", lambda size: asked.append(size) or real(size))
    made = []
    threads = [threading.Thread(target=lambda: made.extend([t.new_id() for _ in range(2000)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({one[-16:] for one in made}) == 16_000
    assert len(asked) < 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_other_ids():
    code = (
        "import os; from a2a_sync.types import new_id; new_id(); read, write = os.pipe(); pid = os.fork(); one = new_id()[-16:]\n"
        "if not pid: os.write(write, one.encode()); os._exit(0)\n"
        "os.waitpid(pid, 0); print(os.read(read, 100).decode() != one)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert printed == "True\n"


# -- objects as values --------------------------------------------------------------------------------------------------


@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
@given(EVENTS | CARDS | RUN_REQUESTS | REQUESTS[t.SendMessageRequest])
def test_objects_can_be_copied_and_pickled(obj):
    assert copy.deepcopy(obj) == obj
    assert copy.copy(obj) == obj
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(obj, protocol)) == obj


def test_a_pickled_moment_keeps_its_zone():
    status = t.TaskStatus(state=STATE.WORKING, timestamp=datetime(2025, 1, 1, tzinfo=UTC))
    assert pickle.loads(pickle.dumps(status)).timestamp.tzinfo is UTC


def test_every_class_of_the_model_is_frozen_and_without_a_dict():
    for module in (t, c):
        model = [cls for cls in vars(module).values() if dataclasses.is_dataclass(cls)]
        assert len(model) > 15
        for cls in model:
            assert cls.__dataclass_params__.frozen, cls
            assert "__slots__" in vars(cls), cls


def test_a_member_cannot_be_changed():
    part = t.TextPart("x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        part.text = "y"
    assert dataclasses.replace(part, text="y") == t.TextPart("y")


def test_a_skill_takes_lists_and_keeps_tuples():
    skill = c.AgentSkill(id="s", name="S", description="d", tags=["a", "b"], examples=["x"])
    assert (skill.tags, skill.examples) == (("a", "b"), ("x",))
    with pytest.raises(TypeError, match=r"AgentSkill\.tags takes a list of strings"):
        c.AgentSkill(id="s", name="S", description="d", tags="ab")


def test_a_card_s_skill_is_found_by_id():
    skill = c.AgentSkill(id="s", name="S", description="d", tags=["a"])
    card = c.AgentCard(name="n", description="d", version="1", skills=(skill,))
    assert card.skill("s") is skill
    with pytest.raises(KeyError):
        card.skill("other")


def test_both_spellings_of_canceled_are_one_state():
    assert STATE.CANCELLED is STATE.CANCELED is STATE("cancelled") is STATE("canceled")
    assert [str(state) for state in STATE].count("canceled") == 1


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("cls", [cls for cls in EVERY_TYPE if isinstance(cls, type)], ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=15)
def test_every_type_is_converted_to_json_and_back(cls, version, data):
    value = data.draw(EVERY_TYPE[cls])
    if version == "0.3" and cls not in KINDS:
        with pytest.raises(VersionNotSupportedError, match=cls.__name__):
            value.to_dict(version)
        return
    if version == "0.3" and cls is c.AgentCard:
        # A card of 0.3 needs an interface of 0.3.
        interface = c.AgentInterface(url="http://a.test/", protocol_binding="JSONRPC", protocol_version="0.3")
        value = dataclasses.replace(value, supported_interfaces=(interface,))
    written = json.loads(json.dumps(value.to_dict(version)))
    assert written == json.loads(json.dumps(by_version(version).dump(value)))
    if version == "1.0" and not isinstance(value, c.OAuthFlow | c.SecurityScheme):
        assert cls.from_dict(written) == value


def test_every_dataclass_of_the_model_can_be_converted():
    for module in (t, c):
        for cls in vars(module).values():
            if dataclasses.is_dataclass(cls):
                assert issubclass(cls, t.JSONObject), cls


@pytest.mark.parametrize(
    ("part", "written", "in_0_3"),
    [
        (t.TextPart("x"), {"text": "x"}, {"kind": "text", "text": "x"}),
        (
            t.FilePart(raw=b"a", filename="f"),
            {"raw": "YQ==", "filename": "f"},
            {"kind": "file", "file": {"bytes": "YQ==", "name": "f"}},
        ),
        (t.DataPart({"n": 1}), {"data": {"n": 1}}, {"kind": "data", "data": {"n": 1}}),
    ],
)
def test_a_single_part_has_json_of_its_own(part, written, in_0_3):
    assert part.to_dict() == written
    assert part.to_dict("0.3") == in_0_3
    assert type(part).from_dict(written) == t.from_dict(t.Part, written) == part
    assert type(part).from_dict(in_0_3, "0.3") == t.from_dict(t.Part, in_0_3, "0.3") == part
    other = t.TextPart if not isinstance(part, t.TextPart) else t.DataPart
    with pytest.raises(InvalidParamsError, match=f"expected a {other.__name__}"):
        other.from_dict(written)


def test_what_is_wrong_is_named():
    with pytest.raises(InvalidParamsError, match=r"parts\[0\]\.text"):
        t.Message.from_dict({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": 5}]})
    with pytest.raises(VersionNotSupportedError):
        t.TextPart("x").to_dict("2.0")


def test_the_repr_of_a_file_shows_its_size_and_not_its_bytes() -> None:
    part = t.FilePart(raw=b"x" * 1_000_000, filename="a.bin", media_type="image/png")
    assert repr(part) == "FilePart(raw=<1000000 bytes>, filename='a.bin', media_type='image/png')"
    assert len(repr(t.Message(role=t.Role.USER, parts=(part,)))) < 500
    assert repr(t.FilePart(url="https://files.test/a")) == "FilePart(url='https://files.test/a')"
    assert repr(t.FilePart(raw=b"", metadata={"k": 1})) == "FilePart(raw=<0 bytes>, metadata={'k': 1})"


# -- replies ------------------------------------------------------------------------------------------------------------


def test_the_task_of_a_reply_is_the_task_itself():
    task = t.Task(id="t", status=t.TaskStatus(state=STATE.COMPLETED))
    reply: t.Reply = task
    assert reply.task is task


def test_a_message_has_no_task_and_says_so():
    reply: t.Reply = t.Message(role=t.Role.AGENT, parts=(t.TextPart("hello"),))
    assert reply.text == "hello"
    with pytest.raises(NoTaskError, match="answered with a message"):
        _ = reply.task
    assert issubclass(NoTaskError, (A2AError, AttributeError))
    assert not hasattr(reply, "task")


def test_replies_stay_without_a_dictionary():
    for reply in (t.Message(role=t.Role.AGENT, parts=()), t.Task(id="t", status=t.TaskStatus(state=STATE.WORKING))):
        assert not hasattr(reply, "__dict__")
        assert pickle.loads(pickle.dumps(reply)) == reply
