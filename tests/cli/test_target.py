from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from a2a_sync import A2AApp, AgentHost, Client, MemoryStore, SQLiteStore, Task
from a2a_sync.cli.target import TargetError, make_app


@pytest.mark.parametrize("name", ["agent", "app", "executor", "make", "Actor", "Executor"])
def test_apps_agents_executors_and_factories_of_them_become_an_app(name: str) -> None:
    with make_app(f"tests.cli.agents:{name}") as app, Client(app) as client:
        answer = client.send("hi")
    assert isinstance(app, A2AApp)
    assert isinstance(answer, Task)
    assert answer.state == "completed"


def test_a_host_of_several_agents_is_taken_as_it_is() -> None:
    with make_app("tests.agents.many:host") as host:
        assert isinstance(host, AgentHost)
        assert sorted(host) == ["one", "three", "two"]


def test_without_an_attribute_it_is_app() -> None:
    assert make_app("tests.cli.agents").agent_card().name == "actor"


def test_an_agent_gets_the_store_and_the_address(tmp_path: Path) -> None:
    with make_app("tests.cli.agents:agent", store=f"sqlite:///{tmp_path}/t.db", url="https://a.example/x") as app:
        assert isinstance(app.store, SQLiteStore)
        assert app.agent_card().supported_interfaces[0].url == "https://a.example/x/"
    with make_app("tests.cli.agents:agent") as app:
        assert isinstance(app.store, MemoryStore)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("no_such_module_here:app", "no module 'no_such_module_here'"),
        ("tests.cli.nothing:app", "no module 'tests.cli.nothing'"),
        ("tests.cli.agents:nothing", "has no attribute 'nothing'"),
        ("tests.cli.agents:number", "is of type int: neither"),
        ("tests.cli.agents:make_wrong", "of type str: neither"),
        ("tests.cli.agents:make_broken", "ValueError: no database"),
        ("tests.cli.agents:mute", "agent 'mute' has no handler"),
        ("tests/cli/agents.py:app", "name the module: tests.cli.agents:app"),
        ("", "cannot import ''"),
        ("a..b:app", "no module 'a..b'"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(target: str, problem: str) -> None:
    with pytest.raises(TargetError) as caught:
        make_app(target)
    assert problem in str(caught.value)


def test_a_failing_module_is_distinguished_from_a_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import a_missing_package\n")
    (tmp_path / "breaks.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match="importing 'needs_more' failed: No module named 'a_missing_package'"):
        make_app("needs_more:app")
    with pytest.raises(TargetError, match="importing 'breaks' failed: ZeroDivisionError"):
        make_app("breaks:app")


def test_settings_do_not_go_into_an_app_that_has_its_own() -> None:
    with pytest.raises(TargetError, match="--store goes with an Agent"):
        make_app("tests.cli.agents:app", store="memory:")
    with pytest.raises(TargetError, match="--url goes with an Agent"):
        make_app("tests.cli.agents:make", url="http://x/")


def test_debug_goes_into_an_app_that_is_made_here() -> None:
    for debug in (False, True):
        with make_app("tests.cli.agents:agent", debug=debug) as app, Client(app) as client:
            task = client.send("crash")
            assert isinstance(task, Task)
            assert task.status.message is not None
            assert ("RuntimeError: a secret" in task.status.message.text) is debug
    with pytest.raises(TargetError, match="--debug goes with an Agent"):
        make_app("tests.cli.agents:app", debug=True)


def test_a_store_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TargetError, match="nosuch"):
        make_app("tests.cli.agents:agent", store="nosuch://x")


def test_the_command_line_loads_no_http_client_before_gevent_can_patch_it() -> None:
    """`serve --gevent` imports this package in each worker before it patches the standard library."""
    code = "import sys, a2a_sync.cli; sys.exit(bool({'requests', 'urllib3'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], timeout=100).returncode == 0
