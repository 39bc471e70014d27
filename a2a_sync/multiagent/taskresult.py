"""`get_task_result`: the text of one artifact or message, by an order that prefers artifacts named as results.

`Task.text` is the text of the whole answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from a2a_sync.types import Message, Role, Task

#: Names of artifacts that hold a result.
RESULT_NAMES = ("result", "out")


def get_task_result(task: Task | Message) -> str | None:
    """The text of the one artifact or message of `task` that holds its result; None if none has text.

    The first of these that has text: the last artifact with the name ``result`` or ``out``; the last message of the
    agent in the history; the last artifact; the message of the status. For a `Message`, its text. `Task.text` has the
    text of the whole answer.
    """
    if isinstance(task, Message):
        return task.text or None
    return next(filter(None, _candidates(task)), None)


def _candidates(task: Task) -> Iterator[str]:
    artifacts = task.artifacts[::-1]
    yield from (artifact.text for artifact in artifacts if artifact.name in RESULT_NAMES)
    yield from (message.text for message in task.history[::-1] if message.role is Role.AGENT)
    yield from (artifact.text for artifact in artifacts)
    if task.status.message is not None:
        yield task.status.message.text
