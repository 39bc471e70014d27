"""Projects that ``a2a-sync new`` has made, tested as their README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from a2a_sync.cli import main
from tests.live import ROOT


def create(folder: Path, *options: str) -> Path:
    """The folder of a new project ``word-counter`` in `folder`."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        made = CliRunner().invoke(main, ["new", "word-counter", *options])
    finally:
        os.chdir(before)
    assert made.exit_code == 0, made.output
    return folder / "word-counter"


def run_tests(project: Path) -> str:
    """What pytest prints for the tests of the project, which must pass."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "TASKS_STORE"):
        variables.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
