"""``a2a-sync chat``: on a terminal, and with lines from standard input."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from a2a_sync import Client
from tests.live import ROOT

Run = Callable[..., Result]

TIMEOUT = 90.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


def talk(run: Run, url: str, *lines: str, options: tuple[str, ...] = ()) -> Result:
    return run("chat", url, *options, input="".join(f"{line}\n" for line in lines).encode())


# -- lines from standard input --


def test_each_line_is_a_message_of_one_conversation(run: Run, url: str) -> None:
    result = talk(run, url, "hello", "", "again", options=("--context", "chatted"))
    assert (result.exit_code, result.stdout) == (0, "you said hello\nyou said again\n")
    with Client(url) as client:
        assert client.list_tasks(context_id="chatted").total_size == 2


def test_a_backslash_continues_a_message_on_the_next_line(run: Run, url: str) -> None:
    assert talk(run, url, "one\\", "two").stdout == "you said one\ntwo\n"


def test_a_question_is_shown_and_the_next_line_answers_it(run: Run, url: str) -> None:
    asked = talk(run, url, "ask")
    assert (asked.exit_code, asked.stdout) == (4, "which one?\n")
    assert talk(run, url, "ask", "this").stdout == "which one?\nyou said this\n"


@pytest.mark.parametrize("answer", ["2", "blue"])
def test_options_are_numbered_and_chosen_by_number_or_text(run: Run, url: str, answer: str) -> None:
    chosen = talk(run, url, "choose", answer)
    assert chosen.stdout == "which colour? (red, blue)\n  1) red\n  2) blue\nchose blue\n"


def test_files_go_with_the_next_message(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n")
    sent = talk(run, url, "/file a.csv", "upload", "upload", "/file missing.csv", "/file")
    assert sent.stdout.startswith("a.csv text/csv 4\n")
    assert sent.stdout.count("text/csv") == 1
    assert "missing.csv" in sent.stderr
    assert "name a file: /file PATH" in sent.stderr


def test_a_task_is_shown_continued_followed_and_cancelled_by_its_id(run: Run, url: str) -> None:
    with Client(url) as client:
        asking = client.send("ask").task.id
        slow = client.send("slow", return_immediately=True, stream=False).task.id
    result = talk(run, url, f"/task {asking}", "mine", f"/resume {asking}", f"/cancel {slow}", "/task")
    assert result.stdout == "which one?\nyou said mine\nyou said mine\nyou said mine\n"
    assert f"task {slow} is canceled" in result.stderr
    assert talk(run, url, "mine", options=("--task", asking)).exit_code != 2


def test_commands_that_cannot_work_say_why_and_the_conversation_goes_on(run: Run, url: str) -> None:
    result = talk(
        run, url, "/task", "/cancel", "/resume", "/nothing", "/task no-task", "/help", "//etc", "/quit", "never"
    )
    for text in (
        "name one: /task ID",
        "name one: /cancel ID",
        "name one: /resume ID",
        "no command /nothing",
        "Error: ",
    ):
        assert text in result.stderr
    assert "/resume" in result.stdout
    assert result.stdout.endswith("you said /etc\n")


def test_a_new_conversation_has_another_context(run: Run, url: str) -> None:
    talk(run, url, "one", "/new", "two", options=("--context", "first-one"))
    with Client(url) as client:
        assert client.list_tasks(context_id="first-one").total_size == 1


def test_an_agent_that_cannot_be_reached_ends_the_conversation_before_it_begins(run: Run) -> None:
    assert talk(run, "http://127.0.0.1:1", "hello").exit_code == 3


# -- a terminal --


class Terminal:
    """The command on a terminal of its own. `seen` is what it has written, without control sequences."""

    def __init__(self, child: subprocess.Popen[bytes], master: int) -> None:
        self.child = child
        self._master = master
        self._raw = b""
        self._shown = 0

    @property
    def seen(self) -> str:
        return _CONTROL.sub("", self._raw.decode(errors="replace"))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` appears after what earlier waits have found."""
        until = time.monotonic() + TIMEOUT
        while (found := self.seen.find(text, self._shown)) < 0:
            ready, _, _ = select.select([self._master], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"{text!r} was not shown:\n{self.seen}"
            try:
                self._raw += os.read(self._master, 65536)
            except OSError:
                raise AssertionError(f"ended before {text!r}:\n{self.seen}") from None
        self._shown = found + len(text)


@contextmanager
def chatting(url: str, home: Path) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "HOME": str(home),
    }
    variables.pop("XDG_CONFIG_HOME", None)
    child = subprocess.Popen(
        [sys.executable, "-m", "a2a_sync", "chat", url, "--out", "saved"],
        cwd=home,
        env=variables,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=lambda: _own_terminal(slave),
    )
    os.close(slave)
    try:
        yield Terminal(child, master)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(TIMEOUT)
        os.close(master)


def _own_terminal(slave: int) -> None:
    """In the child: Ctrl-C that is typed reaches it as a signal."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def test_a_terminal_has_history_several_lines_options_and_interrupts(url: str, tmp_path: Path) -> None:
    pytest.importorskip("prompt_toolkit", reason="needs the extra cli")
    with chatting(url, tmp_path) as terminal:
        terminal.wait_for("you>")
        terminal.type("hello\r")
        terminal.wait_for("you said hello")
        terminal.wait_for("you>")
        terminal.type("\x1b[A\r")  # the newest line of the history
        terminal.wait_for("you said hello")
        terminal.wait_for("you>")
        terminal.type("first\x1b\rsecond\r")  # Alt-Enter
        terminal.wait_for("you said first\nsecond")
        terminal.wait_for("you>")
        terminal.type("choose\r")
        terminal.wait_for("2) blue")
        terminal.wait_for("answer>")
        terminal.type("1\r")
        terminal.wait_for("chose red")
        terminal.wait_for("you>")
        terminal.type("slow\r")
        terminal.wait_for("first piece")
        terminal.child.send_signal(signal.SIGINT)
        terminal.wait_for("continues: /resume follows it")
        terminal.wait_for("you>")
        terminal.type("/cancel\r")
        terminal.wait_for("is canceled")
        terminal.wait_for("you>")
        terminal.type("\x04")
        assert terminal.child.wait(TIMEOUT) == 0
    history = tmp_path / ".config" / "a2a-sync" / "history"
    assert "+hello" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    assert "Traceback" not in terminal.seen
