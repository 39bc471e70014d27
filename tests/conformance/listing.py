"""Section B, second part: lists of tasks, and cancel."""

from __future__ import annotations

import re
import time
from typing import Any

from tests.conformance.sending import UNKNOWN, parts_of, state_of
from tests.conformance.suite import B, Level
from tests.conformance.system import Speaker, new_name


def _page(at: Speaker, **filters: Any) -> dict[str, Any]:
    page: dict[str, Any] = at.ask("ListTasks", filters).result
    return page


def _pages(at: Speaker, **filters: Any) -> list[dict[str, Any]]:
    """All pages by their tokens."""
    pages = [_page(at, **filters)]
    while pages[-1]["nextPageToken"]:
        pages.append(_page(at, **filters, pageToken=pages[-1]["nextPageToken"]))
        assert len(pages) < 100
    return pages


def _several(at: Speaker, number: int) -> tuple[str, list[str]]:
    """Create tasks in a new context; return the context id and the task ids."""
    context = new_name()
    return context, [at.task("echo", contextId=context)["id"] for _ in range(number)]


# -- pages --------------------------------------------------------------------------------------------------------------


@B.line("V1-LIST-02", Level.MUST, "pages have neither gaps nor repetitions")
def pages_follow_each_other(at: Speaker) -> None:
    context, ids = _several(at, 5)
    pages = _pages(at, contextId=context, pageSize=2)
    assert [len(page["tasks"]) for page in pages] == [2, 2, 1]
    listed = [task["id"] for page in pages for task in page["tasks"]]
    assert sorted(listed) == sorted(ids)


def _later() -> None:
    """Wait for the next millisecond, the resolution of timestamps."""
    begun = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == begun:
        pass


@B.line("V1-LIST-03", Level.MUST, "tasks are in order of status time, newest first")
def the_newest_comes_first(at: Speaker) -> None:
    context = new_name()
    asked = at.task("ask", contextId=context)
    for _ in range(3):
        _later()
        at.task("echo", contextId=context)
    _later()
    at.task("echo", taskId=asked["id"], contextId=context)
    tasks = [task for page in _pages(at, contextId=context, pageSize=2) for task in page["tasks"]]
    times = [task["status"]["timestamp"] for task in tasks]
    assert times == sorted(times, reverse=True)
    assert len(tasks) == 4
    newest = {task["id"] for task in tasks if task["status"]["timestamp"] == times[0]}
    assert asked["id"] in newest


@B.line("V1-LIST-04", Level.MUST, "the next page token is always present, and empty on the last page")
def the_token_is_always_there(at: Speaker) -> None:
    context, _ = _several(at, 2)
    assert _page(at, contextId=context)["nextPageToken"] == ""
    assert _page(at, contextId=context, pageSize=1)["nextPageToken"] != ""
    assert _page(at, contextId=new_name())["nextPageToken"] == ""


@B.line("V1-LIST-05", Level.MUST, "artifacts are omitted by default, including the member")
def artifacts_are_left_out(at: Speaker) -> None:
    context, _ = _several(at, 2)
    for filters in ({}, {"includeArtifacts": False}):
        tasks = at.listed(contextId=context, **filters)
        assert len(tasks) == 2
        assert not [task for task in tasks if "artifacts" in task]


@B.line("V1-LIST-06", Level.MUST, "includeArtifacts includes them")
def artifacts_are_put_in(at: Speaker) -> None:
    context, _ = _several(at, 1)
    (task,) = at.listed(contextId=context, includeArtifacts=True)
    assert [part["text"] for part in parts_of(task)] == ["echo"]


@B.line("V1-LIST-07", Level.MUST, "an empty list has all members")
def an_empty_list_is_complete(at: Speaker) -> None:
    page = _page(at, contextId=new_name())
    assert page["tasks"] == []
    assert page["totalSize"] == 0
    assert page["pageSize"] in range(1, 101)


@B.line("V1-LIST-08", Level.MUST, "filter by context")
def filtered_by_context(at: Speaker) -> None:
    (context, ids), _ = _several(at, 2), _several(at, 1)
    assert {task["id"] for task in at.listed(contextId=context)} == set(ids)
    assert {task["contextId"] for task in at.listed(contextId=context)} == {context}


@B.line("V1-LIST-09", Level.MUST, "filter by state")
def filtered_by_state(at: Speaker) -> None:
    context, ids = _several(at, 1)
    asked = at.task("ask", contextId=context)["id"]
    for state, wanted in (("COMPLETED", ids), ("INPUT_REQUIRED", [asked]), ("FAILED", [])):
        tasks = at.listed(contextId=context, status=f"TASK_STATE_{state}")
        assert [task["id"] for task in tasks] == wanted


