"""The agent of the official kits implements their scenarios, and the page has the listed errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_sync import A2AApp, Client, Message, Task, TaskState
from a2a_sync.types import Role, TextPart
from tests.conformance import kit
from tests.conformance.kit_errors import KIT_ERRORS
from tests.conformance.tck_agent import APPS, KitAgent

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.Some" name="test_good"/>
<testcase classname="tests.a.Some" name="test_bad"><failure message="no&#10;more"/></testcase>
<testcase classname="tests.a.Some" name="test_broken"><error message="oh"/></testcase>
<testcase classname="tests.a.Some" name="test_should"><skipped type="pytest.xfail" message="not met"/></testcase>
<testcase classname="tests.a.Some" name="test_left_out"><skipped type="pytest.skip" message="no gRPC"/></testcase>
</testsuite></testsuites>"""


def said(beginning: str) -> Message:
    return Message(role=Role.USER, parts=(TextPart("hi"),), message_id=f"{beginning}-1")


@pytest.mark.parametrize(
    ("beginning", "state", "text"),
    [
        ("tck-complete-task", TaskState.COMPLETED, "Hello from TCK"),
        ("tck-artifact-text", TaskState.COMPLETED, "Generated text content"),
        ("tck-artifact-file-url", TaskState.COMPLETED, ""),
        ("tck-input-required", TaskState.INPUT_REQUIRED, "What next?"),
        ("tck-reject-task", TaskState.REJECTED, "rejected"),
        ("tck-stream-artifact-chunked", TaskState.COMPLETED, "chunk-1 chunk-2"),
        ("tck-stream-002", TaskState.COMPLETED, ""),
    ],
)
def test_scenarios_are_followed(beginning: str, state: TaskState, text: str) -> None:
    with A2AApp(KitAgent()) as app, Client(app) as client:
        task = client.send(said(beginning))
    assert isinstance(task, Task)
    shown = task.text or (task.status.message.text if task.status.message else "")
    assert (task.state, shown) == (state, text)


@pytest.mark.parametrize("name", APPS)
def test_every_app_can_be_made(name: str) -> None:
    with A2AApp(KitAgent(), **APPS[name]) as app:
        assert app.agent_card("http://127.0.0.1/").name == "a2a_sync under test"


def test_a_report_is_counted_and_a_should_that_is_not_met_counts_as_failed(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    result = kit.Result(kit.Run("some", kit.NEW, ()))
    result.read(tmp_path / "report.xml")
    assert result.counts == {"passed": 1, "failed": 3, "skipped": 1}
    assert result.failed == {"a.Some.test_bad": "no", "a.Some.test_broken": "oh", "a.Some.test_should": "not met"}
    assert len(result.surprises()) == 3


@pytest.mark.parametrize("failed", [True, False])
def test_a_test_whose_result_depends_on_timing_is_not_counted(failed: bool, tmp_path: Path) -> None:
    (error,) = [one for one in KIT_ERRORS if one.timing]
    place, _, name = error.tests[0].rpartition(".")
    inner = '<failure message="no"/>' if failed else ""
    case = f'<testcase classname="{place}" name="{name}">{inner}</testcase>'
    (tmp_path / "report.xml").write_text(f'<testsuite><testcase classname="a" name="b"/>{case}</testsuite>')
    run, *_ = [one for one in kit.RUNS if one.name in error.runs]
    result = kit.Result(run)
    result.read(tmp_path / "report.xml")
    assert (result.counts["passed"], result.failed, result.undecided) == (1, {}, 1)
    assert not [problem for problem in result.surprises() if name in problem]


def test_a_listed_failure_that_passes_is_reported() -> None:
    run = kit.RUNS[0]
    result = kit.Result(run, counts={"passed": 1, "failed": 0, "skipped": 0})
    listed = [test for error in KIT_ERRORS if run.name in error.runs and not error.timing for test in error.tests]
    assert len(result.surprises()) == len(listed) > 0


def test_a_run_in_which_nothing_passed_is_no_success() -> None:
    assert kit.Result(kit.Run("some", kit.NEW, ())).surprises() == ["some: no test passed"]


def test_what_is_listed_shows_in_a_run_that_exists() -> None:
    names = {run.name for run in kit.RUNS}
    assert len(names) == len(kit.RUNS)
    for error in KIT_ERRORS:
        assert error.runs
        assert set(error.runs) <= names


def test_the_page_names_the_commits_every_run_and_every_error_with_its_section() -> None:
    text = kit.PAGE.read_text()
    assert all(one.commit in text for one in (kit.NEW, kit.OLD))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[1] for row in rows[2 : 2 + len(kit.RUNS)]] == [run.name for run in kit.RUNS]
    assert sum(f" | {error.section} | {error.why} |" in row for error in KIT_ERRORS for row in rows) == len(KIT_ERRORS)
    failed = {(row.split(" | ")[1], int(row.split(" | ")[3])) for row in rows[2 : 2 + len(kit.RUNS)]}
    for run in kit.RUNS:
        assert (
            run.name,
            sum(len(error.tests) for error in KIT_ERRORS if run.name in error.runs and not error.timing),
        ) in failed
