"""How objects look at a prompt and in a notebook, and what one gets out of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import a2a_sync
from a2a_sync import Agent, Artifact, Client, DataPart, FilePart, Message, Role, Task, TaskState, TaskStatus, TextPart
from a2a_sync.card import create_agent_card

EVIL = "</pre><script>alert(1)</script>```\n# [x](javascript:1)"
FILE = FilePart(raw=b"bytes", filename="../.ssh/a b.bin", media_type="application/x")
ANSWER = Artifact(parts=(TextPart("one "), TextPart("two"), FILE, DataPart({"n": 3})), artifact_id="a-1", name="answer")
TASK = Task(id="t-1", status=TaskStatus(state=TaskState.COMPLETED), context_id="c-1", artifacts=(ANSWER,))
MESSAGE = Message(role=Role.AGENT, parts=(TextPart("hello"), FILE), message_id="m-1")
CARD = create_agent_card("clock", "Shows the time", skills={"now": "The time"}, url="https://clock.example/")
HOSTILE = [
    Task(
        id=EVIL, status=TaskStatus(state=TaskState.COMPLETED), artifacts=(Artifact(parts=(TextPart(EVIL),), name=EVIL),)
    ),
    Message(
        role=Role.USER,
        parts=(TextPart(EVIL), DataPart({EVIL: EVIL}), FilePart(url=EVIL, filename=EVIL)),
        context_id=EVIL,
    ),
    create_agent_card(EVIL, EVIL, skills={"s": EVIL}, url="https://clock.example/"),
]


def test_each_repr_is_one_short_line() -> None:
    assert repr(TASK) == "<Task t-1 completed: 'one two'>"
    assert repr(MESSAGE) == "<Message of agent: 'hello', 1 files>"
    assert repr(ANSWER) == "<Artifact 'answer': 'one two', 1 files>"
    assert repr(CARD) == "<AgentCard 'clock' 1.0.0, 1 skills>"
    long = Message(role=Role.USER, parts=(TextPart("word\n" * 10_000),))
    assert len(repr(long)) < 100
    assert "\n" not in repr(long)


@pytest.mark.parametrize("shown", HOSTILE)
def test_texts_of_peers_are_no_markup_in_a_notebook(shown: Any) -> None:
    assert "<script" not in shown._repr_html_()
    assert "</pre><" not in shown._repr_html_().replace("</pre></div>", "").replace("</pre><pre", "")
    fence = shown._repr_markdown_().splitlines()
    # Each line of a peer is inside a code span or a block with a longer fence.
    assert "# [x](javascript:1)" not in [line for line in fence if not line.startswith(("`", "-"))] or "````" in fence


def test_a_task_shows_its_state_and_results() -> None:
    html, markdown = TASK._repr_html_(), TASK._repr_markdown_()
    for shown in (html, markdown):
        assert "completed" in shown
        assert "one two" in shown
    assert "a b.bin" in html


def test_data_files_and_json_are_at_hand() -> None:
    assert (TASK.data, TASK.files) == ({"n": 3}, (FILE,))
    assert (ANSWER.data, MESSAGE.data, MESSAGE.files) == ({"n": 3}, None, (FILE,))
    assert json.loads(TASK.to_json(indent=2)) == TASK.to_dict()


def test_results_are_saved_under_plain_names(tmp_path: Path) -> None:
    saved = TASK.save(tmp_path / "new")
    assert [path.name for path in saved] == ["answer.txt", "a_b.bin", "answer.json"]
    assert [path.parent for path in saved] == [tmp_path / "new"] * 3
    assert saved[0].read_text() == "one two"
    assert [path.name for path in TASK.save(tmp_path / "new")] == ["answer-2.txt", "a_b-2.bin", "answer-2.json"]
    assert FILE.save(tmp_path / "named.bin").read_bytes() == b"bytes"
    with pytest.raises(ValueError, match="only the address"):
        FilePart(url="https://files.example/a").save(tmp_path)


def test_a_link_in_the_folder_leads_no_file_elsewhere(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("a_b.bin", "answer.txt"):
        (folder / name).symlink_to(elsewhere)
    saved = TASK.save(folder)
    assert [path.name for path in saved] == ["answer-2.txt", "a_b-2.bin", "answer.json"]
    assert not elsewhere.exists()


@pytest.mark.slow
def test_very_many_files_of_one_name_are_saved_in_linear_time(tmp_path: Path) -> None:
    many = Artifact(name="many", parts=(FilePart(raw=b"x", filename="same.bin", media_type="a/b"),) * 1_000)
    tries = 0
    with pytest.MonkeyPatch.context() as patch:
        whole = Path.open

        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal tries
            tries += 1
            return whole(*arguments, **named)

        patch.setattr(Path, "open", counted)
        saved = many.save(tmp_path)
    assert len(set(saved)) == 1_000
    assert tries <= 100 * 1_000


def test_a_text_that_has_no_bytes_is_saved(tmp_path: Path) -> None:
    (path,) = Artifact(name="odd", parts=(TextPart("a\ud800"),)).save(tmp_path)
    assert path.read_text() == "a?"


@pytest.mark.parametrize("shown", [TASK, MESSAGE, ANSWER, CARD, FILE, a2a_sync])
def test_tab_completion_shows_public_names_only(shown: object) -> None:
    assert dir(shown)
    assert not [name for name in dir(shown) if name.startswith("_")]


def test_a_stream_is_shown_live_in_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[str] = []

    def display(first: str, display_id: bool) -> Any:
        updates.append(first)
        return SimpleNamespace(update=updates.append)

    module = ModuleType("IPython.display")
    module.__dict__.update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    agent = Agent("story", description="Writes")
    agent.message(lambda message, context: iter(["one ", "two"]))
    with Client(agent) as client:
        stream = client.stream("go")
        stream._ipython_display_()
    assert "one two" in updates[-1]
    assert "completed" in updates[-1]
    assert len(updates) >= 2
    assert not [name for name in dir(stream) if name.startswith("_")]


def test_the_notebook_of_the_documentation_runs() -> None:
    notebook = json.loads((Path(__file__).parent.parent / "docs" / "notebook.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = "\n".join([*cells, "assert task.text == 'one two three'"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "one two three" in done.stdout
    assert len(cells) >= 4
