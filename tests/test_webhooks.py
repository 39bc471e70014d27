"""`WebhookReceiver`: the senders that it accepts, the notifications that it returns, and its responses."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any
from wsgiref.validate import validator

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from werkzeug.datastructures import Headers
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request

from a2a_sync import (
    A2AApp,
    Agent,
    InputRequired,
    PushNotification,
    PushOptions,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    URLGuard,
    WebhookReceiver,
    webhooks,
)
from a2a_sync import operations as op
from a2a_sync.codec import by_version
from a2a_sync.errors import StoreError
from a2a_sync.operations import Call, CallContext, StreamItem
from a2a_sync.signing import CardSigner, NotificationSigner, jwk, jwt
from a2a_sync.stores import SQLiteReplayCache
from a2a_sync.stores.sqlite import replay
from a2a_sync.testing import wsgi_session
from a2a_sync.types import (
    Artifact,
    AuthenticationInfo,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.webhooks import HeaderItems, NotificationRefusedError, _MemoryReplayCache
from tests.engine import TIMEOUT, eventually
from tests.stopwatch import set_clock

pytestmark = pytest.mark.timeout(60)

MEGABYTE = 1024 * 1024
URL = "https://me.example/hook"
STATUS = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
BODY = json.dumps({"statusUpdate": STATUS}).encode()
OLD_BODY = json.dumps({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}}).encode()
KEY = ed25519.Ed25519PrivateKey.generate()
SIGNER = NotificationSigner(KEY, kid="one", issuer="https://agent.example/")
STRANGER = NotificationSigner(ed25519.Ed25519PrivateKey.generate(), kid="one", issuer="https://agent.example/")
KEYS = {"keys": [SIGNER.public_jwk]}


def signed(
    body: bytes = BODY, notification_id: str = "t/1", *, by: NotificationSigner = SIGNER, url: str = URL, **changes: Any
) -> dict[str, str]:
    """The headers of a signed notification, with claims changed."""
    claims = {
        "iat": int(time.time()),
        "jti": notification_id,
        "aud": url,
        "iss": "https://agent.example/",
        "request_body_sha256": hashlib.sha256(body).hexdigest(),
        **changes,
    }
    token = by._jws(json.dumps({k: v for k, v in claims.items() if v is not None}).encode(), {"typ": "JWT"})
    return {"X-A2A-Notification-Signature": token, "X-A2A-Notification-Id": notification_id}


def refused(receiver: WebhookReceiver, headers: dict[str, str], body: bytes = BODY) -> int:
    with pytest.raises(NotificationRefusedError) as caught:
        receiver.receive(headers, body)
    return caught.value.status


# -- accepted senders ---------------------------------------------------------------------------------------------------


def test_a_receiver_without_anything_to_check_is_refused():
    with pytest.raises(ValueError, match="needs something to check"):
        WebhookReceiver()


def test_a_token_that_no_utf8_text_can_hold_is_refused() -> None:
    with pytest.raises(NotificationRefusedError):
        WebhookReceiver(token="t0ken").receive({"X-A2A-Notification-Token": "\ud800"}, b"{}")


@pytest.mark.parametrize("name", ["X-A2A-Notification-Token", "A2A-Notification-Token", "x-a2a-notification-token"])
def test_a_sender_with_the_token_is_accepted(name):
    receiver = WebhookReceiver(token="t0ken")
    assert receiver.receive({name: "t0ken"}, BODY) is not None
    for headers in ({}, {name: ""}, {name: "t0ke"}, {name: "t0kenn"}, {"Authorization": "Bearer t0ken"}):
        assert refused(receiver, headers) == 401


def test_each_task_may_have_a_token_of_its_own_and_tasks_that_are_not_expected_have_none():
    receiver = WebhookReceiver(token={"t": "t0ken"}.get)
    assert receiver.receive({"X-A2A-Notification-Token": "t0ken"}, BODY) is not None
    assert refused(receiver, {"X-A2A-Notification-Token": "other"}) == 401
    other = json.dumps({"statusUpdate": {**STATUS, "taskId": "unknown"}}).encode()
    assert refused(receiver, {"X-A2A-Notification-Token": "t0ken"}, other) == 401
    assert refused(receiver, {}, other) == 401


def test_an_empty_token_of_a_task_accepts_no_sender() -> None:
    receiver = WebhookReceiver(token=lambda task_id: "")
    for headers in ({}, {"X-A2A-Notification-Token": ""}):
        assert refused(receiver, headers) == 401


@pytest.mark.parametrize(("scheme", "credentials"), [("Bearer", ""), ("Bearer", " "), ("", "s3cret"), ("", "")])
def test_credentials_that_every_sender_has_are_refused(scheme: str, credentials: str) -> None:
    with pytest.raises(ValueError, match="every sender"):
        WebhookReceiver(authentication=AuthenticationInfo(scheme=scheme, credentials=credentials))


def test_a_sender_with_the_credentials_is_accepted():
    receiver = WebhookReceiver(authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret"))
    for said in ("Bearer s3cret", "bearer s3cret"):
        assert receiver.receive({"Authorization": said}, BODY) is not None
    for said in ("", "Bearer", "Bearer s3crett", "Basic s3cret", "Bearer S3CRET"):
        assert refused(receiver, {"Authorization": said}) == 401


def test_all_that_is_asked_for_must_be_right():
    receiver = WebhookReceiver(token="t0ken", trusted_keys=KEYS)
    assert refused(receiver, {"X-A2A-Notification-Token": "t0ken"}) == 401
    assert refused(receiver, signed()) == 401
    assert receiver.receive({**signed(), "X-A2A-Notification-Token": "t0ken"}, BODY) is not None


# -- signatures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        KEYS,
        SIGNER.public_jwk,
        {"one": KEY.public_key()},
        KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    ],
    ids=["set", "jwk", "named", "pem"],
)
def test_what_a_trusted_key_has_signed_is_believed_and_its_claims_are_given(keys):
    receiver = WebhookReceiver(trusted_keys=keys, url=URL, issuer="https://agent.example/")
    notification = receiver.receive(signed(), BODY)
    assert notification is not None
    assert (notification.id, notification.claims["iss"]) == ("t/1", "https://agent.example/")


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate(),
    ],
)
def test_every_kind_of_key_signs(key):
    signer = NotificationSigner(key, kid="k")
    token = signer.token(URL + "?secret=1", "t/1", BODY)
    headers = {"X-A2A-Notification-Signature": token, "X-A2A-Notification-Id": "t/1"}
    assert WebhookReceiver(trusted_keys=signer.public_jwk, url=URL).receive(headers, BODY) is not None


def test_a_signature_in_the_usual_place_for_tokens_is_found_too():
    """As receivers of the official samples expect it: no id, no audience."""
    token = signed(jti=None, aud=None, iss=None)["X-A2A-Notification-Signature"]
    assert WebhookReceiver(trusted_keys=KEYS).receive({"Authorization": f"Bearer {token}"}, BODY) is not None


FORGED: dict[str, Callable[[], tuple[dict[str, str], bytes]]] = {
    "not signed": lambda: ({}, BODY),
    "no token": lambda: ({"X-A2A-Notification-Signature": "nonsense"}, BODY),
    "too long": lambda: ({"X-A2A-Notification-Signature": "x" * 20_000}, BODY),
    "another key": lambda: (signed(by=STRANGER), BODY),
    "another body": lambda: (signed(), BODY.replace(b"COMPLETED", b"REJECTED")),
    "no digest": lambda: (signed(request_body_sha256=None), BODY),
    "another notification": lambda: ({**signed(), "X-A2A-Notification-Id": "t/2"}, BODY),
    "another receiver": lambda: (signed(url="https://me.example/other"), BODY),
    "another issuer": lambda: (signed(iss="https://evil.example/"), BODY),
    "no time": lambda: (signed(iat=None), BODY),
    "too old": lambda: (signed(iat=int(time.time()) - 400), BODY),
    "from the future": lambda: (signed(iat=int(time.time()) + 400), BODY),
    "expired": lambda: (signed(exp=int(time.time()) - 100), BODY),
    "unsigned token": lambda: ({"X-A2A-Notification-Signature": _unsigned(), "X-A2A-Notification-Id": "t/1"}, BODY),
    "public key as secret": lambda: ({"X-A2A-Notification-Signature": _hmac(), "X-A2A-Notification-Id": "t/1"}, BODY),
}


def _unsigned() -> str:
    import jwt

    return jwt.encode({"iat": int(time.time()), "aud": URL}, "", algorithm="none", headers={"kid": "one"})


def _hmac() -> str:
    import base64
    import hmac

    pem = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    pieces = [{"alg": "HS256", "kid": "one"}, {"iat": int(time.time()), "aud": URL}]
    parts = [base64.urlsafe_b64encode(json.dumps(piece).encode()).rstrip(b"=") for piece in pieces]
    signature = hmac.digest(pem, b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.mark.parametrize("forgery", FORGED)
def test_what_is_forged_replayed_or_meant_for_others_is_refused(forgery):
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL, issuer="https://agent.example/")
    headers, body = FORGED[forgery]()
    assert refused(receiver, headers, body) == 401


def test_a_receiver_that_takes_what_was_meant_for_others_says_so(caplog):
    headers = signed(url="https://mallory.example/hook")
    assert refused(WebhookReceiver(trusted_keys=KEYS, url=URL), headers) == 401
    WebhookReceiver(trusted_keys=KEYS, token="t0ken")
    assert "signed for other webhooks" not in caplog.text
    assert WebhookReceiver(trusted_keys=KEYS).receive(headers, BODY) is not None
    assert "signed for other webhooks" in caplog.text


def test_a_time_that_is_written_as_text_is_read_too():
    receiver = WebhookReceiver(trusted_keys=KEYS)
    assert receiver.receive(signed(iat=str(int(time.time()))), BODY) is not None
    assert refused(receiver, signed(iat="5")) == 401


def test_a_child_has_locks_and_a_queue_of_its_own():
    receiver = WebhookReceiver(token="t0ken")
    assert post(receiver, **TOKEN, **{"X-A2A-Notification-Id": "t/1"})[0] == 204
    with receiver._replay_cache._lock:
        receiver.renew()
        assert post(receiver, **TOKEN, **{"X-A2A-Notification-Id": "t/2"})[0] == 204
    assert [one.id for one in receiver.notifications(timeout=0)] == ["t/2"]


def test_keys_that_cannot_be_read_are_the_receivers_trouble(monkeypatch):
    receiver = WebhookReceiver(
        trusted_keys="http://127.0.0.1:9/jwks.json", url_guard=URLGuard(allow=["127.0.0.1"], schemes=["http"])
    )
    assert refused(receiver, signed()) == 503


def test_secrets_are_not_shown():
    shown = repr(NotificationSigner(KEY, kid="one"))
    assert shown == "NotificationSigner(kid='one', algorithm='EdDSA')"


# -- what it gives ------------------------------------------------------------------------------------------------------

TOKEN = {"X-A2A-Notification-Token": "t0ken"}


def test_events_of_both_versions_are_given_as_the_same_objects():
    receiver = WebhookReceiver(token="t0ken")
    new, old = receiver.receive(TOKEN, BODY), receiver.receive(TOKEN, OLD_BODY)
    assert (new.version, new.task_id, new.event.status.state) == ("1.0", "t", TaskState.COMPLETED)
    assert (old.version, old.task_id, old.event.state) == ("0.3", "t", TaskState.COMPLETED)
    assert isinstance(old.event, Task)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"x": 1}', b'{"kind": "x"}', b'{"task": 1}', b"\xff"])
def test_what_is_no_event_is_refused(body):
    assert refused(WebhookReceiver(token="t0ken"), TOKEN, body) == 400


def test_what_comes_twice_is_given_once():
    receiver = WebhookReceiver(token="t0ken")
    first = {**TOKEN, "X-A2A-Notification-Id": "t/1"}
    assert receiver.receive(first, BODY) is not None
    assert receiver.receive(first, BODY) is None
    assert receiver.receive({**TOKEN, "X-A2A-Notification-Id": "t/2"}, BODY) is not None
    # Notifications without an id cannot be recognised.
    assert receiver.receive(TOKEN, BODY) is not None
    assert receiver.receive(TOKEN, BODY) is not None


def test_a_sender_cannot_make_notifications_of_others_look_repeated():
    tokens = {"mine": "my token", "yours": "your token"}
    receiver = WebhookReceiver(token=tokens.get)
    for task_id in tokens:
        body = json.dumps({"statusUpdate": {**STATUS, "taskId": task_id}}).encode()
        headers = {"X-A2A-Notification-Token": tokens[task_id], "X-A2A-Notification-Id": "yours/2"}
        taken = receiver.receive(headers, body)
        assert taken is not None
        assert taken.task_id == task_id
        assert receiver.receive(headers, body) is None


def test_what_a_view_could_not_take_is_given_again():
    receiver = WebhookReceiver(token="secret")
    headers = {"X-A2A-Notification-Token": "secret", "X-A2A-Notification-Id": "t/1"}
    first = receiver.receive(headers, BODY)
    assert first is not None
    receiver.forget(first)
    assert receiver.receive(headers, BODY) == first


@pytest.mark.parametrize(
    "options",
    [
        {"token": "secret"},
        {"authentication": AuthenticationInfo(scheme="Bearer", credentials="x")},
        {"trusted_keys": KEYS},
    ],
)
def test_of_strangers_no_body_is_read(options):
    class Unread:
        def read(self, size: int) -> bytes:
            raise AssertionError("a stranger's body is read")

    answered: list[str] = []
    environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": "1000", "wsgi.input": Unread()}
    WebhookReceiver(**options)(environ, lambda status, headers: answered.append(status))
    assert answered == ["401 Unauthorized"]


def test_what_was_refused_is_not_remembered():
    receiver = WebhookReceiver(token="t0ken")
    assert refused(receiver, {"X-A2A-Notification-Id": "t/1"}) == 401
    assert receiver.receive({**TOKEN, "X-A2A-Notification-Id": "t/1"}, BODY) is not None


def test_only_so_many_are_remembered():
    receiver = WebhookReceiver(token="t0ken", replay_cache_size=2)
    for n in (1, 2, 3):
        assert receiver.receive({**TOKEN, "X-A2A-Notification-Id": f"t/{n}"}, BODY) is not None
    assert receiver.receive({**TOKEN, "X-A2A-Notification-Id": "t/3"}, BODY) is None
    assert receiver.receive({**TOKEN, "X-A2A-Notification-Id": "t/1"}, BODY) is not None


def at(monkeypatch, seconds):
    """Both clocks of the receiver and its parts, so many seconds from now. Other threads keep theirs."""
    for module in (webhooks, jwk, jwt, replay):
        set_clock(monkeypatch, module, time=time.time() + seconds, monotonic=time.monotonic() + seconds)


@pytest.mark.parametrize("dated", [-22, 0, 26])
@pytest.mark.parametrize("later", [1, 299, 301, 310, 325, 340, 353, 500])
def test_a_signed_notification_is_taken_once_for_as_long_as_it_is_valid(monkeypatch, dated, later):
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL)
    headers = signed(iat=int(time.time()) + dated)
    assert receiver.receive(headers, BODY) is not None
    at(monkeypatch, later)
    if later - dated > 330:
        assert refused(receiver, headers) == 401
    else:
        assert receiver.receive(headers, BODY) is None


@pytest.mark.parametrize("jti", [None, ""])
def test_a_signature_that_names_no_id_is_known_again_under_any_id(jti):
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL)
    headers = signed(jti=jti)
    if jti == "":
        headers["X-A2A-Notification-Id"] = ""
    assert receiver.receive(headers, BODY) is not None
    assert receiver.receive(headers, BODY) is None
    if jti is None:
        assert receiver.receive({**headers, "X-A2A-Notification-Id": "another"}, BODY) is None


def test_a_valid_notification_is_never_evicted_for_others(monkeypatch):
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL, replay_cache_size=2)
    first = signed(notification_id="t/0")
    for headers in (first, signed(notification_id="t/1")):
        assert receiver.receive(headers, BODY) is not None
    assert refused(receiver, signed(notification_id="t/2")) == 503
    assert receiver.receive(first, BODY) is None
    set_clock(monkeypatch, webhooks, monotonic=time.monotonic() + 400)
    assert receiver.receive(signed(notification_id="t/3"), BODY) is not None


# -- a replay cache that processes share ---------------------------------------------------------------------------------


def test_a_cache_in_memory_and_one_in_a_file_keep_the_same_rules(monkeypatch, tmp_path):
    for cache in (_MemoryReplayCache(2), SQLiteReplayCache(tmp_path / "seen.db", size=2)):
        assert cache.add("a", 10, evict=True)
        assert not cache.add("a", 10, evict=True)
        assert cache.add("b", 10, evict=True)
        assert cache.add("c", 10, evict=True)
        assert cache.add("a", 10, evict=True), "evicted"
        cache.discard("a")
        cache.discard("unknown")
        assert cache.add("a", 10, evict=True)
        with pytest.raises(StoreError, match="valid"):
            cache.add("d", 10, evict=False)
        with monkeypatch.context() as clocks:
            at(clocks, 11)
            assert cache.add("d", 10, evict=False)
            assert cache.add("e", 10, evict=False)
            with pytest.raises(StoreError, match="valid"):
                cache.add("f", 10, evict=False)
            assert not cache.add("d", 10, evict=False)


def test_a_key_that_must_stay_is_not_evicted_from_a_shared_cache(tmp_path):
    cache = SQLiteReplayCache(tmp_path / "seen.db", size=2)
    assert cache.add("signed", 10, evict=False)
    assert all(cache.add(f"unsigned {n}", 10, evict=True) for n in range(3))
    assert not cache.add("signed", 10, evict=False)


def test_a_clock_that_jumps_ahead_and_back_makes_a_shared_cache_forget_nothing(monkeypatch, tmp_path):
    cache = SQLiteReplayCache(tmp_path / "seen.db")
    assert cache.add("valid", 10, evict=False)
    for ahead in (86_400, 86_401, 0):
        with monkeypatch.context() as clocks:
            set_clock(clocks, replay, time=time.time() + ahead, monotonic=time.monotonic())
            for one in (cache, SQLiteReplayCache(tmp_path / "seen.db")):
                assert one.add(f"{ahead} {id(one)}", 10, evict=False)
                assert not one.add("valid", 10, evict=False)


#: Posts what it reads as JSON to a receiver of its own, and prints which notifications were taken.
RECEIVING = """
import json, sys
from a2a_sync import WebhookReceiver
from a2a_sync.stores import SQLiteReplayCache
key, url, path, posts, body = json.load(sys.stdin)
receiver = WebhookReceiver(trusted_keys=[key], url=url, replay_cache=SQLiteReplayCache(path))
taken = [receiver.receive(headers, body.encode()) for headers in posts]
print(json.dumps([one.id for one in taken if one is not None]))
"""


def test_of_two_processes_with_one_file_one_takes_each_notification(tmp_path):
    posts = [signed(notification_id=f"t/{n}") for n in range(200)]
    given = json.dumps([SIGNER.public_jwk, URL, str(tmp_path / "seen.db"), posts, BODY.decode()])
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", RECEIVING], stdin=PIPE, stdout=PIPE, text=True))
            for _ in range(2)
        ]
        for process in processes:
            process.stdin.write(given)
            process.stdin.close()
        taken = [json.loads(process.stdout.read()) for process in processes]
        assert [process.wait(TIMEOUT) for process in processes] == [0, 0]
    assert sorted(taken[0] + taken[1]) == sorted(f"t/{n}" for n in range(200))
    # A process that begins later knows them as well.
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL, replay_cache=SQLiteReplayCache(tmp_path / "seen.db"))
    assert receiver.receive(posts[0], BODY) is None


def test_what_was_not_handled_is_given_again_with_a_shared_cache(tmp_path):
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL, replay_cache=SQLiteReplayCache(tmp_path / "seen.db"))
    headers = signed()
    first = receiver.receive(headers, BODY)
    assert first is not None
    receiver.forget(first)
    assert receiver.receive(headers, BODY) is not None


def test_a_shared_cache_that_fails_refuses(tmp_path, caplog):
    receiver = WebhookReceiver(
        trusted_keys=KEYS, url=URL, replay_cache=SQLiteReplayCache(tmp_path / "missing" / "seen.db")
    )
    assert refused(receiver, signed()) == 503
    assert "cannot be opened" in caplog.text


@pytest.mark.parametrize("wrong", [{"path": ":memory:"}, {"size": 0}, {"busy_timeout": -1}])
def test_a_shared_cache_refuses_what_it_cannot_use(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"must|needs"):
        SQLiteReplayCache(**{"path": tmp_path / "seen.db", **wrong})


# -- over WSGI ----------------------------------------------------------------------------------------------------------


def post(receiver: WebhookReceiver, body: bytes = BODY, method: str = "POST", **headers: str) -> tuple[int, bytes]:
    given = {**TOKEN, **{name.replace("_", "-"): value for name, value in headers.items()}}
    session = wsgi_session(validator(receiver))
    answer = session.request(method, "http://me.test/hook", data=body, headers=given, timeout=60)
    return answer.status_code, answer.content


def test_a_notification_is_handed_on_and_answered():
    received: list[PushNotification] = []
    receiver = WebhookReceiver(token="t0ken", on_notification=received.append)
    assert post(receiver, X_A2A_Notification_Id="t/1") == (204, b"")
    assert post(receiver, X_A2A_Notification_Id="t/1") == (204, b"")
    assert [notification.id for notification in received] == ["t/1"]


def test_what_was_not_taken_is_given_again():
    received: list[PushNotification] = []

    def take(notification: PushNotification) -> None:
        received.append(notification)
        if len(received) == 1:
            raise RuntimeError("the database is away")

    receiver = WebhookReceiver(token="t0ken", on_notification=take)
    assert [post(receiver, X_A2A_Notification_Id="t/1")[0] for _ in range(3)] == [500, 204, 204]
    assert len(received) == 2


@pytest.mark.parametrize("shared", [False, True])
def test_a_repeated_notification_is_not_confirmed_while_the_first_is_being_handled(
    shared: bool, tmp_path: Path
) -> None:
    handling, fail = threading.Event(), threading.Event()
    received: list[PushNotification] = []

    def take(notification: PushNotification) -> None:
        received.append(notification)
        if len(received) == 1:
            handling.set()
            fail.wait(TIMEOUT)
            raise RuntimeError("the database is away")

    # Two processes share a cache.
    caches = [SQLiteReplayCache(tmp_path / "hooks.db") for _ in range(2)] if shared else [None]
    receivers = [WebhookReceiver(token="t0ken", on_notification=take, replay_cache=cache) for cache in caches]
    receiver = receivers[-1]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(post, receivers[0], X_A2A_Notification_Id="t/1")
        assert handling.wait(TIMEOUT)
        # The sender has given up waiting for the first response.
        assert post(receiver, X_A2A_Notification_Id="t/1")[0] == 503
        assert post(receiver, X_A2A_Notification_Id="t/2")[0] == 204
        fail.set()
        assert first.result(TIMEOUT)[0] == 500
    assert [post(receiver, X_A2A_Notification_Id="t/1")[0] for _ in range(2)] == [204, 204]
    assert [one.id for one in received] == ["t/1", "t/2", "t/1"]


def test_a_notification_that_a_killed_process_was_handling_is_given_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    received: list[str] = []

    def receiver(handle: Callable[[PushNotification], object]) -> WebhookReceiver:
        cache = SQLiteReplayCache(tmp_path / "hooks.db")
        return WebhookReceiver(token="t0ken", on_notification=handle, replay_cache=cache, max_age=300)

    if (child := os.fork()) == 0:
        post(receiver(lambda _: os._exit(9)), X_A2A_Notification_Id="t/1")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    survivor = receiver(lambda notification: received.append(notification.id))
    assert post(survivor, X_A2A_Notification_Id="t/1")[0] == 503
    for seconds in (301, 310):
        set_clock(monkeypatch, replay, monotonic=time.monotonic() + seconds, time=time.time() + seconds)
        assert post(survivor, X_A2A_Notification_Id="t/1")[0] == (503 if seconds == 301 else 204)
    assert received == ["t/1"]
    assert post(survivor, X_A2A_Notification_Id="t/1")[0] == 204
    assert received == ["t/1"]


def test_notifications_that_wait_are_limited_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_MAX_WAITING_BYTES", 2 * len(BODY) + 20)
    receiver = WebhookReceiver(token="t0ken")
    assert [post(receiver, X_A2A_Notification_Id=f"t/{number}")[0] for number in range(3)] == [204, 204, 503]
    assert next(receiver.notifications(0)).id == "t/0"
    assert [post(receiver, X_A2A_Notification_Id=f"t/{number}")[0] for number in (2, 3)] == [204, 503]


def test_notifications_that_wait_take_little_more_memory_than_their_claims() -> None:
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL)
    headers = [signed(notification_id=f"t/{number}", own=[[]] * 2500) for number in range(20)]
    tracemalloc.start()
    try:
        for one in headers:
            assert post(receiver, **{name.replace("-", "_"): value for name, value in one.items()})[0] == 204
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # As objects they take fifteen times as much.
    assert held < 2 * sum(len(one["X-A2A-Notification-Signature"]) for one in headers)
    read = list(receiver.notifications(0))
    assert [(one.task_id, one.claims["own"]) for one in read] == [("t", [[]] * 2500)] * 20


def test_the_claims_of_notifications_that_wait_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_MAX_WAITING_BYTES", 20_000)
    receiver = WebhookReceiver(trusted_keys=KEYS, url=URL)

    def status(number: int) -> int:
        headers = signed(notification_id=f"t/{number}", own="x" * 7000)
        return post(receiver, **{name.replace("-", "_"): value for name, value in headers.items()})[0]

    assert [status(number) for number in range(3)] == [204, 204, 503]
    next(receiver.notifications(0))
    assert [status(number) for number in (2, 3)] == [204, 503]


def test_notifications_that_wait_take_little_more_memory_than_their_bodies() -> None:
    metadata = {"numbers": [[1.5]] * 50_000}
    body = json.dumps({"statusUpdate": {**STATUS, "metadata": metadata}}).encode()
    receiver = WebhookReceiver(token="t0ken")
    tracemalloc.start()
    try:
        assert post(receiver, body=body, X_A2A_Notification_Id="t/0")[0] == 204
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # As objects they take ten times as much.
    assert held < 2 * len(body)
    (read,) = receiver.notifications(0)
    assert isinstance(read.event, TaskStatusUpdateEvent)
    assert (read.task_id, read.id, read.version, read.event.metadata) == ("t", "t/0", "1.0", metadata)


@pytest.mark.parametrize("body", [b"{", b"{}"], ids=["no JSON", "no event"])
def test_a_body_that_is_no_event_is_refused_when_it_is_posted(body: bytes) -> None:
    receiver = WebhookReceiver(token="t0ken")
    assert post(receiver, body=body)[0] == 400
    assert not list(receiver.notifications(0))


def padded(body: bytes, size: int) -> bytes:
    """`body`, a JSON object, with blanks before its end."""
    return body[:-1] + b" " * size + b"}"


class SlowParsing:
    """Keeps the parsing of bodies that contain `mark` from ending, until `proceed` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mark: bytes) -> None:
        self.began, self.proceed = threading.Event(), threading.Event()
        self._parse, self._mark = webhooks._parse, mark
        monkeypatch.setattr(webhooks, "_parse", self)

    def __call__(self, body: bytes) -> Any:
        if self._mark in body:
            self.began.set()
            assert self.proceed.wait(TIMEOUT)
        return self._parse(body)