@B.line("V1-LIST-10", Level.MUST, "filter by time, inclusive")
def filtered_by_time(at: Speaker) -> None:
    context, (id,) = _several(at, 1)
    (task,) = at.listed(contextId=context)
    moment = task["status"]["timestamp"]
    later = re.sub(r"^\d{4}", lambda year: str(int(year[0]) + 1), moment)
    assert [one["id"] for one in at.listed(contextId=context, statusTimestampAfter=moment)] == [id]
    assert at.listed(contextId=context, statusTimestampAfter=later) == []


@B.line("V1-LIST-11", Level.MUST, "50 tasks per page, or 1 to 100 as requested")
def pages_have_a_size(at: Speaker) -> None:
    context, _ = _several(at, 52)
    page = _page(at, contextId=context)
    assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (50, 50, 52)
    assert len(at.listed(contextId=context, pageSize=100)) == 52
    for size in (0, 101, -1):
        at.ask("ListTasks", {"pageSize": size}).refuses("InvalidParams")


@B.line("V1-LIST-12", Level.MUST, "the total counts all tasks that match the filter")
def the_total_counts_the_filtered(at: Speaker) -> None:
    context, _ = _several(at, 3)
    at.task("ask", contextId=context)
    pages = _pages(at, contextId=context, pageSize=2, status="TASK_STATE_COMPLETED")
    assert [page["totalSize"] for page in pages] == [3, 3]
    assert sum(len(page["tasks"]) for page in pages) == 3


@B.line("V1-LIST-13", Level.SDK, "an invalid token is refused")
def a_bad_token_is_refused(at: Speaker) -> None:
    for token in ("!!", "e30", new_name()):
        at.ask("ListTasks", {"pageToken": token}).refuses("InvalidParams")


@B.line("V1-LIST-14", Level.MUST, "the history length applies to lists")
def lists_keep_to_the_length(at: Speaker) -> None:
    context, _ = _several(at, 2)
    assert not [task for task in at.listed(contextId=context, historyLength=0) if task.get("history")]
    assert [len(task["history"]) for task in at.listed(contextId=context, historyLength=1)] == [1, 1]


# -- cancelling ---------------------------------------------------------------------------------------------------------


@B.line("V1-CANC-01", Level.MUST, "a cancel returns the updated task")
def a_cancel_gives_the_task(at: Speaker) -> None:
    task = at.begin(f"hold {new_name()}")
    canceled = at.ask("CancelTask", {"id": task["id"]}).result
    assert (canceled["id"], state_of(canceled)) == (task["id"], "CANCELED")
    asked = at.task("ask")
    assert state_of(at.ask("CancelTask", {"id": asked["id"]}).result) == "CANCELED"


@B.line("V1-CANC-02", Level.MUST, "a terminal task cannot be cancelled")
def the_ended_cannot_be_cancelled(at: Speaker) -> None:
    for text in ("echo", "reject"):
        at.ask("CancelTask", {"id": at.task(text)["id"]}).refuses("TaskNotCancelable")


@B.line("V1-CANC-03", Level.MUST, "an unknown task cannot be cancelled")
def the_unknown_cannot_be_cancelled(at: Speaker) -> None:
    at.ask("CancelTask", {"id": UNKNOWN}).refuses("TaskNotFound")


@B.line("V1-CANC-04", Level.MUST, "streams report the cancel and end")
def streams_end_with_the_cancel(at: Speaker) -> None:
    with at.stream(f"hold {new_name()}") as stream:
        results = stream.results()
        id = next(results)["task"]["id"]
        with at.open("SubscribeToTask", {"id": id}) as other:
            others = other.results()
            next(others)
            at.ask("CancelTask", {"id": id})
            ends = [list(results)[-1], list(others)[-1]]
    assert [state_of(end["statusUpdate"]) for end in ends] == ["CANCELED", "CANCELED"]


@B.line("V1-CANC-05", Level.CHOICE, "a second cancel is refused")
def a_second_cancel_is_refused(at: Speaker) -> None:
    task = at.begin(f"hold {new_name()}")
    at.ask("CancelTask", {"id": task["id"]})
    at.ask("CancelTask", {"id": task["id"]}).refuses("TaskNotCancelable")


@B.line("V1-CANC-06", Level.SHOULD, "output after a cancel is dropped")
def late_output_is_dropped(at: Speaker) -> None:
    gate = new_name()
    task = at.begin(f"late {gate}")
    at.until(task["id"], "WORKING")
    at.ask("CancelTask", {"id": task["id"]})
    at.release(gate)
    # A later run of the same task has ended, so that all output of the first one would have arrived.
    at.task("echo")
    stored = at.get(task["id"])
    assert (state_of(stored), parts_of(stored)) == ("CANCELED", [])
