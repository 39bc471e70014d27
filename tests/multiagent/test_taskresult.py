"""Where the text that answers for a task is looked for, step by step."""

from __future__ import annotations

import pytest

from a2a_sync import Artifact, DataPart, Message, Role, Task, TaskState, TaskStatus, TextPart
from a2a_sync.multiagent import get_task_result


def said(text, role=Role.AGENT):
    return Message(role=role, parts=(TextPart(text),))


def made(text, name=""):
    return Artifact(name=name, parts=(TextPart(text) if text else DataPart(1),))


def task(*, artifacts=(), history=(), status=None):
    status = TaskStatus(state=TaskState.COMPLETED, message=status)
    return Task(id="t", status=status, artifacts=tuple(artifacts), history=tuple(history))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (task(artifacts=[made("a", "result"), made("b", "out"), made("c", "notes")]), "b"),
        (task(artifacts=[made("a", "result"), made("", "out"), made("c", "notes")]), "a"),
        (task(artifacts=[made("a"), made("b", "notes"), made("")], history=[said("h")]), "h"),
        (task(artifacts=[made("a"), made("b", "notes"), made("")], history=[said("")], status=said("s")), "b"),
        (task(artifacts=[made("", "result")], history=[said("h"), said("i"), said("u", Role.USER)]), "i"),
        (task(history=[said("u", Role.USER)], status=said("s")), "s"),
        (task(history=[said("u", Role.USER)]), None),
        (task(), None),
        (said("direct"), "direct"),
        (Message(role=Role.AGENT, parts=(DataPart(1),)), None),
    ],
)
def test_the_first_place_that_has_text_is_taken(given, found):
    assert get_task_result(given) == found
