"""``a2a-sync hooks`` against a real server on a real socket."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result

from a2a_sync import A2AApp
from tests.cli.agents import Actor
from tests.cli.conftest import served
from tests.push.receiver import LOOPBACK

Run = Callable[..., Result]
HOOK = "http://127.0.0.1:9/hook"


@pytest.fixture(scope="module")
def pushing_url() -> Iterator[str]:
    """An agent that posts to webhooks on this machine."""
    with served(A2AApp(Actor(), push=LOOPBACK)) as address:
        yield address


@pytest.fixture
def task(run: Run, pushing_url: str) -> str:
    found = re.search(r"task ([0-9a-f-]{36})", run("send", pushing_url, "ask").stderr)
    assert found
    return found[1]


def test_webhooks_are_added_listed_and_removed(run: Run, pushing_url: str, task: str) -> None:
    assert run("hooks", pushing_url, task).stdout == ""
    added = run("hooks", pushing_url, task, "--add", HOOK, "--id", "mine")
    assert (added.exit_code, added.stdout) == (0, f"mine  {HOOK}\n")
    assert run("hooks", pushing_url, task).stdout == f"mine  {HOOK}\n"
    assert run("hooks", pushing_url, task, "--remove", "mine").stdout == ""


def test_json_shows_all_that_is_known(run: Run, pushing_url: str, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_SYNC_HOOK_TOKEN", "t0ken")
    shown = json.loads(run("hooks", pushing_url, task, "--add", HOOK, "--id", "mine", "--json").stdout)
    assert shown == {"configs": [{"id": "mine", "taskId": task, "url": HOOK, "token": "t0ken"}]}


def test_what_is_refused_is_said(run: Run, pushing_url: str, url: str, task: str) -> None:
    refused = run("hooks", pushing_url, task, "--add", "http://10.0.0.1/")
    assert (refused.exit_code, "private" in refused.stderr) == (1, True)
    assert run("hooks", pushing_url, "unknown").exit_code == 1
    assert run("hooks", url, task).exit_code == 1
    assert run("hooks", pushing_url, task, "--id", "mine").exit_code == 2
