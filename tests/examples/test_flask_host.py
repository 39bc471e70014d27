"""The Flask site: people and programs log in, and meet in the same notes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests

from a2a_sync import Client, Task, TaskState
from a2a_sync.errors import HTTPStatusError
from tests.live import ROOT, LiveServer, gunicorn

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with gunicorn("examples.flask_host.app:site", "-c", "python:a2a_sync.gunicorn") as server:
        yield server


def client_says(server: LiveServer, token: str, text: str) -> str:
    program = [sys.executable, "examples/flask_host/client.py", server.url + "/agents/notes", token, text]
    return subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout


def test_what_a_program_notes_is_on_the_page_of_the_same_user_and_of_no_other(server: LiveServer) -> None:
    assert client_says(server, "ada-secret", "remember to buy milk") == "Noted for ada: to buy milk\n"
    assert client_says(server, "ada-secret", "what was there?") == "to buy milk\n"
    assert client_says(server, "grace-secret", "what was there?") == "Nothing yet.\n"
    pages = {}
    for user in ("ada", "grace"):
        with requests.Session() as browser:
            assert "Log in" in browser.get(server.url, timeout=60).text
            form = {"user": user, "password": f"{user}-secret"}
            pages[user] = browser.post(server.url + "/login", form, timeout=60).text
    assert "to buy milk" in pages["ada"]
    assert "nothing yet" in pages["grace"]


def test_the_card_is_public_and_an_answer_is_not(server: LiveServer) -> None:
    url = server.url + "/agents/notes"
    with Client(url) as stranger:
        assert stranger.card().name == "notes"
        with pytest.raises(HTTPStatusError, match=r"401.*Bearer"):
            stranger.send("what was there?")


def test_a_page_of_another_site_cannot_note_anything(server: LiveServer) -> None:
    with requests.Session() as browser:
        browser.post(server.url + "/login", {"user": "ada", "password": "ada-secret"}, timeout=60)
        assert browser.cookies
        answer = browser.post(
            server.url + "/agents/notes/", b"{}", headers={"Origin": "https://evil.example"}, timeout=10
        )
        assert answer.status_code == 403


def test_a_stopping_worker_ends_the_agents_streams_in_good_order() -> None:
    with gunicorn("examples.flask_host.app:site", "-c", "python:a2a_sync.gunicorn") as server:
        with Client(server.url + "/agents/notes", auth="ada-secret") as client:
            task = client.send("remember")
            assert isinstance(task, Task)
            assert task.state is TaskState.REJECTED
        assert server.terminate() == 0
        assert "Traceback" not in server.log
