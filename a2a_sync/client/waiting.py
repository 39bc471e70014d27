"""Operations that take several calls: sending until the task pauses, and waiting for a task by its stream or by polling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from a2a_sync import operations as op
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.link import Link
from a2a_sync.client.retry import POLL, READ, SubscriptionRefusedError
from a2a_sync.client.stream import SUBSCRIPTION_REFUSALS, TaskStream, lacks_answer
from a2a_sync.errors import MalformedResponseError, TaskNotCancelableError
from a2a_sync.jsontext import dumps
from a2a_sync.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

#: Bounds of lists: pages, and characters of a page token.
MAX_PAGES = 10_000
_MAX_TOKEN_CHARS = 4096
#: Seconds to read on after a task has paused for input: the stream usually ends right then.
_PAUSE_GRACE = 0.1
_Page = TypeVar("_Page", ListTasksResponse, ListTaskPushNotificationConfigsResponse)


def send_plain(
    link: Link, request: SendMessageRequest, deadline: Deadline, key: str, *, stream: bool = True
) -> Task | Message:
    """SendMessage, then `wait` if its task still works: servers may limit how long they block, or never block."""
    result = link.send(request, deadline, key)
    if isinstance(result, Message):
        return result
    configuration = request.configuration or SendMessageConfiguration()
    if configuration.return_immediately or result.state.paused:
        length = configuration.history_length
        return _trim_history(result, request.message.message_id) if length is None else _limit_history(result, length)
    return _with_history(link, wait(link, result.id, deadline, stream=stream), request, deadline)


def send_streaming(link: Link, request: SendMessageRequest, deadline: Deadline, key: str) -> Task | Message:
    """SendStreamingMessage until the task pauses, then `wait` if the stream could not be resumed."""
    # With a history length the task is read at the end in any case.
    stream = link.stream(request, deadline, key, complete=not _history_length(request))
    try:
        # The first event of a continued task may still show it waiting for this message.
        result = _read_until_paused(stream, skip_first=bool(request.message.task_id))
    except SubscriptionRefusedError:
        result = stream.task
    if isinstance(result, Message):
        return result
    if result is None or not result.state.paused:
        result = wait(link, stream.task_id, deadline)
    return _with_history(link, result, request, deadline)


def get_task(link: Link, task_id: str, history_length: int | None, deadline: Deadline) -> Task:
    """GetTask."""
    task = link.call(op.GET_TASK, GetTaskRequest(id=task_id, history_length=history_length), deadline)
    return _limit_history(task, history_length)


def cancel(link: Link, request: CancelTaskRequest, deadline: Deadline) -> Task:
    """CancelTask. If its answer is lost it is sent again; a refusal of the second one may mean that the first succeeded."""
    retries = link.retrying(READ, deadline, task_id=request.id)

    def attempt(_: Deadline) -> Task:
        try:
            return link.call(op.CANCEL_TASK, request, deadline)
        except TaskNotCancelableError:
            if not retries.retrying:
                raise
            task = get_task(link, request.id, None, deadline)
            if task.state is not TaskState.CANCELED:
                raise
            return task

    return retries.run(attempt)


def wait(link: Link, task_id: str, deadline: Deadline, *, stream: bool = True) -> Task:
    """The task once it has paused. Transient failures are retried, as the client's `Retry` says.

    Without `stream` the task is only polled.

    Raises:
        TransportTimeoutError: the deadline passed first.
        AgentError, TransportError: the state of the task cannot be read.
    """
    streaming = stream and link.streaming

    def is_final(task: Task) -> bool:
        # A task that still works is polled, unless it can be followed by its stream.
        return task.state.paused or streaming

    while True:
        polls = link.retrying(POLL, deadline, task_id=task_id)
        task = polls.run(lambda _: get_task(link, task_id, None, deadline), until=is_final)
        if task.state.paused:
            return task
        streaming = _follow(link, task_id, deadline)
        if streaming:
            # Streams do not carry the messages of the history; the stored task has them.
            task = polls.run(lambda _: get_task(link, task_id, None, deadline))
            if task.state.paused:
                return task
        polls.pause()


def _follow(link: Link, task_id: str, deadline: Deadline) -> bool:
    """Read one subscription until it ends or the task pauses; False if the agent refuses it."""
    try:
        _read_until_paused(link.subscribe(task_id, deadline, policy=POLL))
    except (SubscriptionRefusedError, *SUBSCRIPTION_REFUSALS):
        return False
    return True


def _read_until_paused(stream: TaskStream, *, skip_first: bool = False) -> Task | Message | None:
    """Read a stream until its task pauses or it ends; its result."""
    with stream:
        for _ in stream:
            if stream.state.interrupted and not skip_first:
                stream.end_within(_PAUSE_GRACE)
            skip_first = False
    return stream.result


def pages(read: Callable[[str], _Page], begin: str = "") -> Iterator[_Page]:
    """The pages of a list, from that of the token `begin` to the last one; `read` requests a page by its token.

    Raises:
        MalformedResponseError: there are more than `MAX_PAGES` pages, or a token is too long.
    """
    token, seen = begin, {hash(""), hash(begin)}
    for _ in range(MAX_PAGES):
        page = read(token)
        yield page
        token = page.next_page_token
        if hash(token) in seen:
            return
        if len(token) > _MAX_TOKEN_CHARS:
            raise MalformedResponseError("the page token is too long", phase="send")
        seen.add(hash(token))
    raise MalformedResponseError(f"the list has more than {MAX_PAGES} pages", phase="send")


def push_configs(
    read: Callable[[str], ListTaskPushNotificationConfigsResponse], most: int
) -> list[TaskPushNotificationConfig]:
    """The configurations on all pages.

    Raises:
        MalformedResponseError: as `pages`, or they have more than `most` bytes.
    """
    configs: list[TaskPushNotificationConfig] = []
    for page in pages(read):
        most -= len(dumps(page.to_dict()))
        if most < 0:
            raise MalformedResponseError("the list is larger than max_response_bytes", phase="send")
        configs += page.configs
    return configs


# -- the history of a result --------------------------------------------------------------------------------------------


def _with_history(link: Link, task: Task, request: SendMessageRequest, deadline: Deadline) -> Task:
    """`task` with the history that the request asks for."""
    length = _history_length(request)
    if length is None:
        return _trim_history(task, request.message.message_id)
    if length == 0:
        return replace(task, history=())
    retries = link.retrying(POLL, deadline, task_id=task.id)
    return retries.run(lambda _: get_task(link, task.id, length, deadline))


def _history_length(request: SendMessageRequest) -> int | None:
    return request.configuration.history_length if request.configuration is not None else None


def _trim_history(task: Task, message_id: str) -> Task:
    """`task` with its history up to the message that was sent, which is what a stream carries.

    So the result is the same however the message was sent and the task followed. All of the history is returned if the answer
    is nowhere else. A repeated send has another id than the stored message: then the last message of the user is meant.
    """
    indexes = range(len(task.history) - 1, -1, -1)
    sent = [index for index in indexes if task.history[index].message_id == message_id]
    sent = sent or [index for index in indexes if task.history[index].role is Role.USER]
    if not sent:
        return task
    trimmed = replace(task, history=task.history[: sent[0] + 1])
    return task if lacks_answer(trimmed) else trimmed


def _limit_history(task: Task, length: int | None) -> Task:
    """`task` with at most `length` messages of history: for agents of protocol 0.3 a length of 0 means all."""
    if length is None or len(task.history) <= length:
        return task
    return replace(task, history=task.history[-length:] if length else ())
