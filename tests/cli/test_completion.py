"""Completion scripts; that of bash is run by bash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

_COMPLETE = r"""
source completion.sh
COMP_WORDS=(a2a-sync se) COMP_CWORD=1
_a2a_sync_completion a2a-sync
echo "${COMPREPLY[@]}"
COMPREPLY=()
COMP_WORDS=(a2a-sync send http://x --in) COMP_CWORD=3
_a2a_sync_completion a2a-sync
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_the_command(run: Run, shell: str) -> None:
    script = run("completion", shell)
    assert script.exit_code == 0
    assert f"_A2A_SYNC_COMPLETE={shell}_complete" in script.stdout.replace("env ", "")


def test_an_unknown_shell_is_wrong_usage(run: Run) -> None:
    assert run("completion", "tcsh").exit_code == 2


def test_bash_completes_commands_and_options(run: Run, tmp_path: Path) -> None:
    (tmp_path / "completion.sh").write_text(run("completion", "bash").stdout)
    command = tmp_path / "a2a-sync"
    command.write_text(f"#!{sys.executable}\nfrom a2a_sync.cli import main\nmain(prog_name='a2a-sync')\n")
    command.chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", _COMPLETE], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split("\n")[:2] == ["send serve", "--insecure"], done.stderr
