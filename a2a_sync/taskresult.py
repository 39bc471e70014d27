"""`get_task_result`: the one text that answers for a task, wherever its agent has put it.

Agents differ in where they leave what they were asked for. This room knows the order in which to look, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from a2a_sync.types import Message, Role, Task

#: Names of artifacts that say of themselves that they are the result.
RESULT_NAMES = ("result", "out")


def get_task_result(task: Task | Message) -> str | None:
    """The text that answers for `task`; None where nothing of it has any.

    The first of these that has text: the last artifact with the name ``result`` or ``out``; the last artifact; the last
    message of the agent in the history; the message of the status. Of a `Message`, its text.
    """
    if isinstance(task, Message):
        return task.text or None
    return next(filter(None, _candidates(task)), None)


def _candidates(task: Task) -> Iterator[str]:
    artifacts = task.artifacts[::-1]
    yield from (artifact.text for artifact in artifacts if artifact.name in RESULT_NAMES)
    yield from (artifact.text for artifact in artifacts)
    yield from (message.text for message in task.history[::-1] if message.role is Role.AGENT)
    if task.status.message is not None:
        yield task.status.message.text
