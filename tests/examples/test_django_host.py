"""The Django project, served both ways: users from its database, notes through its ORM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from a2a_sync import Client, Task, TaskState
from tests.engine import eventually
from tests.live import ROOT, LiveServer, gunicorn, uvicorn

pytestmark = pytest.mark.live

USERS = """
from django.contrib.auth.models import User
for name in ("ada", "grace"):
    User.objects.create_user(name, password=name + "-secret")
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A project whose database has its tables and two users, as the README makes them."""
    folder = tmp_path_factory.mktemp("notes")
    settings = {"DJANGO_SETTINGS_MODULE": "tests.examples.django_settings", "NOTES_FOLDER": str(folder)}
    for command in (
        ["makemigrations", "--check"],
        ["check", "--fail-level", "WARNING"],
        ["migrate"],
        ["shell", "-c", USERS],
    ):
        subprocess.run(
            [sys.executable, "-m", "django", *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
            check=True,
            capture_output=True,
            timeout=60,
        )
    return settings


@pytest.fixture(scope="module", params=["wsgi", "asgi"])
def server(request: pytest.FixtureRequest, environment: dict[str, str]) -> Iterator[LiveServer]:
    target = f"examples.django_host.site.{request.param}:application"
    if request.param == "asgi":
        with uvicorn(target, environment=environment) as server:
            yield server
    else:
        with gunicorn(target, "-c", "python:a2a_sync.gunicorn", environment=environment) as server:
            yield server


Notes = Callable[[str], Client]


@pytest.fixture
def notes(server: LiveServer) -> Iterator[Notes]:
    """A client of the agent, as one of the users."""
    made: list[Client] = []

    def of(user: str) -> Client:
        made.append(Client(server.url + "/agents/notes", auth=(user, user + "-secret"), timeout=60))
        return made[-1]

    yield of
    for client in made:
        client.close()


def test_notes_are_kept_in_the_projects_database_for_each_user(notes: Notes, request: pytest.FixtureRequest) -> None:
    text = f"to run {request.node.callspec.id}"
    assert notes("ada").send(f"remember {text}").text == f"Noted for ada: {text}"
    assert text in notes("ada").send("what was there?").text.splitlines()
    assert text not in notes("grace").send("what was there?").text


def test_the_programs_of_the_readme_work(server: LiveServer) -> None:
    program = [sys.executable, "examples/django_host/client.py", server.url + "/agents/notes"]
    said = ["grace", "grace-secret", "remember the milk"]
    done = subprocess.run([*program, *said], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "Noted for grace: the milk\n"


def test_many_writers_at_once_lose_nothing_and_leave_no_connection(
    notes: Notes, server: LiveServer, environment: dict[str, str]
) -> None:
    client = notes("ada")
    client.send("remember that an empty list is answered with a sentence")
    before = len(client.send("list").text.splitlines())
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda number: client.send(f"remember {number}"), range(6)))
    assert {answer.state for answer in answers if isinstance(answer, Task)} == {TaskState.COMPLETED}
    assert len(client.send("list").text.splitlines()) == before + 6
    database = str(Path(environment["NOTES_FOLDER"], "notes.db").resolve())
    # Each run was on a thread of its own, which lives on without it.
    eventually(lambda: database not in open_files(server.pid), "the end of all connections")


def test_a_stranger_is_rejected_and_the_page_beside_the_agent_is_djangos(server: LiveServer) -> None:
    with Client(server.url + "/agents/notes") as stranger:
        task = stranger.send("list")
        assert isinstance(task, Task)
        assert task.state is TaskState.REJECTED
    assert server.url + "/agents/notes/" in requests.get(server.url, timeout=60).text


def open_files(pid: int) -> list[str]:
    """What a server and its workers have open."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    links = [link for process in (pid, *children) for link in Path(f"/proc/{process}/fd").iterdir()]
    return [target for link in links if (target := resolved(link))]


def resolved(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""
