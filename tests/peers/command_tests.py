"""Tests of the command line against an agent on another implementation, with the commands of `tests.peers.client_tests`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from tests.cli.conftest import run as run

Run = Callable[..., Result]


def waiting_task(run: Run, url: str) -> str:
    """The id of a task that waits for an answer."""
    task: str = json.loads(run("send", url, "ask", "--json").stdout)["task"]["id"]
    return task


class CommandTests:
    """Subclassed by a module with a fixture `url`."""

    def test_the_card_is_shown(self, run: Run, url: str) -> None:
        assert run("card", url).stdout.startswith("name          official 1.0.0\n")

    def test_messages_are_sent_with_and_without_a_stream(self, run: Run, url: str) -> None:
        assert run("send", url, "hello").stdout == "hello\n"
        assert run("send", url, "hello", "--no-stream").stdout == "hello\n"
        assert run("send", url, "count 3").stdout == "1 2 3 \n"
        assert run("send", url, "message").stdout == "no task was needed\n"
        failed = run("send", url, "fail")
        assert (failed.exit_code, "failed: no luck" in failed.stderr) == (1, True)

    def test_files_go_both_ways(self, run: Run, url: str, tmp_path: Path) -> None:
        (tmp_path / "sent.txt").write_text("some text")
        assert run("send", url, "parts", "--file", "sent.txt", "--out", "answers").exit_code == 0
        assert (tmp_path / "answers" / "sent.txt").read_text() == "some text"

    def test_a_question_is_watched_read_answered_and_cancelled(self, run: Run, url: str) -> None:
        task = waiting_task(run, url)
        for command in ("watch", "get"):
            shown = run(command, url, task)
            assert (shown.exit_code, shown.stdout) == (4 if command == "watch" else 0, "Which size?\n"), shown.output
        assert run("send", url, "large", "--task", task).stdout == "large\n"
        assert run("watch", url, task).exit_code == 0
        cancelled = run("cancel", url, waiting_task(run, url))
        assert (cancelled.exit_code, cancelled.stdout.split()[1]) == (0, "canceled")

    def test_a_conversation_is_held(self, run: Run, url: str) -> None:
        lines = "hello\nask\nlarge\n/task\ncount 3\n"
        assert run("chat", url, input=lines.encode()).stdout == "hello\nWhich size?\nlarge\nlarge\n1 2 3 \n"

    def failed_checks(self, run: Run, url: str) -> set[tuple[str, str]]:
        """The interface and the id of each check that fails."""
        report = [json.loads(line) for line in run("check", url, "--json").stdout.splitlines()]
        assert len(report) > 30
        return {(one["interface"], one["check"]) for one in report if one["outcome"] == "fail"}
