"""Completion scripts, in the shells: a line typed on a terminal, after the set-up that docs/howto/command-line.md names."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.live import ROOT

Run = Callable[..., Result]

_TIMEOUT = 100.0
#: By shell: its file, the line of the documentation, what else the file needs, and how the shell is started.
_SHELLS = {
    "bash": (".bashrc", 'eval "$(a2a-sync completion bash)"', "", ["bash", "--noprofile", "-i"]),
    "zsh": (
        ".zshrc",
        'eval "$(a2a-sync completion zsh)"',
        "autoload -Uz compinit && compinit -u",
        ["zsh", "-d", "-i"],
    ),
    "fish": (".config/fish/config.fish", "a2a-sync completion fish | source", "", ["fish", "-i"]),
}
#: The command, which completes, prints scripts, and otherwise writes down its arguments and closes the terminal.
_COMMAND = """#!{python}
import os, sys
if "_A2A_SYNC_COMPLETE" in os.environ or sys.argv[1] == "completion":
    from a2a_sync.cli import main
    main(prog_name="a2a-sync")
with open({arguments!r}, "w") as file:
    file.write("\\n".join(sys.argv[1:]))
os.kill(os.getppid(), 9)
"""


def test_an_unknown_shell_is_wrong_usage(run: Run) -> None:
    assert run("completion", "tcsh").exit_code == 2


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("shell", _SHELLS)
def test_a_shell_completes_commands_options_files_and_folders(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    name, line, before, command = _SHELLS[shell]
    assert line.replace("|", "&#124;") in (ROOT / "docs" / "howto" / "command-line.md").read_text()
    startup = tmp_path / name
    startup.parent.mkdir(parents=True, exist_ok=True)
    startup.write_text(f"{before}\n{line}\necho now-type\n")
    (tmp_path / "report.txt").touch()
    (tmp_path / "downloads").mkdir()
    # Without this folder fish reads all manuals of the system when it starts.
    (tmp_path / ".local/share/fish/generated_completions").mkdir(parents=True)
    arguments, executable = tmp_path / "arguments", tmp_path / "bin" / "a2a-sync"
    executable.parent.mkdir()
    executable.write_text(_COMMAND.format(python=sys.executable, arguments=str(arguments)))
    executable.chmod(0o755)
    shown = type_into(command, tmp_path, "now-type", "a2a-sync sen\thttp://x hi --ins\t--file rep\t--out down\t\r")
    assert arguments.exists(), shown
    words = [word.rstrip("/") for word in arguments.read_text().split("\n")]
    assert words == ["send", "http://x", "hi", "--insecure", "--file", "report.txt", "--out", "downloads"], shown


def type_into(command: list[str], home: Path, prompt: str, keys: str) -> str:
    """What a shell shows on a terminal of its own until it ends; `keys` are typed when it has shown `prompt`."""
    master, slave = pty.openpty()
    variables = {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "LANG": "C.UTF-8",
    }
    child = subprocess.Popen(
        command,
        cwd=home,
        env=variables,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    alarm = threading.Timer(_TIMEOUT, child.kill)
    alarm.start()
    shown = b""
    try:
        while block := os.read(master, 65536):
            # Once: the terminal repeats what is typed.
            if prompt.encode() in shown + block and prompt.encode() not in shown:
                os.write(master, keys.encode())
            shown += block
    except OSError:
        pass  # what Linux says when the other side is gone
    finally:
        alarm.cancel()
        os.close(master)
        child.wait(_TIMEOUT)
    return shown.decode(errors="replace")
