"""The interface between a run and the code of an agent: `AgentExecutor` and `RequestContext`."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from a2a_sync.agent.artifacts import ArtifactWriter
from a2a_sync.agent.conversation import conversation
from a2a_sync.agent.dialogue import (
    MARK,
    NO,
    YES,
    Answer,
    AskError,
    Dialogue,
    WaitsForAnswer,
    asks,
    check_options,
    chosen_option,
    current_flow_id,
    yes_or_no,
)
from a2a_sync.agent.mediatypes import MediaTypes
from a2a_sync.agent.memory import Memory
from a2a_sync.agent.state import State
from a2a_sync.agent.turns import take_turn
from a2a_sync.concurrency import clock
from a2a_sync.concurrency.gevent import Caller, gevent_hub_caller
from a2a_sync.errors import TaskNotFoundError
from a2a_sync.jsontext import dumps
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import Principal, RunRequest, quota_owner
from a2a_sync.stores.base import (
    MEMORY,
    STATE,
    TURN,
    Owner,
    StartedRun,
    StoredTask,
    TaskStore,
    pending_name,
    require,
)
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.types import (
    JSON,
    Artifact,
    Content,
    Message,
    Metadata,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    new_id,
    to_parts,
)

#: What an executor may yield or emit. Missing ids and times are filled in.
Event: TypeAlias = LogEvent
_ValueT = TypeVar("_ValueT", State, Memory)


class TaskCancelled(BaseException):
    """Raised in a run whose task was canceled or timed out.

    Not an `Exception`, so that ``except Exception`` does not catch it.
    """


class RunPort(Protocol):
    """The methods of a run that its context uses. They may be called from any thread of the run."""

    request: RunRequest
    owner: Owner
    store: TaskStore
    reads: LargeReads
    started: StartedRun | None
    emitted: bool
    cancel_event: threading.Event

    def emit(self, *events: Event) -> None: ...

    def stored(self, task_id: str = "") -> StoredTask: ...

    def on_cancel(self, callback: Callable[[], object]) -> None: ...

    def keep_state(self, body: bytes, expected: int, name: str = STATE) -> None: ...

    def lock_values(self) -> Callable[[], None]: ...


class RequestContext:
    """One run of an agent: its request, its task, and methods to answer while it runs.

    Executors and handlers receive it. It stays valid after the HTTP request has ended, because it holds copies. Methods
    may be called from any thread.
    """

    def __init__(self, run: RunPort) -> None:
        self._run = run
        self._hook: Callable[[Event], Event] | None = None
        # Under gevent, code on a real thread must not use objects that greenlets use.
        self._on_hub = gevent_hub_caller()
        self._task: Task | None = None
        self._referenced: tuple[Task, ...] | None = None
        self._state: State | None = None
        self._dialogue: Dialogue | None = None
        self._handler_flow: object = None

    # -- the request --

    @property
    def message(self) -> Message:
        """The incoming message; during a dialogue (see `ask`), its first message."""
        started = self._run.started
        if started is None or not asks(started.head.metadata):
            return self._run.request.message
        return self._get_dialogue().beginning

    @property
    def task_id(self) -> str:
        """The id of the task of this run."""
        return self._run.request.task_id

    @property
    def context_id(self) -> str:
        """The id of the conversation of the task."""
        return self._run.request.context_id

    @property
    def metadata(self) -> Metadata:
        """The metadata of the request, which is separate from the metadata of the message."""
        return self._run.request.metadata

    @property
    def headers(self) -> Mapping[str, str]:
        """The request headers listed in ``A2AApp(handler_headers=…)``, with names in lower case."""
        return self._run.request.headers

    @property
    def user(self) -> Principal | None:
        """The authenticated caller, or None."""
        return self._run.request.principal

    @property
    def tenant(self) -> str:
        """The tenant of the call, or ``""``."""
        return self._run.request.tenant

    @property
    def owner_id(self) -> str:
        """The owner of the task: the id of `user`, or what ``A2AApp(owner=…)`` returned for the call; ``""`` without either.

        An owner that was returned as a string follows the character U+001E, so it never equals the id of a caller. For data about
        an owner that is kept elsewhere, such as the user of an agent framework; it is unique within a tenant.
        """
        return quota_owner(self._run.owner.id)

    @property
    def key(self) -> str:
        """Identifies the conversation among those of all tenants and owners: a hash of tenant, owner and context id.

        For data about a conversation that is kept elsewhere, such as sessions of agent frameworks. Two callers may use
        one context id, and with ``A2AApp(owner=…)`` several callers may be one owner.
        """
        return hashlib.sha256(dumps([*self._run.owner, self.context_id])).hexdigest()

    @property
    def extensions(self) -> Mapping[str, JSON]:
        """The extensions that are active for this request: their URIs, each with the result of `Extension.activate`."""
        return self._run.request.extensions

    @property
    def attempt(self) -> int:
        """The number of this attempt; above 1 if a worker was lost in an earlier one (``on_worker_lost = "retry"``)."""
        return self._run.request.attempt

    @property
    def accepted_output_modes(self) -> tuple[str, ...]:
        """Media types that the client accepts; empty: any."""
        configuration = self._run.request.configuration
        return configuration.accepted_output_modes if configuration else ()

    def accepts(self, media_type: str) -> bool:
        """Whether the client accepts parts of this media type; agents should not send other ones (spec 3.2.2)."""
        return media_type in MediaTypes(self.accepted_output_modes)

    @property
    def task(self) -> Task:
        """The task as of the first access: its state, its artifacts, and its history with the incoming message."""
        if self._task is None:
            self._task = self._on_hub(self._run.stored).task
        return self._task

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of this task, the incoming one last. Read from the store on first access."""
        return self.task.history

    @property
    def referenced_tasks(self) -> tuple[Task, ...]:
        """The tasks that the message names in ``reference_task_ids``, read from the store on first access.

        Tasks of other owners and removed tasks are omitted.
        """
        if self._referenced is None:
            ids = dict.fromkeys(filter(None, self.message.reference_task_ids))
            self._referenced = self._on_hub(lambda: tuple(self._load_tasks(ids)))
        return self._referenced

    def _load_tasks(self, ids: Iterable[str]) -> Iterator[Task]:
        for task_id in ids:
            with suppress(TaskNotFoundError):
                yield self._run.stored(task_id).task

    # -- the tasks of the context --

    def conversation(self, limit: int = 100, *, completed_only: bool = False) -> tuple[Message, ...]:
        """The newest messages of all tasks of this context and owner, the incoming message last.

        Answers that only artifacts contain are included as messages of the agent. The tasks are ordered by their last
        change, and the current task is the last. Each call reads the store.

        Parameters:
            limit: the largest number of messages.
            completed_only: omit other tasks that are not completed: those that were canceled or have failed, and those
                that still run or wait.

        Raises:
            ValueError: `limit` is below 1.
        """
        return self._on_hub(lambda: self._read_conversation(limit, completed_only))  # type: ignore[no-any-return]

    def _read_conversation(self, limit: int, completed_only: bool) -> tuple[Message, ...]:
        run = self._run
        try:
            own = run.reads.load(run.owner, self.task_id, history=limit).task
        except TaskNotFoundError:
            # Not stored yet: the agent may still answer without a task.
            status = TaskStatus(state=TaskState.SUBMITTED)
            own = Task(id=self.task_id, context_id=self.context_id, status=status, history=(self.message,))
        return conversation(run.reads, run.owner, own, limit, completed_only=completed_only)

    @property
    def state(self) -> State:
        """The shared state of the tasks of this context and owner, a small mapping.

        Stored until the last task is removed.
        """
        if self._state is None:
            self._state = self._value(State, STATE)
        return self._state

    @property
    def memory(self) -> Memory:
        """Bytes that the tasks of this context and owner share, such as the messages of a model.

        Stored until the last task is removed.
        """
        return self._value(Memory, MEMORY)

    @property
    def pending(self) -> Memory:
        """Bytes that this task keeps from one run to the next, such as the state of an agent that waits for an answer.

        Removed when the task ends.
        """
        return self._value(Memory, pending_name(self.task_id))

    def _value(self, kind: type[_ValueT], name: str) -> _ValueT:
        """The value `name` of the context, as an object of `kind`."""
        # It does not refer to this object, which keeps it: the run would wait for a garbage collection.
        run, on_hub, context_id = self._run, self._on_hub, self.context_id
        return kind(
            lambda: on_hub(lambda: require(run.store.contexts, "contexts").state(run.owner, context_id, name)),
            lambda body, expected: on_hub(lambda: run.keep_state(body, expected, name)),
            partial(_lock_values, run, on_hub),
        )

    def wait_for_turn(self, timeout: float = 20.0) -> None:
        """Wait until no other task of this context and owner that has called this method runs, in any worker.

        The turn ends with the run, even if its worker dies. Executors with ``exclusive = True`` call this method first.

        Raises:
            PublicError: another task still ran after `timeout` seconds. If it is not caught, the task fails with this
                reason.
            TaskCancelled: the task was canceled or timed out.
        """
        take_turn(self._value(Memory, TURN), self.task_id, runs=self._has_run, sleep=self.sleep, timeout=timeout)

    def _has_run(self, task_id: str) -> bool:
        try:
            stored = self._on_hub(lambda: self._run.stored(task_id))
        except TaskNotFoundError:
            return False
        return bool(stored.running)

    # -- asking --

    def ask(self, question: Content) -> Answer:
        """Ask the client a question and return its answer.

        The answer arrives in a later run, perhaps in another process.

        The first call ends the run: the task requires input, with the question as its message. The next message runs
        the handler again from the top, with the first message of the dialogue, and this call returns the text of the
        answer, an `Answer` with the whole ``message``. The code before the call is therefore repeated: it must reach
        the call again and must not emit events. The result of the handler ends the dialogue.

        Raises:
            AskError: an event was emitted before, or the caller is a thread or task that the handler has started.
            DialogueChanged: an earlier run asked another question at this point.
            TaskCancelled: the task was cancelled.
        """
        return self._ask(self.agent_message(question), ())

    def confirm(self, question: str, *, yes: Sequence[str] = YES, no: Sequence[str] = NO) -> bool:
        """`ask` a yes-or-no question, and repeat it until the answer agrees or declines, as `yes_or_no` understands it.

        Raises as `ask`.
        """
        options = (yes[0], no[0])
        answer = self._ask(self.agent_message(question), options)
        while (result := yes_or_no(answer, yes, no)) is None:
            answer = self._ask(self.agent_message(f"Please answer {yes[0]} or {no[0]}. {question}"), options)
        return result

    def choose(self, question: str, options: Sequence[str]) -> str:
        """`ask` for one of `options`, which follow the question in parentheses, until the answer contains exactly one.

        Case is ignored, and the answer may contain other words. Errors are those of `ask`, and:

        Raises:
            ValueError: there are no options, one is empty, or two differ only in case.
        """
        options = check_options(options)
        whole = f"{question} ({', '.join(options)})"
        answer = self._ask(self.agent_message(whole), options)
        while (option := chosen_option(answer, options)) is None:
            answer = self._ask(self.agent_message(f"Please choose one of these. {whole}"), options)
        return option

    def _ask(self, question: Message, options: Sequence[str]) -> Answer:
        self._check_asking()
        self.check_cancelled()
        dialogue = self._get_dialogue()
        answer = dialogue.next(question)
        if answer is not None:
            return answer
        message = replace(question, metadata={**question.metadata, MARK: dialogue.mark(options)})
        status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=message)
        self.emit(TaskStatusUpdateEvent(status=status, metadata={MARK: dialogue.asked}))
        raise WaitsForAnswer

    def _check_asking(self) -> None:
        if self._handler_flow != current_flow_id():
            raise AskError(
                "only the handler itself can ask, not a thread or task that it has started, nor a cancel handler"
            )
        if self._run.emitted:
            raise AskError(
                "call ask() before yield, update() and artifact(): with the answer the handler runs again from the top, and"
                " would emit everything once more"
            )

    def _get_dialogue(self) -> Dialogue:
        if self._dialogue is None:
            started, incoming = self._run.started, self._run.request.message
            continues = started is not None and asks(started.head.metadata)
            self._dialogue = Dialogue.of(self.history, incoming) if continues else Dialogue(incoming)
        return self._dialogue

    def enter(self) -> None:
        """Record the current thread and asyncio task as those of the handler, which may `ask`. Called by runs."""
        self._handler_flow = current_flow_id()

    # -- cancelling --

    @property
    def cancelled(self) -> bool:
        """Whether the task was canceled or timed out; the handler should end soon."""
        return self._run.cancel_event.is_set()

    def check_cancelled(self) -> None:
        """Raise `TaskCancelled` if the task was canceled or timed out."""
        if self.cancelled:
            raise TaskCancelled(self.task_id)

    def sleep(self, seconds: float) -> None:
        """Sleep, but wake immediately when the task is canceled.

        Raises:
            TaskCancelled: the task was canceled or timed out.
        """
        self._on_hub(lambda: clock.sleep(self._run.cancel_event, seconds))
        self.check_cancelled()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` (on the cancelling thread, once) when the task is cancelled; at once if it already is."""
        self._on_hub(lambda: self._run.on_cancel(callback))

    # -- events --

    def emit(self, *events: Event) -> None:
        """Store events atomically and publish them to subscribers. Missing ids and times are filled in.

        Raises:
            TaskCancelled: the run has lost the right to write.
            IllegalTransition: the task's state does not allow an event; none was stored.
        """
        hook = self._hook
        if hook is not None:
            events = tuple(map(hook, events))
        self._on_hub(partial(self._run.emit, *events))

    def through(self, hook: Callable[[Event], Event]) -> RequestContext:
        """A copy of this context whose emitted events go through `hook` first, on the emitting thread."""
        context = copy(self)
        context._hook = hook
        return context

    def update(self, content: Content, *, metadata: Metadata | None = None) -> None:
        """Report progress: a `working` status with this text, part or list of parts.

        Progress does not become part of the history.
        """
        message = self.agent_message(content)
        status = TaskStatus(state=TaskState.WORKING, message=message)
        self.emit(TaskStatusUpdateEvent(status=status, metadata=metadata or {}))

    def artifact(
        self, name: str = "", *, artifact_id: str = "", description: str = "", metadata: Metadata | None = None
    ) -> ArtifactWriter:
        """A writer that sends one artifact in chunks; use it with ``with``."""
        template = Artifact(
            parts=(), artifact_id=artifact_id or new_id(), name=name, description=description, metadata=metadata or {}
        )
        return ArtifactWriter(self.emit, template, self.task_id, self.context_id)

    def agent_message(self, content: Content) -> Message:
        """A message of the agent in this task, from text, a part, a list of them, or another message."""
        if isinstance(content, Message):
            return replace(content, role=Role.AGENT, task_id=self.task_id, context_id=self.context_id)
        return Message(
            role=Role.AGENT,
            parts=to_parts(content),
            task_id=self.task_id,
            context_id=self.context_id,
            message_id=new_id(),
        )


def _lock_values(run: RunPort, on_hub: Caller) -> Callable[[], None]:
    release = on_hub(run.lock_values)
    return lambda: on_hub(release)


@runtime_checkable
class AgentExecutor(Protocol):
    """The interface below `Agent`: code that turns a request into events.

    ``execute`` runs on a worker thread. It may yield events, emit them through the context, or both; a task that is
    neither terminal nor interrupted when it returns is completed. A yielded `Message` is the answer: a direct one, or
    the message of the completed status; an emitted one becomes part of the history. An exception fails the task.
    Optional members: ``cancel(context)`` (may raise `TaskNotCancelableError` to refuse), ``direct = True`` (see
    `Limits.direct_reply_timeout`), ``on_worker_lost`` (``"fail"`` or ``"retry"``), ``native_thread = True`` (under
    gevent: run on a real thread), ``exclusive = True`` (tasks of one conversation run one after the other: see
    `RequestContext.wait_for_turn`).
    """

    def execute(self, context: RequestContext) -> Iterator[Event] | None: ...
