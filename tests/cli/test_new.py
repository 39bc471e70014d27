"""Projects of ``a2a-sync new``: their tests pass, and the command of their Dockerfile serves the agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from a2a_sync import Client
from a2a_sync.cli.new import VARIANTS
from tests.cli.projects import create, run_tests
from tests.live import HOST, ROOT, free_port, live_server

Run = Callable[..., Result]
SITES = {"plain": (), "flask": ("--flask",), "django": ("--django",)}


@pytest.mark.slow
@pytest.mark.parametrize("variant", SITES)
def test_the_tests_of_a_project_pass_and_its_dockerfile_serves_the_agent(variant: str, tmp_path: Path) -> None:
    project = create(tmp_path, *SITES[variant])
    assert "3 passed" in run_tests(project)
    lines = (project / "Dockerfile").read_text().splitlines()
    words = json.loads(next(line for line in lines if line.startswith("CMD ")).removeprefix("CMD "))
    port = free_port()
    command = [sys.executable, "-m", *[word.replace("0.0.0.0:8000", f"{HOST}:{port}") for word in words]]
    url = f"http://{HOST}:{port}"
    settings = {"TASKS_STORE": f"sqlite:///{tmp_path}/tasks.db"}
    with live_server(command, url, environment=settings, folder=project, wait=60.0) as server:
        server.await_answer(60.0)
        with Client(url + VARIANTS[variant].path) as client:
            assert client.send("one two three").text == "3 words"
        health = next(line for line in lines if line.startswith("HEALTHCHECK CMD ")).removeprefix("HEALTHCHECK CMD ")
        _, *arguments = [word.replace("127.0.0.1:8000", f"{HOST}:{port}") for word in json.loads(health)]
        assert subprocess.run([sys.executable, *arguments], timeout=60).returncode == 0
    assert not list(project.glob("*.db"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_file_of_a_project_is_complete_and_formatted(variant: str, tmp_path: Path) -> None:
    options = SITES.get(variant, ("--framework", variant))
    project = create(tmp_path, *options)
    for path in project.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert "MODULE" not in text.replace("DJANGO_SETTINGS_MODULE", ""), path
            assert "$" not in text, path
            assert text.endswith("\n")
            if path.suffix == ".py":
                compile(text, path.name, "exec")
    assert (project / "word_counter.py").exists()
    assert "a2a-sync chat" in (project / "README.md").read_text()


def test_a_project_names_its_files_and_the_next_command(run: Run) -> None:
    made = run("new", "word-counter")
    assert "word-counter/tests/test_word_counter.py" in made.stdout.splitlines()
    assert "next: cd word-counter && " in made.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["json"],
        ["wsgi"],
        ["9lives"],
        ["a/b"],
        ["..."],
        ["class"],
        ["class-"],
        ["one", "--flask", "--framework", "langgraph"],
        ["one", "--framework", "nothing"],
    ],
)
def test_names_and_options_that_cannot_work_are_wrong_usage(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    assert run("new", *arguments).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_nothing_that_exists_is_changed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    refused = run("new", "mine")
    assert (refused.exit_code, "mine exists already" in refused.stderr) == (2, True)
    assert not list((tmp_path / "mine").iterdir())


def test_the_templates_are_part_of_the_package() -> None:
    patterns = [line.strip() for line in (ROOT / "setup.cfg").read_text().splitlines() if "cli/templates" in line]
    package = ROOT / "a2a_sync"
    packed = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    assert packed == set((package / "cli/templates").rglob("*.in"))
