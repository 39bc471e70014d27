"""Login tokens and session cookies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from a2a_sync.console import sessions
from a2a_sync.console.sessions import KEY_VARIABLE, SESSION_AGE, TOKEN_AGE, Sessions
from tests.stopwatch import set_clock


@pytest.fixture(autouse=True)
def no_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = sessions.time.time()
    set_clock(monkeypatch, sessions, time=now + seconds)


def test_a_token_works_once_in_all_processes_with_the_key() -> None:
    one, other = Sessions(b"shared"), Sessions(b"shared")
    token = one.token()
    assert other.redeem(token)
    assert not one.redeem(token)
    assert not other.redeem(token)


def test_a_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Sessions()
    token = own.token()
    pass_time(monkeypatch, TOKEN_AGE + 1)
    assert not own.redeem(token)


def test_a_cookie_lasts_longer_and_expires_too(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Sessions()
    cookie = own.cookie()
    pass_time(monkeypatch, TOKEN_AGE + 1)
    assert own.admits(cookie)
    pass_time(monkeypatch, SESSION_AGE)
    assert not own.admits(cookie)


def test_one_is_not_the_other() -> None:
    own = Sessions()
    assert not own.admits(own.token())
    assert not own.redeem(own.cookie())


@pytest.mark.parametrize(
    "value", ["", ".", "..", "9999999999", "9999999999.x.", "x.y.z", "9999999999.x.ü", "\ud800.x.y"]
)
def test_what_was_not_signed_is_refused(value: str) -> None:
    own = Sessions()
    assert not own.redeem(value)
    assert not own.admits(value)


def test_a_random_key_is_known_to_no_other_process() -> None:
    assert not Sessions().admits(Sessions().cookie())
    assert not Sessions().shared


def test_the_environment_can_give_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "given")
    assert Sessions().admits(Sessions().cookie())
    assert Sessions().shared


def test_files_of_other_users_among_the_marks_prevent_no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sessions = Sessions(b"k" * 32)
    assert sessions.redeem(sessions.token())
    (mark,) = tmp_path.iterdir()
    family = mark.name[:-32]
    (tmp_path / f"{family}link").symlink_to("/nowhere/at/all")
    (tmp_path / f"{family}folder").mkdir()
    os.utime(tmp_path / f"{family}folder", (0, 0))
    assert sessions.redeem(sessions.token())
