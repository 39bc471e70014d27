"""Operations, broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from a2a_sync import (
    A2AApp,
    Message,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a_sync import operations as op
from a2a_sync import types as t
from a2a_sync.agent.mediatypes import InputMediaTypes
from a2a_sync.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from a2a_sync.operations import Call, Endpoint, Principal, StreamItem
from tests.conformance.breaking import (
    Answer,
    Stream,
    answering,
    calling,
    changing_json,
    deep,
    dropping,
    forgiving,
    replaced,
    result_of,
    with_requests,
    with_results,
    with_streams,
)
from tests.conformance.ours import Variant

SENDS = (op.SEND_MESSAGE, op.SEND_STREAMING_MESSAGE)


# -- sending ------------------------------------------------------------------------------------------------------------


def as_new(endpoint: Endpoint, call: Call) -> Any:
    """Send it as if it named no task."""
    return endpoint(replace(call, request=_with_message(call.request, task_id="")))


def _with_message(request: Any, **members: Any) -> Any:
    return replace(request, message=replace(request.message, **members))


def configured(**members: Any) -> Callable[[Any], Any]:
    def change(request: Any) -> Any:
        return replace(request, configuration=replace(request.configuration or t.SendMessageConfiguration(), **members))

    return change


def _unwrapped(result: Any) -> Any:
    return next(iter(result.values())) if set(result) in ({"task"}, {"message"}) else result


def _same_artifact_ids(result: Any) -> Any:
    return replace(result, artifacts=tuple(replace(one, artifact_id="artifact") for one in result.artifacts))


def _cancelled_behind(endpoint: Endpoint, call: Call) -> Any:
    result = endpoint(call)
    if call.operation is op.SEND_MESSAGE and isinstance(result, Task) and not result.state.paused:
        endpoint(Call(op.CANCEL_TASK, t.CancelTaskRequest(id=result.id)))
    return result


def _cancelled_when_left(endpoint: Endpoint, call: Call) -> Any:
    try:
        return endpoint(call)
    except Exception:
        if call.context.gone is not None and call.context.gone():
            for task in endpoint(Call(op.LIST_TASKS, t.ListTasksRequest(status=TaskState.WORKING))).tasks:
                endpoint(Call(op.CANCEL_TASK, t.CancelTaskRequest(id=task.id)))
        raise


def _ended_after_first_event(endpoint: Endpoint, call: Call) -> Any:
    """`returnImmediately` ends a stream after its first event."""
    result = endpoint(call)
    if call.operation is not op.SEND_STREAMING_MESSAGE or not getattr(
        call.request.configuration, "return_immediately", False
    ):
        return result

    class OneOnly(Stream):
        done = False

        def poll(self, timeout: float) -> list[StreamItem] | None:
            if self.done:
                return None
            items = super().poll(timeout)
            self.done = bool(items)
            return items and items[:1]

    return OneOnly(result)


# -- reading ------------------------------------------------------------------------------------------------------------


def _oldest(endpoint: Endpoint, call: Call) -> Any:
    if call.operation is not op.GET_TASK or not call.request.history_length:
        return endpoint(call)
    task = endpoint(replace(call, request=replace(call.request, history_length=None)))
    return replace(task, history=task.history[: call.request.history_length])


def _trimming(agent: Any, **options: Any) -> A2AApp:
    """What was trimmed for one caller stays so."""
    trimmed: dict[str, Task] = {}

    def fault(endpoint: Endpoint, call: Call) -> Any:
        result = endpoint(call)
        if call.operation is op.GET_TASK:
            if call.request.history_length is not None:
                trimmed[result.id] = result
            return trimmed.get(result.id, result)
        return result

    return calling(fault)(agent, **options)


def _with_history(length: int | None, *operations: Any) -> Callable[..., A2AApp]:
    def change(request: Any) -> Any:
        if hasattr(request, "configuration"):
            return configured(history_length=length)(request)
        return replace(request, history_length=length)

    return with_requests(change, *operations)


def _page(change: Callable[[Any], Any]) -> Callable[..., A2AApp]:
    return with_results(change, op.LIST_TASKS)


def _asked_for(**members: Any) -> Callable[..., A2AApp]:
    return with_requests(lambda request: replace(request, **members), op.LIST_TASKS)


def _repeating(agent: Any, **options: Any) -> A2AApp:
    """Each page begins with the last task of the page before."""
    last: dict[str, Task] = {}

    def fault(endpoint: Endpoint, call: Call) -> Any:
        result = endpoint(call)
        if call.operation is op.LIST_TASKS and result.tasks:
            before = last.get(call.request.page_token)
            last[result.next_page_token] = result.tasks[-1]
            if before is not None and call.request.page_token:
                return replace(result, tasks=(before, *result.tasks))
        return result

    return calling(fault)(agent, **options)


def _skipping(result: Any) -> Any:
    """The last task of each page but the last gets lost."""
    return replace(result, tasks=result.tasks[:-1]) if result.next_page_token and len(result.tasks) > 1 else result


def _without(*names: str) -> Callable[[Answer], None]:
    """Empty members of a page of tasks are left out."""

    def page(result: Any) -> Any:
        if "totalSize" not in result:
            return result
        return {name: value for name, value in result.items() if value or name not in names}

    def change(answer: Answer) -> None:
        if isinstance(answer.value, dict):
            answer.value = result_of(page)(answer.value)

    return change


def _at_most(request: Any) -> Any:
    return replace(request, page_size=max(1, min(request.page_size, 100))) if request.page_size is not None else request


def ignoring_owner(*operations: Any) -> Callable[..., A2AApp]:
    """These operations find what is the caller's, or else what is another's."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        try:
            return endpoint(call)
        except TaskNotFoundError:
            if call.operation not in operations or call.context.principal is None:
                raise
            other = "bob" if call.context.principal.id == "ada" else "ada"
            return endpoint(as_user(other, call))

    return calling(fault)


