"""What is printed of the events of one exchange."""

from __future__ import annotations

import io
import tracemalloc

import pytest

from a2a_sync import (
    Artifact,
    DataPart,
    FilePart,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TextPart,
)
from a2a_sync.cli import show
from a2a_sync.cli.show import Transcript
from a2a_sync.display import UNSAFE


def event(*parts: object, append: bool = False, last_chunk: bool = False) -> TaskArtifactUpdateEvent:
    texts = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    artifact = Artifact(artifact_id="a", name="answer", parts=texts)  # type: ignore[arg-type]
    return TaskArtifactUpdateEvent(artifact=artifact, append=append, last_chunk=last_chunk)


def printed(capsys: pytest.CaptureFixture[str], *events: TaskArtifactUpdateEvent) -> tuple[str, bool]:
    """Standard output, and whether a replacement was reported."""
    transcript = Transcript()
    for one in events:
        transcript.show_event(one)
    transcript.end_line()
    output = capsys.readouterr()
    return output.out, "is replaced" in output.err


def test_a_replacement_by_the_same_whole_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    events = (event("It is "), event("5", append=True), event("It is 5", last_chunk=True))
    assert printed(capsys, *events) == ("It is 5\n", False)


def test_of_a_replacement_that_goes_on_only_the_rest_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    events = (event("It "), event("is", append=True), event("It is 5"), event("It is 5.", last_chunk=True))
    assert printed(capsys, *events) == ("It is 5.\n", False)


def test_parts_that_a_replacement_adds_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, event("It is"), event("It is 5", DataPart(5), last_chunk=True)) == ("It is 5\n5\n", False)


def test_another_text_is_printed_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, event("Let me see"), event("It is 5", last_chunk=True)) == ("Let me see\nIt is 5\n", True)


@pytest.mark.parametrize("part", [DataPart(5), TextPart("It is 5")], ids=["data", "text"])
@pytest.mark.parametrize("place", ["status", "history"])
def test_the_text_of_a_message_is_printed_beside_artifacts_without_text(
    part: DataPart | TextPart, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Message(role=Role.AGENT, parts=(TextPart("Here it is"),))
    status = TaskStatus(state=TaskState.COMPLETED, message=said if place == "status" else None)
    task = Task(id="t", status=status, artifacts=(Artifact(parts=(part,)),), history=(said,))
    Transcript().finish(task)
    output = capsys.readouterr().out
    assert output == ("5\nHere it is\n" if isinstance(part, DataPart) else "It is 5\n")
    assert task.text in output


def test_character_references_of_markdown_change_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = pytest.importorskip("rich.console")
    output = io.StringIO()
    monkeypatch.setattr(show, "rich_console", lambda: console.Console(file=output, width=60))
    parts = (TextPart("&#8238;txt.&rlm; &#x2028; &#27;[2J **b**", media_type="text/markdown"),)
    status = TaskStatus(state=TaskState.COMPLETED)
    Transcript().finish(Task(id="t", status=status, artifacts=(Artifact(artifact_id="a", parts=parts),)))

    assert "txt." in output.getvalue()
    assert not UNSAFE.search(output.getvalue())


def test_artifacts_that_a_snapshot_no_longer_has_are_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = Transcript()
    tracemalloc.start()
    try:
        for number in range(50):
            file = FilePart(raw=bytes(1_000_000), filename="zeros")
            artifact = Artifact(artifact_id=str(number), parts=(file, TextPart(".")))
            transcript.show_event(Task(id="t", status=TaskStatus(state=TaskState.WORKING), artifacts=(artifact,)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    transcript.end_line()
    assert kept < 5_000_000
    assert capsys.readouterr().out.count(".") == 50


def test_an_artifact_that_a_snapshot_left_out_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = Transcript()
    transcript.show_event(event("It is "))
    transcript.show_event(Task(id="t", status=TaskStatus(state=TaskState.WORKING)))
    transcript.show_event(event("5", append=True))
    transcript.end_line()
    assert capsys.readouterr().out == "It is \n5\n"