@pytest.mark.parametrize("size", [MEGABYTE, 100_000, 5_000])
def test_large_bodies_of_unknown_senders_are_parsed_one_at_a_time_and_none_of_them_waits(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Seventeen bodies of 0.5 MB a second had all 32 threads wait: a genuine notification was delayed by 32 seconds."""
    slow = SlowParsing(monkeypatch, b"stranger")
    strange = padded(json.dumps({"statusUpdate": {**STATUS, "contextId": "stranger"}}).encode(), size)
    receiver = WebhookReceiver(token={"t": "t0ken"}.get, on_notification=lambda notification: None)
    monkeypatch.setattr(receiver, "_parsing", Unblocking())
    with ThreadPoolExecutor() as pool:
        first = pool.submit(post, receiver, body=strange, X_A2A_Notification_Token="wrong")
        assert slow.began.wait(TIMEOUT)
        assert post(receiver, body=strange, X_A2A_Notification_Token="wrong")[0] == 503
        # Those of known senders need no turn.
        assert post(receiver, body=BODY)[0] == 204
        assert post(receiver, body=padded(BODY, size))[0] == 204
        slow.proceed.set()
        assert first.result(TIMEOUT)[0] == 401
    assert post(receiver, body=strange, X_A2A_Notification_Token="wrong")[0] == 401


class Unblocking:
    """A lock that no thread waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        assert not blocking
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()


def large_bodies() -> Iterator[Any]:
    status, metadata = TaskStatus(state=TaskState.WORKING), {"id": "another", "blanks": " " * 100_000}
    artifact = Artifact(artifact_id="a", parts=(TextPart("x" * 100_000),))
    events: list[Any] = [
        Task(id="t", context_id="c", status=status, artifacts=(artifact,), metadata=metadata),
        TaskStatusUpdateEvent(task_id="t", context_id="c", status=status, metadata=metadata),
        TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, metadata=metadata),
        Message(role=Role.AGENT, parts=artifact.parts, message_id="m", task_id="t", metadata=metadata),
    ]
    for event in events:
        for version in ("1.0", "0.3"):
            yield pytest.param(
                by_version(version).encode_item(StreamItem(event)), id=f"{type(event).__name__} of {version}"
            )
    message = {"kind": "message", "messageId": "m", "parts": [], "role": "agent", "taskId": "t"}
    task = {
        "artifacts": [{"artifactId": "a", "parts": [{"data": metadata, "kind": "data"}]}],
        "contextId": "c",
        "history": [message],
        "id": "t",
        "kind": "task",
    }
    yield pytest.param(json.dumps({**task, "status": {"message": message, "state": "working"}}).encode(), id="sorted")