def as_user(name: str, call: Call) -> Call:
    """The same call by another one."""
    return replace(call, context=replace(call.context, principal=Principal(id=name, scopes=("cancel",))))


def _ada_s(endpoint: Endpoint, call: Call) -> Any:
    return endpoint(as_user("ada", call) if call.operation is op.LIST_TASKS and call.context.principal else call)


# -- cancelling ---------------------------------------------------------------------------------------------------------


def looked_at(endpoint: Endpoint, call: Call) -> Any:
    return endpoint(Call(op.GET_TASK, t.GetTaskRequest(id=call.request.id, tenant=call.request.tenant), call.context))


def _cancelled_already(endpoint: Endpoint, call: Call) -> Any:
    task = looked_at(endpoint, call)
    if task.state is not TaskState.CANCELED:
        raise TaskNotCancelableError("The task has ended")
    return task


def _as_it_was(endpoint: Endpoint, call: Call) -> Any:
    if call.operation is not op.CANCEL_TASK:
        return endpoint(call)
    before = looked_at(endpoint, call)
    endpoint(call)
    return before


def is_status(*states: TaskState) -> Callable[[Any], bool]:
    return lambda event: isinstance(event, TaskStatusUpdateEvent) and event.status.state in states


# -- contexts -----------------------------------------------------------------------------------------------------------


def _latest(endpoint: Endpoint, call: Call) -> Any:
    """A message for a context goes to the task that waits there."""
    message = getattr(call.request, "message", None)
    if message is not None and message.context_id and not message.task_id:
        found = endpoint(Call(op.LIST_TASKS, t.ListTasksRequest(context_id=message.context_id), call.context)).tasks
        waiting = [task for task in found if task.state is TaskState.INPUT_REQUIRED]
        if waiting:
            call = replace(call, request=_with_message(call.request, task_id=waiting[0].id))
    return endpoint(call)


def _for_sends(change: Callable[[Message], dict[str, Any]]) -> Callable[..., A2AApp]:
    return with_requests(lambda request: _with_message(request, **change(request.message)), *SENDS)


