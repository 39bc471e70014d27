"""Calls that take more than one: a send that streams underneath, and waiting by whatever way an agent offers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from a2a_sync import operations as op
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.link import Link
from a2a_sync.client.repeating import again, patiently
from a2a_sync.client.resume import NOT_TO_BE_FOLLOWED
from a2a_sync.client.stream import CannotBeFollowed, TaskStream, lacks_answer
from a2a_sync.errors import TaskNotCancelableError, TransportTimeoutError
from a2a_sync.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
)

#: How long to listen on after a task has paused for its client, in seconds: the stream usually ends right then.
_PAUSE_GRACE = 0.1
#: Pauses between two looks at a task, in seconds: the first, the factor, the longest.
_PAUSES = (0.25, 1.6, 10.0)


def send_plain(
    link: Link, request: SendMessageRequest, deadline: Deadline, key: str, *, stream: bool = True
) -> Task | Message:
    """SendMessage, and then `wait` where its task is not done: servers may bound how long they block, or never do."""
    result = link.send(request, deadline, key)
    if isinstance(result, Message):
        return result
    configuration = request.configuration or SendMessageConfiguration()
    if configuration.return_immediately or result.state.paused:
        length = configuration.history_length
        return _until(result, request.message.message_id) if length is None else _shortened(result, length)
    return _recall(link, wait(link, result.id, deadline, stream=stream), request, deadline)


def send_streaming(link: Link, request: SendMessageRequest, deadline: Deadline, key: str) -> Task | Message:
    """SendStreamingMessage until the task pauses, and then `wait` where it can be followed no further."""
    # With a length the task is asked for at the end in any case.
    stream = link.stream(request, deadline, key, complete=not _length(request))
    try:
        # The first event of a task that goes on may still show it waiting for this very message.
        result = _run_until_paused(stream, skip_first=bool(request.message.task_id))
    except CannotBeFollowed:
        result = stream.task
    if isinstance(result, Message):
        return result
    if not result.state.paused:
        result = wait(link, stream.task_id, deadline)
    return _recall(link, result, request, deadline)


def _recall(link: Link, task: Task, request: SendMessageRequest, deadline: Deadline) -> Task:
    """`task` with the history that the request asks for."""
    length = _length(request)
    if length is None:
        return _until(task, request.message.message_id)
    if length == 0:
        return replace(task, history=())
    return patiently(link, deadline, lambda: get_task(link, task.id, length, deadline))


def _length(request: SendMessageRequest) -> int | None:
    return request.configuration.history_length if request.configuration is not None else None


def _until(task: Task, message_id: str) -> Task:
    """`task` with the history until the message that was sent, which is what a stream carries, however the task was sent
    and followed; all of it where the answer is nowhere else. A repeated send has another id than the message that is stored:
    then the last message of the user is meant."""
    places = range(len(task.history) - 1, -1, -1)
    sent = [place for place in places if task.history[place].message_id == message_id]
    sent = sent or [place for place in places if task.history[place].role is Role.USER]
    if not sent:
        return task
    cut = replace(task, history=task.history[: sent[0] + 1])
    return task if lacks_answer(cut) else cut


def get_task(link: Link, task_id: str, history_length: int | None, deadline: Deadline) -> Task:
    """GetTask."""
    task: Task = link.call(op.GET_TASK, GetTaskRequest(id=task_id, history_length=history_length), deadline)
    return _shortened(task, history_length)


def cancel(link: Link, request: CancelTaskRequest, deadline: Deadline) -> Task:
    """CancelTask. Where its answer is lost, the task is cancelled once more, or was by the first call."""

    def attempt() -> Task:
        task: Task = link.call(op.CANCEL_TASK, request, deadline)
        return task

    def repeat() -> Task:
        try:
            return attempt()
        except TaskNotCancelableError:
            task = get_task(link, request.id, None, deadline)
            if task.state is not TaskState.CANCELED:
                raise
            return task

    return again(link, deadline, attempt, repeat)


def _shortened(task: Task, length: int | None) -> Task:
    """`task` with the most history that was asked for: to agents of protocol 0.3 a length of 0 means all of it."""
    if length is None or len(task.history) <= length:
        return task
    return replace(task, history=task.history[-length:] if length else ())


def wait(link: Link, task_id: str, deadline: Deadline, *, stream: bool = True) -> Task:
    """The task once it has paused. Failures that pass are waited out, as long as the client's `Retry` says.

    Without `stream` the task is only polled.

    Raises:
        TransportTimeoutError: the deadline passed before.
        AgentError, TransportError: it cannot be known.
    """
    streaming = stream and link.streaming
    pauses = _Pauses()

    def look() -> Task:
        return patiently(link, deadline, lambda: get_task(link, task_id, None, deadline))

    while True:
        task = look()
        if not task.state.paused and streaming:
            streaming = _follow(link, task_id, deadline)
            pauses = _Pauses()
            # Streams do not carry the messages of the history; the stored task has them.
            task = look() if streaming else task
        if task.state.paused:
            return task
        _rest(pauses.next(), deadline, link, task_id)


def _follow(link: Link, task_id: str, deadline: Deadline) -> bool:
    """Follow one subscription until it ends or the task pauses; False where the agent does not let the task be followed."""
    try:
        stream = patiently(link, deadline, lambda: link.subscribe(task_id, deadline))
        _run_until_paused(stream)
    except (CannotBeFollowed, *NOT_TO_BE_FOLLOWED):
        return False
    return True


def _run_until_paused(stream: TaskStream, *, skip_first: bool = False) -> Any:
    """Read a stream until its task pauses (or it ends); what came of it."""
    with stream:
        for _ in stream:
            if stream.state.interrupted and not skip_first:
                stream.end_within(_PAUSE_GRACE)
            skip_first = False
    return stream.result


def _rest(seconds: float, deadline: Deadline, link: Link, task_id: str) -> None:
    left = deadline.left
    if link.surroundings.closed.wait(seconds if left is None else min(seconds, left)):
        raise RuntimeError("the client is closed")
    if deadline.expired:
        raise TransportTimeoutError(
            "the overall limit ran out before the task paused", phase="send", agent=link.agent, task_id=task_id
        )


class _Pauses:
    """Pauses that grow, with jitter so that clients do not come in step."""

    def __init__(self) -> None:
        self._seconds = _PAUSES[0]

    def next(self) -> float:
        seconds = self._seconds * random.uniform(0.7, 1.3)
        self._seconds = min(self._seconds * _PAUSES[1], _PAUSES[2])
        return seconds
