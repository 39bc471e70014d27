"""The plugin in projects that use it, and in those that do not."""

from __future__ import annotations

import os
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.live import ROOT

PLUGIN = "a2a_sync.testing.plugin"
USES_IT = """
from a2a_sync.testing import ScriptedAgent

def test_it(a2a_client, a2a_wsgi_client):
    for make in (a2a_client, a2a_wsgi_client):
        assert make(ScriptedAgent("Hello")).send("hi").text == "Hello"
"""
USES_NOTHING = """
import sys
import threading

def test_nothing_was_loaded():
    loaded = {name for name in sys.modules if name.startswith("a2a_sync.")}
    assert not {name for name in loaded if not name.startswith(("a2a_sync.testing", "a2a_sync.lazymodule"))}
    assert not {"requests", "werkzeug"} & set(sys.modules)
    assert threading.active_count() == 1
"""
SERVED = """
from a2a_sync import A2AApp
from a2a_sync.testing import ScriptedAgent

app = A2AApp(ScriptedAgent(["one ", "two"]))
"""
USES_GUNICORN = """
def test_it(a2a_client, a2a_gunicorn):
    server = a2a_gunicorn("served:app")
    assert a2a_client(server.url).send("hi").text == "one two"
"""


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_theirs.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        *options,
        "test_theirs.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_plugin_is_an_entry_point_of_its_own_name() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["options.entry_points"]["pytest11"].split() == [PLUGIN, "=", PLUGIN]


def test_the_fixtures_work_in_another_project(tmp_path: Path) -> None:
    done = run(tmp_path, USES_IT, "-p", PLUGIN)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_fixture_nothing_is_loaded(tmp_path: Path) -> None:
    done = run(tmp_path, USES_NOTHING, "-p", PLUGIN)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_fixture_has_our_prefix(tmp_path: Path) -> None:
    ours = [run(tmp_path, "", *plugin, "--fixtures").stdout for plugin in ((), ("-p", PLUGIN))]
    before, after = ({line.split(" ")[0] for line in shown.splitlines() if " -- " in line} for shown in ours)
    assert len(after - before) >= 3
    assert all(name.startswith("a2a_") for name in after - before)


def test_the_testing_names_are_listed_and_loaded_on_first_use() -> None:
    code = "import sys, a2a_sync.testing; print(*(set(sys.modules) & {'pytest', 'requests', 'werkzeug', 'a2a_sync.wsgi.app'}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert out.split() == []


def test_what_needs_no_pytest_loads_none() -> None:
    code = "import sys; from a2a_sync.testing import *; print('pytest' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert out.split() == ["False"]


@pytest.mark.live
def test_gunicorn_serves_a_module_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    done = run(tmp_path, USES_GUNICORN, "-p", PLUGIN)
    assert done.returncode == 0, done.stdout + done.stderr
