"""The operations of the protocol: check a request, then work on the store and its runs.

The handler is an endpoint: it takes a `Call`, and returns a result or a stream or raises an `AgentError`. It is
independent of JSON, HTTP and SQL. A streaming operation makes all checks before it returns its stream, so that an error
can still become a regular response. Calls block the calling thread and may come from any thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from a2a_sync import operations as op
from a2a_sync.agent.dialogue import question_id
from a2a_sync.agent.mediatypes import InputMediaTypes
from a2a_sync.card import AgentCapabilities
from a2a_sync.engine.hub import PolledStream, Signal, SingleItemStream, Steps, Wait, Waiter
from a2a_sync.engine.runs import RunOn
from a2a_sync.engine.streams import Streams, task_ended, trim_history
from a2a_sync.errors import (
    InvalidParamsError,
    MethodNotFoundError,
    OverloadedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.operations import (
    Call,
    CallContext,
    RequestT,
    ResultT,
    RunRequest,
    SendKey,
    StreamItem,
    owner_of,
    quota_owner,
)
from a2a_sync.push.configs import NoPushConfigs
from a2a_sync.server.bounds import check_bounds, check_headers, check_ids, check_query
from a2a_sync.server.engine import ServerEngine
from a2a_sync.server.extended import ExtendedCard
from a2a_sync.server.idempotency import check_same
from a2a_sync.server.paging import read_page_token, since_ms, write_page_token
from a2a_sync.server.pending import CallerGone, complete
from a2a_sync.server.sendqueues import SendQueues
from a2a_sync.stores.base import (
    SMALL_BYTES,
    AlreadySent,
    LargeResult,
    Owner,
    SentRun,
    StartedRun,
    StoredTask,
    TaskBusy,
    TaskEnded,
    TaskHead,
    TaskPage,
    TaskQuery,
)
from a2a_sync.telemetry import tracing
from a2a_sync.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    new_id,
)

#: Messages among which one that is sent again is looked for: those of the newest run.
_LATEST_MESSAGES = 3
_SENDS = (op.SEND_MESSAGE, op.SEND_STREAMING_MESSAGE)
#: Most seconds between two checks for a lost caller whose call may be deferred.
_DEFERRED_INTERVAL = 0.5


class RequestHandler:
    """The endpoint of the server, with one method per operation.

    Parameters:
        engine: has the tasks, the runs and the limits.
        capabilities: those of the agent card; streaming operations need ``streaming``.
        input_modes: the media types that the agent accepts.
        direct: whether the agent may answer with a message and no task.
        headers: the names of the request headers that runs receive.
        extended_card: the operation that returns the extended card; by default one without a card.
    """

    def __init__(
        self,
        engine: ServerEngine,
        capabilities: AgentCapabilities,
        input_modes: InputMediaTypes,
        *,
        direct: bool = False,
        headers: tuple[str, ...] = (),
        extended_card: ExtendedCard | None = None,
    ) -> None:
        self._store = engine.store
        self._runs = engine.runs
        self._hub = engine.hub
        self._limits = engine.limits
        self._responses = engine.responses
        self._streams = Streams(engine.store, engine.hub, engine.limits)
        self._send_queues = SendQueues()
        self._capabilities = capabilities
        self._input_modes = input_modes
        self._direct = direct
        self._headers = headers
        self._push = engine.push_configs or NoPushConfigs()
        steps: dict[op.AnyOperation, Callable[[Any, CallContext], Steps[Any]]] = {
            op.SEND_MESSAGE: self._send_message,
            op.SEND_STREAMING_MESSAGE: self._send_streaming_message,
            op.GET_TASK: self._get_task,
            op.LIST_TASKS: self._list_tasks,
            op.CANCEL_TASK: self._cancel_task,
            op.SUBSCRIBE_TO_TASK: self._subscribe_to_task,
        }
        self._methods: dict[op.AnyOperation, Callable[[Any, CallContext], Any]] = {
            **{operation: _completed(method) for operation, method in steps.items()},
            op.GET_EXTENDED_CARD: extended_card or ExtendedCard(),
            **{operation: _with_owner(method) for operation, method in self._push.methods.items()},
        }

    def __call__(self, call: Call[RequestT, ResultT]) -> ResultT:
        """Execute the operation of `call` and return its result.

        Raises:
            AgentError: the operation failed with an error that the specification defines.
            StoreError: the store failed.
        """
        method = self._methods.get(call.operation)
        if method is None:
            raise MethodNotFoundError(f"no operation {call.operation.name}")
        check_ids(call.request)
        if call.operation not in _SENDS:
            self._runs.store_tasks(_owner(call.request.tenant, call.context))
        result: ResultT = method(call.request, call.context)
        return result

    # -- sending --

    def _send_message(self, request: SendMessageRequest, context: CallContext) -> Steps[Task | Message]:
        """SendMessage (spec 3.1.1): start a run and, unless ``return_immediately``, wait until its task pauses."""
        self._check_send(request)
        owner = _owner(request.tenant, context)
        configuration = request.configuration
        at_once = configuration is not None and configuration.return_immediately
        history = configuration.history_length if configuration else None
        key = context.key
        sent = self._sent(owner, key) if request.message.task_id else None
        if sent is None:
            run_request, head = self._run_request(owner, request, context, key)
            run_on = RunOn.CALLER if self._runs.on_run_thread() and not at_once else RunOn.POOL
            if run_on is RunOn.CALLER and context.deadline is not None:
                # If the run occupied the caller's thread, the call could not end at its deadline.
                run_on = RunOn.POOL_OR_CALLER
            later = not at_once and run_on is RunOn.POOL and run_request.webhook is None
            unstored = head is None and later and not self._runs.remote
            with Waiter(self._hub, run_request.task_id, subscribe=not unstored) as waiter:
                started = yield from self._start(
                    owner, run_request, head, context, wait=not at_once, run_on=run_on, store_later=later
                )
                if isinstance(started, Message):
                    return started
                if isinstance(started, StartedRun):
                    if at_once:
                        return (yield from self._load(owner, run_request.task_id, history, context))
                    if started.head.running:
                        # The run, which goes on here, has subscribed already: nothing was missed.
                        waiter.subscribe()
                    return (yield from self._await(waiter, owner, history, context))
            sent = started
        check_same(sent, key)
        with Waiter(self._hub, sent.task_id) as waiter:
            stored = yield from self._stored(owner, sent.task_id, history, context)
            if at_once or stored.task.state.paused or not stored.running:
                return stored.task
            return (yield from self._await(waiter, owner, history, context))

    def _send_streaming_message(self, request: SendMessageRequest, context: CallContext) -> Steps[PolledStream]:
        """SendStreamingMessage (spec 3.1.2): start a run; the stream begins with the task and ends with the run."""
        self._check_streaming()
        self._check_send(request)
        owner = _owner(request.tenant, context)
        history = self._history(request.configuration.history_length if request.configuration else None)
        key = context.key
        sent = self._sent(owner, key) if request.message.task_id else None
        if sent is None:
            run_request, head = self._run_request(owner, request, context, key)
            before = None if head is None else (yield from self._stored(owner, run_request.task_id, history, context))
            self._responses.end_turn()
            subscription = self._streams.listen(run_request.task_id)
            run_on = RunOn.POOL_OR_CALLER if self._runs.on_run_thread() else RunOn.POOL
            try:
                started = yield from self._start(owner, run_request, head, context, wait=True, run_on=run_on)
                if isinstance(started, StartedRun):
                    return self._streams.of_run(owner, started, before, subscription, history)
            except BaseException:
                subscription.close()
                raise
            subscription.close()
            if isinstance(started, Message):
                return SingleItemStream(StreamItem(started))
            sent = started
        check_same(sent, key)
        load = partial(self._stored, owner, context=context)
        return (yield from self._streams.from_start(owner, sent, history, load))

    def _sent(self, owner: Owner, key: SendKey | None) -> SentRun | None:
        return None if key is None else self._store.sent(owner, key.key)

    def _check_send(self, request: SendMessageRequest) -> None:
        parts = request.message.parts
        if not parts:
            raise InvalidParamsError.at("message.parts", "must hold at least one part")
        if not request.message.message_id:
            raise InvalidParamsError.at("message.messageId", "must not be empty")
        check_bounds(request, parts, self._limits)
        self._input_modes.check(parts, "message.parts")
        configuration = request.configuration
        if configuration is not None:
            _check_history_length(configuration.history_length, "configuration.historyLength")
            if configuration.task_push_notification_config is not None:
                self._push.check(
                    configuration.task_push_notification_config, at="configuration.taskPushNotificationConfig."
                )

    def _run_request(
        self, owner: Owner, request: SendMessageRequest, context: CallContext, key: SendKey | None
    ) -> tuple[RunRequest, TaskHead | None]:
        """The run that `request` asks for, with task and context ids in its message, and its task; None if that is new."""
        message, head = request.message, None
        if not message.task_id:
            task_id = self._store.new_task_id(owner)
            # The run may read the tasks that the message names, and those of its context.
            if message.reference_task_ids:
                self._runs.store_tasks(owner)
            elif message.context_id:
                self._runs.store_tasks(owner, message.context_id)
            # Half the time of `replace`.
            message = Message(
                role=message.role,
                parts=message.parts,
                message_id=message.message_id,
                context_id=message.context_id or new_id(),
                task_id=task_id,
                metadata=message.metadata,
                extensions=message.extensions,
                reference_task_ids=message.reference_task_ids,
            )
        else:
            self._runs.store_tasks(owner)
            head = self._store.head(owner, message.task_id)
            self._check_continues(message, head)
            message = replace(message, context_id=head.context_id)
        configuration, webhook = request.configuration, None
        if configuration is not None and (config := configuration.task_push_notification_config) is not None:
            webhook = self._push.of_send(owner, config, context, message.task_id, create=head is None)
            # It holds credentials, which runs do not need.
            configuration = replace(configuration, task_push_notification_config=None)
        headers = {name: context.headers[name] for name in self._headers if name in context.headers}
        check_headers(headers)
        run_request = RunRequest(
            message=message,
            configuration=configuration,
            metadata=request.metadata,
            principal=context.principal,
            tenant=request.tenant,
            extensions=context.activated,
            trace=tracing.incoming(context.headers),
            headers=headers,
            key=key,
            webhook=webhook,
        )
        return run_request, head

    @staticmethod
    def _check_continues(message: Message, head: TaskHead) -> None:
        if head.status.state.terminal:
            raise task_ended(head.id, head.status.state)
        if message.context_id and message.context_id != head.context_id:
            raise InvalidParamsError.at("message.contextId", "differs from the context of the task")

    def _check_new(self, owner: Owner, request: RunRequest, head: TaskHead, context: CallContext) -> Steps[None]:
        """A message that is sent again must not answer the question that it has led to."""
        if not question_id(head.status.message):
            return
        message = request.message
        if (yield from self._is_among_latest(owner, head.id, message, context)):
            self._refuse_answer(
                owner,
                head.id,
                request.key,
                "The task has received this message, with this messageId, and has asked a question since",
            )

    def _is_among_latest(self, owner: Owner, task_id: str, message: Message, context: CallContext) -> Steps[bool]:
        """Whether the task has received `message`. Large ones are read within the budget of responses."""

        def compare(refuse_above: int | None = None) -> bool:
            stored = self._store.load(
                owner, task_id, history=_LATEST_MESSAGES, artifacts=False, refuse_above=refuse_above
            )
            sent = message.message_id, message.parts
            return any((one.message_id, one.parts) == sent for one in stored.task.history)

        if context.gone is None:
            return compare()
        try:
            return compare(SMALL_BYTES)
        except LargeResult as large:
            size = large.size
        yield from self._responses.reserving(size, quota_owner(owner.id))
        _leave_if_gone(context)
        try:
            return compare()
        finally:
            # They are freed, and the send may wait for long.
            self._responses.give_back(size)

    def _check_still_answers(self, owner: Owner, request: RunRequest, before: TaskHead, now: TaskHead) -> None:
        """A message that waited for a run cannot answer what this run has asked: its sender had not seen the question."""
        asked = question_id(now.status.message)
        if asked and asked != question_id(before.status.message):
            self._refuse_answer(owner, now.id, request.key, "The task has asked a question since this message was sent")

    def _refuse_answer(self, owner: Owner, task_id: str, key: SendKey | None, why: str) -> NoReturn:
        sent = self._sent(owner, key)
        if sent is not None:
            raise AlreadySent(sent)
        raise UnsupportedOperationError(
            f"{why}; read it, then send the answer as another message", metadata={"taskId": task_id}
        )

    def _start(
        self,
        owner: Owner,
        request: RunRequest,
        head: TaskHead | None,
        context: CallContext,
        *,
        wait: bool,
        run_on: RunOn,
        store_later: bool = False,
    ) -> Steps[StartedRun | SentRun | Message]:
        """Start a run, or return the one that an earlier attempt of this send has started.

        `store_later`: the task of a short run may be stored when it has ended, in one step.
        """
        try:
            # With a key, all attempts of the send are one run, and have the same task.
            may_be_later = self._direct or (store_later and self._limits.task_store_timeout)
            if head is None and request.key is None and may_be_later:
                return (yield from self._start_unstored(owner, request, run_on))
            if head is None:
                return self._runs.start_run(owner, request, after=None, run_on=run_on)
            yield from self._check_new(owner, request, head, context)
            return (yield from self._start_when_free(owner, request, head, context, wait=wait, run_on=run_on))
        except AlreadySent as known:
            return known.run
        except OverloadedError:
            sent = self._sent(owner, request.key)
            if sent is None:
                raise
            return sent

    def _start_unstored(self, owner: Owner, request: RunRequest, run_on: RunOn) -> Steps[StartedRun | Message]:
        """Start a run, and store its task after a moment unless it has stored it or answered by then."""
        decided = Signal(request.task_id)
        timeout = self._limits.direct_reply_timeout if self._direct else self._limits.task_store_timeout
        run = self._runs.start_unstored(owner, request, decided, direct=self._direct, run_on=run_on)
        deadline = time.monotonic() + timeout
        try:
            while (left := deadline - time.monotonic()) > 0:
                most = yield from self._responses.detached(Wait(decided, deadline))
                if decided.wait(min(most, left)):
                    break
        finally:
            # A caller that has left leaves a task.
            started = self._runs.decide(run)
        return started

    def _start_when_free(
        self, owner: Owner, request: RunRequest, head: TaskHead, context: CallContext, *, wait: bool, run_on: RunOn
    ) -> Steps[StartedRun]:
        wait = wait and not self._runs.waits_for_itself(request.task_id)
        deadline = time.monotonic() + (self._limits.busy_task_timeout if wait else 0.0)
        if not head.running and (started := self._started_after(owner, request, head, run_on)) is not None:
            return started
        with ExitStack() as memory, self._send_queues.add(request.task_id) as queued:
            memory.callback(self._runs.hold_memory(owner, request))
            while not queued.first:
                yield from self._while_busy(queued, request.task_id, deadline, context)
            # One of those before it may have been the same send.
            if (sent := self._sent(owner, request.key)) is not None:
                raise AlreadySent(sent)
            with Waiter(self._hub, request.task_id, ended=True) as waiter:
                while True:
                    now = self._store.head(owner, request.task_id)
                    self._check_still_answers(owner, request, head, now)
                    if not now.running and request.webhook is not None:
                        # Sends before this one may have set webhooks since it came.
                        self._push.check_number(owner, request.webhook.config)
                    if not now.running:
                        # The run counts the memory itself.
                        memory.close()
                        if (started := self._started_after(owner, request, now, run_on)) is not None:
                            return started
                        memory.callback(self._runs.hold_memory(owner, request))
                    # The task is read again and again: the end of a run elsewhere may not be announced.
                    yield from self._while_busy(waiter if now.running else None, request.task_id, deadline, context)

    def _while_busy(self, waiter: Signal | None, task_id: str, deadline: float, context: CallContext) -> Steps[None]:
        """Wait for a while, where there is a `waiter`."""
        if (left := deadline - time.monotonic()) <= 0:
            raise UnsupportedOperationError(
                "The task is busy with an earlier message; try again when it has paused",
                metadata={"taskId": task_id},
                retry_after=1.0,
            )
        if waiter is not None:
            left = min(left, self._check_interval(context))
            most = yield from self._responses.detached(Wait(waiter, time.monotonic() + left))
            waiter.wait(min(most, left))
        _leave_if_gone(context)

    def _started_after(self, owner: Owner, request: RunRequest, head: TaskHead, run_on: RunOn) -> StartedRun | None:
        """The run, if the task is still as in `head`, by which the message was checked; None if another run has begun since."""
        try:
            return self._runs.start_run(owner, request, after=head.version, run_on=run_on)
        except TaskEnded:
            raise task_ended(head.id, self._store.head(owner, head.id).status.state) from None
        except TaskBusy:
            return None

    def _await(self, waiter: Waiter, owner: Owner, history: int | None, context: CallContext) -> Steps[Task]:
        """The task when it has paused, or as it is after `Limits.blocking_send_timeout` seconds.

        Raises:
            CallerGone: the caller has disconnected, or the server is stopping.
            AgentError: the run has ended and its end could not be stored.
        """
        bound = self._limits.blocking_send_timeout
        deadline = math.inf if bound is None else time.monotonic() + bound
        while True:
            # What was read so far is not part of the response.
            self._responses.release()
            most = yield Wait(waiter, deadline)
            left = deadline - time.monotonic()
            if left <= 0:
                return (yield from self._load(owner, waiter.task_id, history, context))
            if waiter.wait(min(most, left, self._check_interval(context))):
                # Before the store is read: what ends meanwhile is waited for once more.
                stopped = waiter.stopped
                task = waiter.task()
                if task is not None and task.state.paused:
                    return trim_history(task, self._history(history), self._limits)
                # A poll of the store wakes this call too, so a large task is read only when it may have paused.
                head = self._store.head(owner, waiter.task_id)
                if head.status.state.paused or not head.running or stopped:
                    stored = yield from self._stored(owner, waiter.task_id, history, context)
                    # The wake-up may come from the end of an earlier run of the task. A stopping server returns the task
                    # as it is; another server will end it.
                    if stored.task.state.paused or not stored.running or stopped:
                        return stored.task
                    del stored
            _leave_if_gone(context)

    def _check_interval(self, context: CallContext) -> float:
        """Seconds until a waiting call checks again whether its caller has disconnected."""
        interval = self._limits.disconnect_check_interval
        if context.deferred_after < math.inf:
            interval = min(interval, _DEFERRED_INTERVAL)
        return interval if context.deadline is None else max(0.0, min(interval, context.deadline - time.monotonic()))

    # -- reading --

    def _get_task(self, request: GetTaskRequest, context: CallContext) -> Steps[Task]:
        """GetTask (spec 3.1.3)."""
        _check_history_length(request.history_length, "historyLength")
        return (yield from self._load(_owner(request.tenant, context), request.id, request.history_length, context))

    def _list_tasks(self, request: ListTasksRequest, context: CallContext) -> Steps[ListTasksResponse]:
        """ListTasks (spec 3.1.4): newest status first.

        A page token is valid only with the filter that it was issued for.
        """
        _check_history_length(request.history_length, "historyLength")
        check_query(request.tenant, request.context_id, request.page_token)
        size = 50 if request.page_size is None else request.page_size
        # spec 3.1.4: a client may request up to 100 tasks, and the server may return fewer.
        if not 1 <= size <= max(100, self._limits.max_page_size):
            raise InvalidParamsError.at("pageSize", f"must be between 1 and {max(100, self._limits.max_page_size)}")
        size = min(size, self._limits.max_page_size)
        page = yield from self._page(_owner(request.tenant, context), self._query(request, size), context)
        token = write_page_token(request, page.next) if page.next is not None else ""
        return ListTasksResponse(tasks=page.tasks, next_page_token=token, page_size=size, total_size=page.total)

    def _query(self, request: ListTasksRequest, size: int) -> TaskQuery:
        return TaskQuery(
            context_id=request.context_id,
            state=None if request.status is TaskState.UNSPECIFIED else request.status,
            since_ms=since_ms(request.status_timestamp_after),
            after=read_page_token(request),
            size=size,
            history=self._history(request.history_length),
            artifacts=bool(request.include_artifacts),
            max_bytes=self._limits.max_response_bytes,
        )

    def _page(self, owner: Owner, query: TaskQuery, context: CallContext) -> Steps[TaskPage]:
        if context.gone is None:
            return self._store.list(owner, query)
        try:
            return self._store.list(owner, replace(query, refuse_above=SMALL_BYTES))
        except LargeResult as large:
            size = large.size if query.max_bytes is None else min(large.size, query.max_bytes)
            yield from self._responses.reserving(size, quota_owner(owner.id))
            _leave_if_gone(context)
            return self._store.list(owner, query)

    def _subscribe_to_task(self, request: SubscribeToTaskRequest, context: CallContext) -> Steps[PolledStream]:
        """SubscribeToTask (spec 3.1.6): stream the current task and then its events, or those after `last_event_id`."""
        self._check_streaming()
        owner = _owner(request.tenant, context)
        load = partial(self._stored, owner, context=context)
        return (yield from self._streams.of_task(owner, request.id, context.last_event_id, load))

    # -- cancelling --

    def _cancel_task(self, request: CancelTaskRequest, context: CallContext) -> Steps[Task]:
        """CancelTask (spec 3.1.5): the task is `canceled` when this returns, even if its run has not ended yet."""
        owner = _owner(request.tenant, context)
        canceled = self._runs.cancel(owner, request.id, request.metadata, context.principal)
        try:
            return (yield from self._load(owner, request.id, None, context))
        except TaskNotFoundError:
            # Where the quota of its owner is full, a concurrent send evicts a task that has just ended.
            return canceled

    # -- shared --

    def _check_streaming(self) -> None:
        if not self._capabilities.streaming:
            raise UnsupportedOperationError("This agent does not stream")

    def _history(self, wanted: int | None) -> int:
        return self._limits.max_history_length if wanted is None else min(wanted, self._limits.max_history_length)

    def _load(self, owner: Owner, task_id: str, history: int | None, context: CallContext) -> Steps[Task]:
        return (yield from self._stored(owner, task_id, history, context)).task

    def _stored(self, owner: Owner, task_id: str, history: int | None, context: CallContext) -> Steps[StoredTask]:
        most, wanted, load = self._limits.max_response_bytes, self._history(history), self._store.load
        if context.gone is None:
            # A call from inside this process: the response is not encoded and needs no budget.
            return load(owner, task_id, history=wanted, max_bytes=most)
        try:
            return load(owner, task_id, history=wanted, max_bytes=most, refuse_above=SMALL_BYTES)
        except LargeResult as large:
            yield from self._responses.reserving(large.size, quota_owner(owner.id))
            _leave_if_gone(context)
            return load(owner, task_id, history=wanted, max_bytes=most)


def _owner(tenant: str, context: CallContext) -> Owner:
    return Owner(tenant, owner_of(context))


def _with_owner(method: Callable[[Owner, Any, CallContext], Any]) -> Callable[[Any, CallContext], Any]:
    """Wrap `method`, whose first argument is the owner of the tasks, as a method of an operation."""
    return lambda request, context: method(_owner(request.tenant, context), request, context)


def _completed(method: Callable[[Any, CallContext], Steps[Any]]) -> Callable[[Any, CallContext], Any]:
    """Wrap `method`, so that it returns its result, or a `PendingReply` after `CallContext.deferred_after`."""
    return lambda request, context: complete(method(request, context), context.deferred_after)


def _leave_if_gone(context: CallContext) -> None:
    if context.gone is not None and context.gone():
        raise CallerGone


def _check_history_length(value: int | None, member: str) -> None:
    if value is not None and value < 0:
        raise InvalidParamsError.at(member, "must not be negative")
