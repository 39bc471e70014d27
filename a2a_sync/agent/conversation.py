"""The messages of a context over all of its tasks, read from the store for one owner, up to a limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from a2a_sync.lifecycle import joined
from a2a_sync.stores.base import Owner, TaskQuery
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.types import Artifact, Message, Role, Task, TaskState

#: Tasks per page read from the store.
_PAGE = 20


def conversation(
    reads: LargeReads, owner: Owner, own: Task, limit: int, *, completed_only: bool = False
) -> tuple[Message, ...]:
    """The newest `limit` turns of the context of `own`, oldest first; those of `own` come last.

    Turns are grouped by task, and the tasks ordered by the time of their last status. With `completed_only`, tasks other
    than `own` that are not completed are omitted.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    turns = turns_of(own)
    state = TaskState.COMPLETED if completed_only else None
    query = TaskQuery(context_id=own.context_id, state=state, size=_PAGE, history=limit, artifacts=True)
    while len(turns) < limit:
        page = reads.list(owner, query)
        for task in page.tasks:
            if task.id != own.id:
                turns = turns_of(task) + turns
        if page.next is None:
            break
        query = replace(query, after=page.next)
    return tuple(turns[-limit:])


def turns_of(task: Task) -> list[Message]:
    """The turns of one task: its history, artifacts that no message repeats, and the message of its final status.

    Artifacts are placed at the end, or before the last message of the agent if the task has not ended.
    """
    turns = list(task.history)
    unrepeated = [
        _artifact_turn(artifact, task) for artifact in task.artifacts if not _is_repeated(artifact, task.history)
    ]
    answers = [position for position, turn in enumerate(turns) if turn.role is Role.AGENT]
    position = answers[-1] if answers and not task.state.terminal else len(turns)
    turns[position:position] = unrepeated
    last = task.status.message
    if last is not None and task.state.terminal and all(turn.message_id != last.message_id for turn in turns):
        turns.append(last)
    return turns


def _is_repeated(artifact: Artifact, history: Iterable[Message]) -> bool:
    """Whether a message of the agent has the same content, as with everything that a handler returns or yields."""
    content = joined(artifact.parts)
    return any(message.role is Role.AGENT and joined(message.parts) == content for message in history)


def _artifact_turn(artifact: Artifact, task: Task) -> Message:
    return Message(
        role=Role.AGENT,
        parts=joined(artifact.parts),
        task_id=task.id,
        context_id=task.context_id,
        message_id=artifact.artifact_id,
    )
