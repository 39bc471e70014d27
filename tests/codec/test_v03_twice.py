import base64

import pytest
from hypothesis import HealthCheck, given, settings

from a2a_sync import types as t
from a2a_sync.codec import DecodeError, by_version
from a2a_sync.errors import InvalidParamsError
from a2a_sync.jsontext import dumps, loads
from a2a_sync.operations import SEND_MESSAGE, StreamItem
from tests.strategies import EVENTS, REQUESTS
from tests.v03_loss import after_v03, has_compat_wrapper

ONCE = by_version("0.3", "HTTP+JSON")
TWICE = by_version("0.3", "HTTP+JSON", double_base64_files=True)
QUICK = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)


def encoded(raw):
    return base64.b64encode(base64.b64encode(raw)).decode()


def file(raw):
    return t.FilePart(raw=raw, filename="a.bin")


MESSAGE = t.Message(role=t.Role.USER, parts=(t.TextPart("x"), file(b"\0\xff")), message_id="m")
STATUS = t.TaskStatus(state=t.TaskState.INPUT_REQUIRED, message=MESSAGE)
ARTIFACT = t.Artifact(artifact_id="a", parts=(file(b"\0\xff"),))
TASK = t.Task(id="t", context_id="c", status=STATUS, artifacts=(ARTIFACT,), history=(MESSAGE,))


@pytest.mark.parametrize(
    ("event", "files"),
    [
        (MESSAGE, 1),
        (TASK, 3),
        (t.TaskStatusUpdateEvent(task_id="t", context_id="c", status=STATUS), 1),
        (t.TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=ARTIFACT), 1),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_file_is_encoded_twice_and_nothing_else_differs(event, files):
    written = dumps(TWICE.dump_event(event)).decode()
    assert written.count(encoded(b"\0\xff")) == files
    assert written.replace(encoded(b"\0\xff"), base64.b64encode(b"\0\xff").decode()).encode() == dumps(
        ONCE.dump_event(event)
    )


@QUICK
@given(EVENTS.filter(lambda one: not has_compat_wrapper(one)))
def test_every_event_survives(sent):
    item = StreamItem(sent, 1)
    assert TWICE.load_event(loads(TWICE.encode_item(item))) == after_v03(sent, proto=True)
    # The bytes of the other codec are not these.
    assert ONCE.load_event(loads(ONCE.encode_item(item))) == after_v03(sent, proto=True)


@QUICK
@given(REQUESTS[t.SendMessageRequest].filter(lambda one: not has_compat_wrapper(one)))
def test_every_send_survives(request):
    written = loads(dumps(TWICE.dump_request(SEND_MESSAGE, request)))
    assert TWICE.load_request(SEND_MESSAGE, written) == after_v03(request, proto=True)


@pytest.mark.parametrize("said", ["AP8=", "gIA=", "YQ", base64.b64encode(b"not base64!").decode()])
def test_a_file_that_is_encoded_once_is_refused(said):
    message = {"messageId": "m", "role": "ROLE_USER", "content": [{"file": {"fileWithBytes": said}}]}
    with pytest.raises(InvalidParamsError, match="not encoded twice"):
        TWICE.load_request(SEND_MESSAGE, {"message": message})
    with pytest.raises(DecodeError, match="not encoded twice"):
        TWICE.load_event({"message": message})


@pytest.mark.parametrize("spoken", [("1.0", "HTTP+JSON"), ("0.3", "JSONRPC"), ("1.0", "JSONRPC")])
def test_it_is_a_matter_of_one_binding_of_one_version(spoken):
    assert by_version(*spoken, double_base64_files=True) is by_version(*spoken)
