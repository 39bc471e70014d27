"""The commands against a real server on a real socket."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from a2a_sync import Client, Task
from a2a_sync.cli import main
from a2a_sync.codec import by_version
from tests.cli.agents import HOSTILE
from tests.cli.test_agents import answers
from tests.client.peer import peer, results, status, streams, task

Run = Callable[..., Result]


def task_id(result: Result) -> str:
    found = re.search(r"task ([0-9a-f-]{36})", result.stderr)
    assert found, result.stderr
    return found[1]


# -- send --


def test_the_answer_goes_to_standard_output_and_the_rest_to_standard_error(run: Run, url: str) -> None:
    result = run("send", url, "hello")
    assert (result.exit_code, result.stdout) == (0, "you said hello\n")
    assert re.search(r"\[\d+\.\d\d s\] completed, task ", result.stderr)


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_streamed_or_not_the_same_is_printed(run: Run, url: str, how: str) -> None:
    result = run("send", url, "stream", how)
    assert result.exit_code == 0
    assert result.stdout == 'one two three\n{\n  "n": 3\n}\n'


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
@pytest.mark.parametrize("word", ["status", "history"])
def test_an_answer_without_an_artifact_is_printed(run: Run, url: str, how: str, word: str) -> None:
    result = run("send", url, {"history": "stored"}.get(word, word), how)
    assert (result.exit_code, result.stdout) == (0, f"in the {word}\n")
    assert run("get", url, task_id(result)).stdout == f"in the {word}\n"


@pytest.mark.parametrize(
    ("how", "operations"),
    [("--stream", ["SendStreamingMessage", "GetTask"]), ("--no-stream", ["SendMessage", "GetTask"])],
)
def test_a_plain_send_is_asked_for_with_no_stream(run: Run, how: str, operations: list[str]) -> None:
    done = task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "stored"}]}])
    with peer(
        {
            "/.well-known/agent-card.json": lambda asked, line: line.answer(by_version("1.0").dump(server.card())),
            "SendStreamingMessage": streams({"task": task()}, status("COMPLETED")),
            "SendMessage": results({"task": task()}),
            "GetTask": results(done),
        }
    ) as server:
        result = run("send", server.url, "hi", how)
    assert (result.exit_code, result.stdout) == (0, "stored\n")
    assert server.operations[1:] == operations


def test_progress_is_shown_while_streaming_only(run: Run, url: str) -> None:
    assert "working: half way" in run("send", url, "stream").stderr
    assert "half way" not in run("send", url, "stream", "--no-stream").stderr


def test_text_of_a_dash_is_read_from_standard_input(run: Run, url: str) -> None:
    assert run("send", url, "-", input="viele Grüße".encode()).stdout == "you said viele Grüße\n"
    assert run("send", url, "-", input=b"\xff\xfe").exit_code == 2


@pytest.mark.parametrize(
    ("word", "code", "shown"),
    [("fail", 1, "failed: it broke"), ("reject", 1, "rejected: not today"), ("crash", 1, "failed: internal error")],
)
def test_a_task_that_does_not_succeed_is_exit_code_1(run: Run, url: str, word: str, code: int, shown: str) -> None:
    result = run("send", url, word)
    assert (result.exit_code, result.stdout) == (code, "")
    assert shown in result.stderr
    assert "secret" not in result.output


@pytest.mark.parametrize(("word", "question"), [("ask", "which one?"), ("login", "sign in first")])
def test_a_question_is_exit_code_4_with_the_command_that_answers_it(
    run: Run, url: str, word: str, question: str
) -> None:
    result = run("send", url, word)
    assert (result.exit_code, result.stdout) == (4, question + "\n")
    assert f"a2a-sync send {url} --task {task_id(result)} TEXT" in result.stderr
    answered = run("send", url, "--task", task_id(result), "that one")
    assert (answered.exit_code, answered.stdout) == (0, "you said that one\n")


def test_a_conversation_can_be_continued_by_its_context(run: Run, url: str) -> None:
    assert run("send", url, "hello", "--context", "my-context").exit_code == 0
    listed = run("list", url, "--context", "my-context", "--json")
    assert [task["contextId"] for task in json.loads(listed.stdout)["tasks"]] == ["my-context"]


def test_an_unknown_task_is_refused_by_the_agent(run: Run, url: str) -> None:
    result = run("send", url, "--task", "no-task", "hello")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: " in result.stderr


def test_files_are_sent_with_their_names_and_media_types(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n")
    (tmp_path / "b.png").write_bytes(b"png")
    result = run("send", url, "upload", "--file", "a.csv", "--file", "b.png")
    assert result.stdout.split("\n") == ["a.csv text/csv 8b.png image/png 3", ""]


def test_files_that_come_are_saved_in_a_folder_of_their_own_under_safe_names(
    run: Run, url: str, tmp_path: Path
) -> None:
    result = run("send", url, "files")
    assert result.exit_code == 0
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("a2a-")
    assert sorted(path.name for path in folder.iterdir()) == [
        "bashrc.png",
        "escape.txt",
        "picture-2.png",
        "picture.png",
    ]
    assert (folder / "picture-2.png").read_bytes() == b"picture.png"
    assert f"saved {folder.name}/escape.txt" in result.stderr
    assert "http://127.0.0.1:1/secret (not fetched)" in result.stderr


def test_with_out_every_artifact_is_saved_there_and_data_is_not_printed(run: Run, url: str, tmp_path: Path) -> None:
    result = run("send", url, "stream", "--out", "results")
    assert result.stdout == "one two three\n"
    assert (tmp_path / "results" / "poem.txt").read_text() == "one two three"
    assert json.loads((tmp_path / "results" / "numbers.json").read_text()) == {"n": 3}


def test_what_an_agent_says_cannot_touch_the_terminal(run: Run, url: str) -> None:
    for arguments in (
        ["send", url, "hostile"],
        ["send", url, "hostile", "--json"],
        ["send", url, "--json", "--stream", "hostile"],
    ):
        result = run(*arguments)
        assert result.exit_code == 0
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", result.output), arguments
    assert (
        json.loads(run("send", url, "hostile", "--json").stdout)["task"]["artifacts"][0]["parts"][0]["text"] == HOSTILE
    )


def test_json_is_one_document_of_the_protocol(run: Run, url: str, tmp_path: Path) -> None:
    task = json.loads(run("send", url, "files", "--json").stdout)["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert list(tmp_path.iterdir()) == []  # the files are in the JSON


def test_json_while_streaming_is_a_line_for_each_event(run: Run, url: str) -> None:
    result = run("send", url, "stream", "--json", "--stream")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [next(iter(event)) for event in events][:1] == ["task"]
    texts = [
        event["artifactUpdate"]["artifact"]["parts"][0].get("text") for event in events if "artifactUpdate" in event
    ]
    assert texts[:3] == ["one ", "two ", "three"]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_an_answer_without_a_task_is_printed(run: Run, direct_url: str) -> None:
    result = run("send", direct_url, "hello")
    assert (result.exit_code, result.stdout) == (0, "no task here\n")
    assert "message" in json.loads(run("send", direct_url, "hello", "--json").stdout)


def test_an_agent_that_does_not_stream_is_asked_until_it_is_done(run: Run, plain_url: str) -> None:
    assert json.loads(run("card", plain_url, "--json").stdout)["capabilities"]["streaming"] is False
    result = run("send", plain_url, "stream")
    assert (result.exit_code, result.stdout) == (0, 'one two three\n{\n  "n": 3\n}\n')
    assert run("send", plain_url, "ask").exit_code == 4
    assert run("send", plain_url, "fail").exit_code == 1
    assert run("send", plain_url, "slow", "--timeout", "0.5").exit_code == 3


def test_a_time_limit_is_exit_code_3_and_names_the_task(run: Run, url: str) -> None:
    result = run("send", url, "slow", "--timeout", "0.5")
    assert result.exit_code == 3
    assert "the total timeout expired" in result.stderr
    assert result.stderr.endswith("the task continues: see a2a-sync watch\n")
    assert result.stdout.startswith("first piece")
    with Client(url) as client:
        task = client.cancel_task(task_id(result))
    assert task.state == "canceled"


@pytest.mark.parametrize("arguments", [["card"], ["list"], ["get", "x"], ["send", "hello"]])
def test_an_agent_that_cannot_be_reached_is_exit_code_3(run: Run, arguments: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command, *rest = arguments
    result = run(command, f"http://127.0.0.1:{port}", *rest)
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "ftp://x", "hi"],
        ["send", "localhost:8000", "hi"],
        ["send", "http://127.0.0.1:99999", "hi"],
        ["send", "http://127.0.0.1:1"],
        ["send", "http://127.0.0.1:1", "hi", "--file", "missing.csv"],
        ["send", "http://127.0.0.1:1", "hi", "--timeout", "0"],
        ["send", "http://127.0.0.1:1", "\udcff"],
        ["list", "http://127.0.0.1:1", "--state", "bored"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


# -- card and tasks --


def test_a_card_is_shown(run: Run, url: str) -> None:
    result = run("card", url)
    assert result.exit_code == 0
    assert "actor 0.1.0" in result.stdout
    assert f"{url}/ (JSONRPC, protocol 1.0)" in result.stdout
    assert json.loads(run("card", url, "--json").stdout)["name"] == "actor"


def test_of_a_card_with_very_many_members_the_first_are_printed(run: Run) -> None:
    interface = {"url": "http://agent.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    skill = {"id": "s", "name": "S", "description": "d", "tags": ["t"], "examples": ["one"] * 60}
    card = {"name": "many", "description": "d", "version": "1", "supportedInterfaces": [interface] * 70}
    card |= {"skills": [skill] * 1000}
    with answers({"/.well-known/agent-card.json": card}) as url:
        lines = run("card", url).stdout.splitlines()
        assert len(json.loads(run("card", url, "--json").stdout)["skills"]) == 1000
    assert sum(line.startswith("skill") for line in lines) == 200
    assert sum(line.startswith("interface") for line in lines) == 50
    assert [line.split("… ")[1] for line in lines if "…" in line] == [
        "20 more, see --json",
        *["10 more, see --json"] * 200,
        "800 more, see --json",
    ]


def test_the_extended_card_is_shown_where_there_is_one(run: Run, url: str, direct_url: str) -> None:
    result = run("card", url, "--extended")
    assert result.exit_code == 0
    assert "insider 1.0.0" in result.stdout
    assert "extended card" in result.stdout
    assert json.loads(run("card", url, "--extended", "--json").stdout)["name"] == "insider"
    missing = run("card", direct_url, "--extended")
    assert (missing.exit_code, "announces no extended card" in missing.stderr) == (1, True)


def test_a_task_is_shown_again(run: Run, url: str) -> None:
    sent = run("send", url, "stream")
    result = run("get", url, task_id(sent))
    assert (result.exit_code, result.stdout) == (0, sent.stdout)
    assert json.loads(run("get", url, task_id(sent), "--json").stdout)["id"] == task_id(sent)
    assert run("get", url, "no-task").exit_code == 1


def test_artifacts_of_a_task_can_be_saved_later(run: Run, url: str, tmp_path: Path) -> None:
    sent = run("send", url, "stream")
    assert run("get", url, task_id(sent), "--out", "later").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "later").iterdir()) == ["numbers.json", "poem.txt"]


def test_tasks_are_listed_the_newest_first(run: Run, url: str) -> None:
    first, second = (task_id(run("send", url, "hello", "--context", "listed")) for _ in range(2))
    lines = run("list", url, "--context", "listed").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[second, "completed"], [first, "completed"]]
    failed = run("list", url, "--context", "listed", "--state", "failed")
    assert (failed.exit_code, failed.stdout) == (0, "")


def test_a_task_is_cancelled(run: Run, url: str) -> None:
    with Client(url) as client:
        task = client.send("slow", return_immediately=True)
    assert isinstance(task, Task)
    assert run("cancel", url, task.id).stdout == f"{task.id}  canceled\n"
    assert run("cancel", url, task.id).exit_code == 1


def test_a_port_that_does_not_answer_tls_is_named_as_the_likely_cause(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = run("card", f"https://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "1")
    assert result.exit_code == 3
    assert result.stderr.endswith("; if this port does not speak TLS, use http://\n")


# -- help, and what serve refuses --

#: Commands whose help ends with an example.
EXAMPLES = [
    "agents",
    "cancel",
    "card",
    "chat",
    "check",
    "completion",
    "console",
    "get",
    "hooks",
    "list",
    "mcp",
    "new",
    "send",
    "serve",
    "watch",
]


@pytest.mark.parametrize("command", ["", *main.commands])
def test_each_command_explains_itself_with_an_example(run: Run, command: str) -> None:
    result = run(*([command] if command else []), "--help")
    assert result.exit_code == 0
    assert len(result.stdout) > 100
    if command in EXAMPLES:
        assert f"a2a-sync {command}" in result.stdout.rpartition("Example: ")[2]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere:app"], "there is no module 'nowhere'"),
        (["tests.cli.agents:nothing"], "has no attribute"),
        (["tests.cli.agents:number"], "neither an A2AApp nor an Agent"),
        (["tests.cli.agents:app", "--store", "memory:"], "--store goes with an Agent"),
        (["tests.cli.agents:agent", "--workers", "2"], "several workers do not share tasks in memory"),
        (["tests.cli.agents:agent", "--host", "256.1.1.1"], "cannot listen on 256.1.1.1"),
        (["tests.cli.agents:agent", "--threads", "1"], "--threads"),
    ],
)
def test_serve_says_what_is_wrong_before_it_starts(run: Run, arguments: list[str], problem: str) -> None:
    result = run("serve", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_serve_says_what_gevent_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["a2a_sync.cli.serve"], "find_spec", lambda name: None)
    result = run("serve", "tests.cli.agents:agent", "--gevent")
    assert result.exit_code == 2
    assert "pip install 'a2a-sync[gevent]'" in result.stderr


def test_serve_says_that_a_port_is_taken(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "tests.cli.agents:agent", "--port", str(port))
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in result.stderr


def test_streamed_text_is_saved_under_a_name(run: Run, url: str, tmp_path: Path) -> None:
    assert run("send", url, "spoken", "--out", str(tmp_path / "out")).exit_code == 0
    (saved,) = (tmp_path / "out").iterdir()
    assert (saved.name, saved.read_text()) == ("answer.txt", "one two")