@pytest.mark.parametrize("body", list(large_bodies()))
def test_the_sender_of_a_large_body_is_known_before_it_is_parsed(body: bytes) -> None:
    receiver = WebhookReceiver(token={"t": "t0ken"}.get)
    with receiver._parsing:
        assert post(receiver, body=body)[0] == 204
        assert post(receiver, body=body, X_A2A_Notification_Token="wrong")[0] == 503
        assert post(receiver, body=body, X_A2A_Notification_Token="")[0] == 503


def test_a_large_body_whose_task_is_only_found_by_parsing_needs_the_turn() -> None:
    receiver = WebhookReceiver(token={"t": "t0ken"}.get)
    body = padded(BODY.replace(b'"t"', rb'"\u0074"'), MEGABYTE)
    with receiver._parsing:
        assert post(receiver, body=body)[0] == 503
    assert post(receiver, body=body)[0] == 204


def test_few_tasks_are_looked_up_for_a_body_with_many_ids() -> None:
    asked: list[str] = []
    receiver = WebhookReceiver(token=asked.append)
    body = json.dumps({"statusUpdate": {**STATUS, "metadata": {"ids": [{"id": f"{n}"} for n in range(10_000)]}}})
    assert post(receiver, body=body.encode())[0] == 401
    assert asked == ["t", "9999", "t"]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_no_event_of_an_unknown_sender_is_decoded(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Ten bodies of 0.99 MB a second, with 76,000 parts each, delayed a genuine notification by 29 seconds."""
    decoded: list[Any] = []
    decode = webhooks._decode
    monkeypatch.setattr(webhooks, "_decode", lambda value: decoded.append(value) or decode(value))
    status = TaskStatus(state=TaskState.WORKING)
    events: list[Any] = [
        Task(id="t", context_id="c", status=status),
        TaskStatusUpdateEvent(task_id="t", context_id="c", status=status),
        TaskArtifactUpdateEvent(
            task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=(TextPart("x"),))
        ),
        Message(role=Role.AGENT, parts=(TextPart("x"),), message_id="m", task_id="t", context_id="c"),
    ]
    receiver = WebhookReceiver(token={"t": "t0ken", "u": "another"}.get)
    for event in events:
        body = by_version(version).encode_item(StreamItem(event))
        for token in ("wrong", "another", ""):
            assert post(receiver, body=body, X_A2A_Notification_Token=token)[0] == 401
        assert decoded == []
        assert post(receiver, body=body)[0] == 204
        assert len(decoded) == 1
        decoded.clear()


@pytest.mark.parametrize("size", [0, MEGABYTE])
def test_a_token_of_another_task_than_that_of_the_event_is_refused(size: int) -> None:
    receiver = WebhookReceiver(token={"t": "t0ken", "mine": "my token"}.get)
    for body in (
        b'{"kind":{},"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}},"taskId":"mine"}',
        b'{"other":{"id":"mine"},"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}',
        b'{"task":{"taskId":"mine","id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}',
        b'{"kind":"task","taskId":"mine","id":"t","contextId":"c","status":{"state":"working"}}',
        b'{"statusUpdate":{"metadata":{"id":"mine"},"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}',
    ):
        large = padded(body, size)
        assert post(receiver, body=large, X_A2A_Notification_Token="my token")[0] in (400, 401)
    assert not list(receiver.notifications(0))


def test_without_a_function_notifications_wait():
    receiver = WebhookReceiver(token="t0ken", replay_cache_size=2)
    assert [post(receiver, X_A2A_Notification_Id=f"t/{n}")[0] for n in range(3)] == [204, 204, 503]
    assert [notification.id for notification in receiver.notifications(timeout=0.01)] == ["t/0", "t/1"]
    assert post(receiver, X_A2A_Notification_Id="t/2")[0] == 204


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"method": "GET", "body": b""}, 405),
        ({"X_A2A_Notification_Token": "wrong"}, 401),
        ({"body": b"{"}, 400),
        ({"body": b" " * 2000}, 413),
    ],
)
def test_what_is_wrong_is_answered(options, status):
    assert post(WebhookReceiver(token="t0ken", max_body_bytes=1000), **options)[0] == status


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"CONTENT_LENGTH": "10", "wsgi.input": io.BytesIO(b"{}")}, "400"),
        ({"CONTENT_LENGTH": "x", "wsgi.input": io.BytesIO(BODY)}, "400"),
        ({"wsgi.input": io.BytesIO(BODY)}, "400"),
        ({"wsgi.input": io.BytesIO(BODY), "wsgi.input_terminated": True}, "204"),
        ({"wsgi.input": io.BytesIO(b" " * 2000), "wsgi.input_terminated": True}, "413"),
    ],
)
def test_bodies_are_read_as_far_as_they_are_known_to_go(environ, status):
    answered: list[str] = []
    receiver = WebhookReceiver(token="t0ken", max_body_bytes=1000)
    asked = {"REQUEST_METHOD": "POST", "HTTP_X_A2A_NOTIFICATION_TOKEN": "t0ken", **environ}
    receiver(asked, lambda line, headers: answered.append(line))
    assert answered[0].startswith(status)


# -- with an agent ------------------------------------------------------------------------------------------------------


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None: ...


@contextmanager
def served(app: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join(TIMEOUT)
        server.server_close()


def ask(message: Message, context: Any) -> Any:
    return InputRequired("and then?") if message.text == "ask" else (f"{n} " for n in range(3))


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_what_an_agent_signs_is_believed_by_its_published_key(version):
    loopback = URLGuard(allow=["127.0.0.1"])
    agent = Agent("signing")
    agent.message(ask)
    received: list[PushNotification] = []
    with ExitStack() as stack:
        app = stack.enter_context(
            A2AApp(agent, push=PushOptions(url_guard=loopback, signer=SIGNER, initial_backoff=0.01))
        )
        address = stack.enter_context(served(app))
        receiver = WebhookReceiver(
            trusted_keys=f"{address}/.well-known/jwks.json",
            url_guard=loopback,
            token="t0ken",
            issuer="https://agent.example/",
            on_notification=received.append,
        )
        hook = stack.enter_context(served(receiver))
        config = TaskPushNotificationConfig(url=f"{hook}/h?q=1", token="t0ken")
        request = SendMessageRequest(
            message=Message(role=Role.USER, parts=(TextPart("go"),)),
            configuration=SendMessageConfiguration(task_push_notification_config=config),
        )
        task = app.endpoint()(Call(op.SEND_MESSAGE, request, CallContext(version=version)))
        eventually(lambda: received and _state(received[-1]) is TaskState.COMPLETED, "the last notification")
    assert {notification.task_id for notification in received} == {task.id}
    assert {notification.version for notification in received} == {version}
    assert received[-1].claims["aud"] == f"{hook}/h"
    if version == "0.3":
        assert received[-1].event.text == task.text
    else:
        assert len(received) == 3 + 4


def _state(notification: PushNotification) -> Any:
    status = getattr(notification.event, "status", None)
    return status and status.state


def test_the_keys_of_all_that_an_app_signs_are_published():
    agent = Agent("signing")
    agent.message(ask)
    cards = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="cards")
    with A2AApp(agent, url="https://agent.example", card_signer=cards, push=PushOptions(signer=SIGNER)) as app:
        session = wsgi_session(validator(app))
        answer = session.get("http://agent.test/.well-known/jwks.json", timeout=60)
        assert answer.json() == {"keys": [cards.public_jwk, SIGNER.public_jwk]}
        assert "d" not in json.dumps([sorted(key) for key in answer.json()["keys"]]).replace("kid", "")
        assert answer.headers["Content-Type"] == "application/json"
        assert session.post("http://agent.test/.well-known/jwks.json", timeout=60).status_code == 405


def test_an_app_that_signs_nothing_has_no_key_set():
    agent = Agent("plain")
    agent.message(ask)
    with A2AApp(agent, push=True) as app:
        assert wsgi_session(app).get("http://agent.test/.well-known/jwks.json", timeout=60).status_code == 404


@pytest.mark.parametrize("headers", [Headers, dict])
def test_headers_are_taken_as_the_web_framework_has_them(headers):
    receiver = WebhookReceiver(token="t0ken")
    given: HeaderItems = headers([("x-A2A-notification-TOKEN", "t0ken"), ("X-A2A-Notification-Id", "n-1")])
    assert receiver.receive(given, BODY).id == "n-1"


def test_the_headers_of_a_request_of_werkzeug_are_taken():
    request = Request.from_values(method="POST", data=BODY, headers={"X-A2A-Notification-Token": "t0ken"})
    assert WebhookReceiver(token="t0ken").receive(request.headers, request.get_data()) is not None