BROKEN: dict[str, Variant] = {
    "bare task": Variant(
        "V1-SEND-01", "a send is answered with the task itself", wsgi=changing_json(result_of(_unwrapped))
    ),
    "ended tasks go on": Variant(
        "V1-SEND-02",
        "a message to a terminal task starts a new one",
        app=forgiving(UnsupportedOperationError, as_new, op.SEND_MESSAGE),
    ),
    "tasks by any id": Variant(
        "V1-SEND-03",
        "a message to an unknown task starts a new one",
        app=forgiving(TaskNotFoundError, as_new, op.SEND_MESSAGE),
    ),
    "any media type": Variant(
        "V1-SEND-04",
        "parts of any media type are accepted",
        inside=replaced(InputMediaTypes, "check", lambda _: lambda *a: None),
    ),
    "messages without context": Variant(
        "V1-SEND-06",
        "a message of the agent has no context",
        app=with_results(lambda one: replace(one, context_id="") if isinstance(one, Message) else one, op.SEND_MESSAGE),
    ),
    "answers of the user": Variant(
        "V1-SEND-06",
        "a message of the agent has the role user",
        app=with_results(
            lambda one: replace(one, role=t.Role.USER) if isinstance(one, Message) else one, op.SEND_MESSAGE
        ),
    ),
    "output modes dropped": Variant(
        "V1-SEND-08",
        "the agent does not receive the accepted media types",
        app=with_requests(configured(accepted_output_modes=()), *SENDS),
    ),
    "webhook dropped": Variant(
        "V1-SEND-10",
        "a webhook in a send is not stored",
        app=with_requests(configured(task_push_notification_config=None), *SENDS),
    ),
    "metadata dropped": Variant(
        "V1-SEND-11",
        "the metadata of a request is dropped",
        app=with_requests(lambda request: replace(request, metadata={}), *SENDS),
    ),
    "one artifact id": Variant(
        "V1-SEND-12", "all artifacts have one id", app=with_results(_same_artifact_ids, op.GET_TASK)
    ),
    "never blocks": Variant(
        "V1-MODE-01",
        "a send returns immediately by default",
        app=with_requests(configured(return_immediately=True), op.SEND_MESSAGE),
    ),
    "answered too early": Variant(
        "V1-MODE-02",
        "a blocking send returns without the artifacts",
        app=with_results(lambda one: replace(one, artifacts=()) if isinstance(one, Task) else one, op.SEND_MESSAGE),
    ),
    "always blocks": Variant(
        "V1-MODE-03",
        "`returnImmediately` is ignored",
        app=with_requests(configured(return_immediately=False), op.SEND_MESSAGE),
    ),
    "one event at once": Variant(
        "V1-MODE-04", "`returnImmediately` ends a stream after its first event", app=calling(_ended_after_first_event)
    ),
    "left alone": Variant(
        "V1-MODE-05", "a task ends when its send returns immediately", app=calling(_cancelled_behind)
    ),
    "ends with its caller": Variant(
        "V1-MODE-06", "a disconnect from a blocking send cancels the task", app=calling(_cancelled_when_left)
    ),
    "tasks without artifacts": Variant(
        "V1-GET-01",
        "GetTask omits the artifacts",
        app=with_results(lambda one: replace(one, artifacts=()), op.GET_TASK),
    ),
    "nothing is a task": Variant(
        "V1-GET-02",
        "an unknown id returns an empty task",
        app=forgiving(
            TaskNotFoundError,
            lambda endpoint, call: Task(
                id=call.request.id, context_id="none", status=TaskStatus(state=TaskState.SUBMITTED)
            ),
            op.GET_TASK,
        ),
    ),
    "ids are enough": Variant(
        "V1-GET-03", "any caller with the id of a task may read it", app=ignoring_owner(op.GET_TASK)
    ),
    "zero is everything": Variant(
        "V1-HIST-01",
        "a history length of 0 selects all of it, as in 0.3",
        app=with_requests(lambda request: replace(request, history_length=request.history_length or None), op.GET_TASK),
    ),
    "oldest messages": Variant("V1-HIST-02", "the history length selects the oldest messages", app=calling(_oldest)),
    "lists with history": Variant(
        "V1-HIST-03", "ListTasks ignores the history length", app=_with_history(None, op.LIST_TASKS)
    ),
    "sends with history": Variant(
        "V1-HIST-03", "SendMessage ignores the history length", app=_with_history(None, op.SEND_MESSAGE)
    ),
    "newest first": Variant(
        "V1-HIST-04",
        "the history starts with the newest message",
        app=with_results(lambda one: replace(one, history=one.history[::-1]), op.GET_TASK),
    ),
    "agent's words only": Variant(
        "V1-HIST-05",
        "the history lacks the user's messages",
        app=with_results(
            lambda one: replace(one, history=tuple(m for m in one.history if m.role is not t.Role.USER)), op.GET_TASK
        ),
    ),
    "trimmed permanently": Variant("V1-HIST-06", "the history length truncates the stored history", app=_trimming),
    "tasks of others": Variant("V1-LIST-01", "ListTasks returns the tasks of other callers", app=calling(_ada_s)),
    "page borders twice": Variant(
        "V1-LIST-02", "each page starts with the last task of the previous page", app=_repeating
    ),
    "page borders lost": Variant("V1-LIST-02", "the last task of a page is dropped", app=_page(_skipping)),
    "oldest first": Variant(
        "V1-LIST-03",
        "pages are in order of status time, oldest first",
        app=_page(lambda page: replace(page, tasks=page.tasks[::-1])),
    ),
    "no last token": Variant(
        "V1-LIST-04", "the last page has no token member", wsgi=answering(_without("nextPageToken"))
    ),
    "artifacts listed": Variant(
        "V1-LIST-05", "artifacts are included by default", app=_asked_for(include_artifacts=True)
    ),
    "artifacts never listed": Variant(
        "V1-LIST-06", "artifacts are never included", app=_asked_for(include_artifacts=False)
    ),
    "zeros left out": Variant(
        "V1-LIST-07", "an empty page has no sizes", wsgi=answering(_without("totalSize", "tasks"))
    ),
    "all contexts": Variant("V1-LIST-08", "the filter by context is ignored", app=_asked_for(context_id="")),
    "all states": Variant("V1-LIST-09", "the filter by state is ignored", app=_asked_for(status=TaskState.UNSPECIFIED)),
    "strictly after": Variant(
        "V1-LIST-10",
        "`statusTimestampAfter` is exclusive",
        app=with_requests(
            lambda request: (
                replace(request, status_timestamp_after=request.status_timestamp_after + timedelta(milliseconds=1))
                if request.status_timestamp_after
                else request
            ),
            op.LIST_TASKS,
        ),
    ),
    "any page size": Variant(
        "V1-LIST-11", "a page size out of range is clamped", app=with_requests(_at_most, op.LIST_TASKS)
    ),
    "small pages": Variant(
        "V1-LIST-11",
        "the default page size is 20",
        app=with_requests(lambda request: replace(request, page_size=request.page_size or 20), op.LIST_TASKS),
    ),
    "size of the page": Variant(
        "V1-LIST-12",
        "`totalSize` is the size of the page",
        app=_page(lambda page: replace(page, total_size=len(page.tasks))),
    ),
    "any token": Variant(
        "V1-LIST-13",
        "an invalid token selects the first page",
        app=forgiving(
            InvalidParamsError,
            lambda endpoint, call: endpoint(replace(call, request=replace(call.request, page_token=""))),
            op.LIST_TASKS,
        ),
    ),
    "history in lists": Variant(
        "V1-LIST-14", "ListTasks always includes the history", app=_with_history(None, op.LIST_TASKS)
    ),
    "cancelled later": Variant(
        "V1-CANC-01", "a cancel returns the previous state of the task", app=calling(_as_it_was)
    ),
    "ended is cancelled": Variant(
        "V1-CANC-02",
        "the cancel of a terminal task succeeds",
        app=forgiving(TaskNotCancelableError, looked_at, op.CANCEL_TASK),
    ),
    "nothing to cancel": Variant(
        "V1-CANC-03",
        "the cancel of an unknown task is refused as not cancelable",
        app=forgiving(
            TaskNotFoundError,
            lambda endpoint, call: (_ for _ in ()).throw(TaskNotCancelableError("no such task")),
            op.CANCEL_TASK,
        ),
    ),
    "cancelled in silence": Variant(
        "V1-CANC-04", "streams do not report a cancel", app=with_streams(dropping(is_status(TaskState.CANCELED)))
    ),
    "cancelled twice": Variant(
        "V1-CANC-05",
        "a second cancel succeeds",
        app=forgiving(TaskNotCancelableError, _cancelled_already, op.CANCEL_TASK),
    ),
    "no context": Variant(
        "V1-CTX-01",
        "a task has no context id",
        wsgi=changing_json(
            deep(lambda members: {n: v for n, v in members.items() if n != "contextId" or "status" not in members})
        ),
    ),
    "context replaced": Variant(
        "V1-CTX-02", "a client's context id is replaced", app=_for_sends(lambda message: {"context_id": t.new_id()})
    ),
    "new context each turn": Variant(
        "V1-CTX-04",
        "the answer to a continued task has another context id",
        app=with_results(
            lambda one: replace(one, context_id=t.new_id()) if isinstance(one, Task) else one, op.SEND_MESSAGE
        ),
    ),
    "any context": Variant(
        "V1-CTX-05",
        "the id of another context is accepted",
        app=_for_sends(lambda message: {"context_id": "" if message.task_id else message.context_id}),
    ),
    "context is the task": Variant(
        "V1-CTX-06", "a message with a context id continues its interrupted task", app=calling(_latest)
    ),
    "always a new task": Variant(
        "V1-CTX-07", "an answer to a question starts a new task", app=_for_sends(lambda _: {"task_id": ""})
    ),
    "references dropped": Variant(
        "V1-CTX-08", "the agent does not receive references", app=_for_sends(lambda _: {"reference_task_ids": ()})
    ),
}
