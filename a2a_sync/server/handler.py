"""The operations of the protocol over a store and an execution: checks, then work.

The handler is an endpoint: it takes a `Call` and gives a result, a stream or an `AgentError`. It knows no JSON, no HTTP
status and no SQL. A streaming operation checks everything before it returns its stream, so an error still gets a proper
answer. It blocks the calling thread and may be called from any.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from a2a_sync import operations as op
from a2a_sync.agent.modes import InputModes
from a2a_sync.card import AgentCapabilities
from a2a_sync.engine.hub import EventHub, PolledStream, SingleItemStream, Waiter
from a2a_sync.engine.runs import Execution, Place
from a2a_sync.engine.streams import Streams, task_ended, trim_history
from a2a_sync.errors import (
    InvalidParamsError,
    MethodNotFoundError,
    OverloadedError,
    UnsupportedOperationError,
)
from a2a_sync.limits import Limits
from a2a_sync.operations import Call, CallContext, RunRequest, SendKey, StreamItem, owner_of
from a2a_sync.push.configs import NoPushConfigs, PushConfigs
from a2a_sync.server.bounds import check_bounds, check_headers, check_query
from a2a_sync.server.extended import ExtendedCard
from a2a_sync.server.idempotency import check_same
from a2a_sync.server.paging import read_page_token, since_ms, write_page_token
from a2a_sync.stores.base import (
    AlreadySent,
    Owner,
    SentRun,
    StartedRun,
    StoredTask,
    TaskBusy,
    TaskEnded,
    TaskHead,
    TaskQuery,
    TaskStore,
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


class RequestHandler:
    """See the module. One method per operation; calling the handler looks the operation up."""

    def __init__(
        self,
        store: TaskStore,
        execution: Execution,
        hub: EventHub,
        limits: Limits,
        capabilities: AgentCapabilities,
        input_modes: InputModes,
        *,
        direct: bool = False,
        headers: tuple[str, ...] = (),
        extended_card: ExtendedCard | None = None,
        push: PushConfigs | None = None,
    ) -> None:
        self._store = store
        self._execution = execution
        self._hub = hub
        self._streams = Streams(store, hub, limits)
        self._limits = limits
        self._capabilities = capabilities
        self._input_modes = input_modes
        self._direct = direct
        self._headers = headers
        self._push = push or NoPushConfigs()
        self._methods: dict[op.Operation, Callable[[Any, CallContext], Any]] = {
            op.SEND_MESSAGE: self.send_message,
            op.SEND_STREAMING_MESSAGE: self.send_streaming_message,
            op.GET_TASK: self.get_task,
            op.LIST_TASKS: self.list_tasks,
            op.CANCEL_TASK: self.cancel_task,
            op.SUBSCRIBE_TO_TASK: self.subscribe_to_task,
            op.GET_EXTENDED_CARD: extended_card or ExtendedCard(),
            **{operation: _scoped(method) for operation, method in self._push.methods.items()},
        }

    def __call__(self, call: Call) -> Any:
        """Do what the call says.

        Raises:
            AgentError: as the specification's table of errors says.
            StoreError: the store could not do its work.
        """
        method = self._methods.get(call.operation)
        if method is None:
            raise MethodNotFoundError(f"no operation {call.operation.name}")
        return method(call.request, call.context)

    # -- sending --

    def send_message(self, request: SendMessageRequest, context: CallContext) -> Task | Message:
        """SendMessage (spec 3.1.1): start a run and wait until its task pauses, unless asked to return at once."""
        self._check_send(request)
        scope = _scope(request.tenant, context)
        configuration = request.configuration
        at_once = configuration is not None and configuration.return_immediately
        history = configuration.history_length if configuration else None
        key = context.key
        sent = self._sent(scope, key) if request.message.task_id else None
        if sent is None:
            run_request, create = self._run_request(scope, request, context, key)
            place = Place.HERE if self._execution.on_run_thread() and not at_once else Place.POOL
            if place is Place.HERE and context.deadline is not None:
                # Of a run on its own thread the caller could not stop waiting.
                place = Place.NESTED
            with Waiter(self._hub, run_request.task_id) as waiter:
                started = self._start(scope, run_request, create, context, wait=not at_once, place=place)
                if isinstance(started, Message):
                    return started
                if isinstance(started, StartedRun):
                    if at_once:
                        return self._load(scope, run_request.task_id, history)
                    return self._await(waiter, scope, run_request.task_id, history, context)
            sent = started
        check_same(sent, key)
        with Waiter(self._hub, sent.task_id) as waiter:
            stored = self._stored(scope, sent.task_id, history)
            if at_once or stored.task.state.paused or not stored.running:
                return stored.task
            return self._await(waiter, scope, sent.task_id, history, context)

    def send_streaming_message(self, request: SendMessageRequest, context: CallContext) -> PolledStream:
        """SendStreamingMessage (spec 3.1.2): start a run; the stream begins with the task and ends with the run."""
        self._check_streaming()
        self._check_send(request)
        scope = _scope(request.tenant, context)
        history = self._history(request.configuration.history_length if request.configuration else None)
        key = context.key
        sent = self._sent(scope, key) if request.message.task_id else None
        if sent is None:
            run_request, create = self._run_request(scope, request, context, key)
            before = None if create else self._stored(scope, run_request.task_id, history)
            subscription = self._streams.listen(run_request.task_id)
            place = Place.NESTED if self._execution.on_run_thread() else Place.POOL
            try:
                started = self._start(scope, run_request, create, context, wait=True, place=place)
                if isinstance(started, StartedRun):
                    return self._streams.of_run(scope, started, before, subscription, history)
            except BaseException:
                subscription.close()
                raise
            subscription.close()
            if isinstance(started, Message):
                return SingleItemStream(StreamItem(started))
            sent = started
        check_same(sent, key)
        return self._streams.from_start(scope, sent, history)

    def _sent(self, scope: Owner, key: SendKey | None) -> SentRun | None:
        return None if key is None else self._store.sent(scope, key.key)

    def _check_send(self, request: SendMessageRequest) -> None:
        if not request.message.parts:
            raise InvalidParamsError.at("message.parts", "must hold at least one part")
        if not request.message.message_id:
            raise InvalidParamsError.at("message.messageId", "must not be empty")
        check_bounds(request, self._limits)
        self._input_modes.check(request.message.parts, "message.parts")
        configuration = request.configuration
        if configuration is not None:
            _check_history_length(configuration.history_length, "configuration.historyLength")
            if configuration.task_push_notification_config is not None:
                self._push.check(
                    configuration.task_push_notification_config, at="configuration.taskPushNotificationConfig."
                )

    def _run_request(
        self, scope: Owner, request: SendMessageRequest, context: CallContext, key: SendKey | None
    ) -> tuple[RunRequest, bool]:
        """The run a send asks for, its message stamped with task and context; whether the task is new."""
        message = request.message
        create = not message.task_id
        if create:
            message = replace(message, task_id=new_id(), context_id=message.context_id or new_id())
        else:
            head = self._store.head(scope, message.task_id)
            self._check_continues(message, head)
            message = replace(message, context_id=head.context_id)
        configuration, webhook = request.configuration, None
        if configuration is not None and (config := configuration.task_push_notification_config) is not None:
            webhook = self._push.of_send(scope, config, context, message.task_id, create=create)
            # It holds credentials, which no run needs.
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
        return run_request, create

    @staticmethod
    def _check_continues(message: Message, head: TaskHead) -> None:
        if head.status.state.terminal:
            raise task_ended(head.id, head.status.state)
        if message.context_id and message.context_id != head.context_id:
            raise InvalidParamsError.at("message.contextId", "differs from the context of the task")

    def _start(
        self, scope: Owner, request: RunRequest, create: bool, context: CallContext, *, wait: bool, place: Place
    ) -> StartedRun | SentRun | Message:
        """Start a run, or find the one that was started for this send before."""
        try:
            # A direct answer is stored nowhere, so it could not be given again.
            if create and self._direct and request.key is None:
                return self._execution.start_direct(scope, request, place=place)
            if create:
                return self._execution.start(scope, request, create=True, place=place)
            return self._start_when_free(scope, request, context, wait=wait, place=place)
        except AlreadySent as known:
            return known.run
        except OverloadedError:
            sent = self._sent(scope, request.key)
            if sent is None:
                raise
            return sent

    def _start_when_free(
        self, scope: Owner, request: RunRequest, context: CallContext, *, wait: bool, place: Place
    ) -> StartedRun:
        wait = wait and not self._execution.waits_for_itself(request.task_id)
        deadline = time.monotonic() + (self._limits.busy_task_timeout if wait else 0.0)
        while True:
            with Waiter(self._hub, request.task_id, ended=True) as waiter:
                try:
                    return self._execution.start(scope, request, create=False, place=place)
                except TaskEnded:
                    raise task_ended(request.task_id, self._store.head(scope, request.task_id).status.state) from None
                except TaskBusy:
                    if (left := deadline - time.monotonic()) <= 0:
                        raise UnsupportedOperationError(
                            "The task is busy with an earlier message; try again when it has paused",
                            metadata={"taskId": request.task_id},
                            retry_after=1.0,
                        ) from None
                waiter.wait(min(left, self._patience(context)))
            _leave_if_gone(context)

    def _await(self, waiter: Waiter, scope: Owner, task_id: str, history: int | None, context: CallContext) -> Task:
        """The task when it has paused, or as it is when the bound on blocking sends is reached.

        Raises:
            CallerGone: nobody waits for it any more.
            AgentError: the run is over and its end could not be stored.
        """
        bound = self._limits.blocking_send_timeout
        deadline = None if bound is None else time.monotonic() + bound
        while True:
            left = self._patience(context)
            if deadline is not None and (rest := deadline - time.monotonic()) < left:
                left = rest
            if left <= 0 and deadline is not None and deadline <= time.monotonic():
                return self._load(scope, task_id, history)
            if waiter.wait(left):
                told = waiter.task()
                if told is not None and told.state.paused:
                    return trim_history(told, self._history(history), self._limits)
                stored = self._stored(scope, task_id, history)
                # What woke us may have been the end of the run before ours. A server that stops answers with the task as
                # it is: another one will end it.
                if stored.task.state.paused or not stored.running or waiter.stopped:
                    return stored.task
            _leave_if_gone(context)

    def _patience(self, context: CallContext) -> float:
        """Seconds until a call that waits looks whether its caller still does."""
        if context.deadline is None:
            return self._limits.disconnect_check_interval
        return max(0.0, min(self._limits.disconnect_check_interval, context.deadline - time.monotonic()))

    # -- reading --

    def get_task(self, request: GetTaskRequest, context: CallContext) -> Task:
        """GetTask (spec 3.1.3)."""
        _check_history_length(request.history_length, "historyLength")
        return self._load(_scope(request.tenant, context), request.id, request.history_length)

    def list_tasks(self, request: ListTasksRequest, context: CallContext) -> ListTasksResponse:
        """ListTasks (spec 3.1.4): newest status first; the page token is bound to its filter."""
        _check_history_length(request.history_length, "historyLength")
        check_query(request.tenant, request.context_id, request.page_token)
        size = 50 if request.page_size is None else request.page_size
        # spec 3.1.4: up to 100 may be asked for, and a server may return fewer.
        if not 1 <= size <= max(100, self._limits.max_page_size):
            raise InvalidParamsError.at("pageSize", f"must be between 1 and {max(100, self._limits.max_page_size)}")
        size = min(size, self._limits.max_page_size)
        query = TaskQuery(
            context_id=request.context_id,
            state=None if request.status is TaskState.UNSPECIFIED else request.status,
            since_ms=since_ms(request.status_timestamp_after),
            after=read_page_token(request),
            size=size,
            history=self._history(request.history_length),
            artifacts=bool(request.include_artifacts),
            max_bytes=self._limits.max_response_bytes,
        )
        page = self._store.list(_scope(request.tenant, context), query)
        token = write_page_token(request, page.next) if page.next is not None else ""
        return ListTasksResponse(tasks=page.tasks, next_page_token=token, page_size=size, total_size=page.total)

    def subscribe_to_task(self, request: SubscribeToTaskRequest, context: CallContext) -> PolledStream:
        """SubscribeToTask (spec 3.1.6): the task as it is, then what follows; or what followed `last_event_id`."""
        self._check_streaming()
        return self._streams.of_task(_scope(request.tenant, context), request.id, context.last_event_id)

    # -- cancelling --

    def cancel_task(self, request: CancelTaskRequest, context: CallContext) -> Task:
        """CancelTask (spec 3.1.5): the task is `canceled` when this returns, whatever its run does."""
        scope = _scope(request.tenant, context)
        self._execution.cancel(scope, request.id, request.metadata, context.principal)
        return self._load(scope, request.id, None)

    # -- shared --

    def _check_streaming(self) -> None:
        if not self._capabilities.streaming:
            raise UnsupportedOperationError("This agent does not stream")

    def _history(self, wanted: int | None) -> int:
        return self._limits.max_history_length if wanted is None else min(wanted, self._limits.max_history_length)

    def _load(self, scope: Owner, task_id: str, history: int | None) -> Task:
        return self._stored(scope, task_id, history).task

    def _stored(self, scope: Owner, task_id: str, history: int | None) -> StoredTask:
        most = self._limits.max_response_bytes
        return self._store.load(scope, task_id, history=self._history(history), max_bytes=most)


def _scope(tenant: str, context: CallContext) -> Owner:
    return Owner(tenant, owner_of(context))


def _scoped(method: Callable[[Owner, Any, CallContext], Any]) -> Callable[[Any, CallContext], Any]:
    """An operation that takes its caller's scope first."""
    return lambda request, context: method(_scope(request.tenant, context), request, context)


class CallerGone(OverloadedError):
    """Whoever asked has left or the server is stopping: nobody reads this answer. The task goes on."""


def _leave_if_gone(context: CallContext) -> None:
    if context.gone is not None and context.gone():
        raise CallerGone("the connection was closed while the task went on")


def _check_history_length(value: int | None, member: str) -> None:
    if value is not None and value < 0:
        raise InvalidParamsError.at(member, "must not be negative")
