"""All that user code sees of a run: the executor's interface and the context it is given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

from a2a_sync.agent.artifacts import ArtifactWriter, Content, to_parts
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
    checked,
    chosen,
    here,
    yes_or_no,
)
from a2a_sync.agent.modes import Modes
from a2a_sync.agent.state import State
from a2a_sync.concurrency import clock
from a2a_sync.concurrency.gevent import way_home
from a2a_sync.errors import TaskNotFoundError
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import Principal, RunRequest
from a2a_sync.stores.base import Owner, StartedRun, StoredTask, TaskStore
from a2a_sync.types import (
    JSON,
    Artifact,
    Message,
    Metadata,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    new_id,
)

#: What an executor may yield or emit. Ids and times that are left out are filled in.
Event: TypeAlias = LogEvent


class TaskCancelled(BaseException):
    """The run must stop: its task was cancelled or timed out. Not an `Exception`, so ``except Exception`` lets it pass."""


class RunPort(Protocol):
    """What a run offers to its context. Everything may be called from any thread of the run."""

    request: RunRequest
    scope: Owner
    store: TaskStore
    started: StartedRun | None
    emitted: bool
    cancel_event: threading.Event

    def emit(self, *events: Event) -> None: ...

    def stored(self, task_id: str = "") -> StoredTask: ...

    def on_cancel(self, callback: Callable[[], None]) -> None: ...

    def keep_state(self, body: bytes, expected: int) -> None: ...


class RequestContext:
    """One run of an agent: what was asked, what is known, and how to answer while it goes on.

    It is handed to executors and handlers and stays valid after the HTTP request is gone: everything in it was copied
    out of the request. Methods may be called from any thread.
    """

    def __init__(self, run: RunPort) -> None:
        self._run = run
        self._hook: Callable[[Event], Event] | None = None
        # Code on a real thread under gevent may not touch what greenlets use.
        self._at_home = way_home()
        self._loaded: Task | None = None
        self._referenced: tuple[Task, ...] | None = None
        self._state: State | None = None
        self._dialogue: Dialogue | None = None
        self._place: object = None

    # -- what was asked --

    @property
    def message(self) -> Message:
        """The incoming message; while a dialogue goes on (see `ask`), the one that it began with."""
        started = self._run.started
        if started is None or not asks(started.head.metadata):
            return self._run.request.message
        return self._dialog().beginning

    @property
    def task_id(self) -> str:
        """The task this run works on."""
        return self._run.request.task_id

    @property
    def context_id(self) -> str:
        """The conversation the task belongs to."""
        return self._run.request.context_id

    @property
    def metadata(self) -> Metadata:
        """The request's metadata (the message has its own)."""
        return self._run.request.metadata

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's allow-listed headers, names in lower case."""
        return self._run.request.headers

    @property
    def user(self) -> Principal | None:
        """Who calls; None where nobody was authenticated."""
        return self._run.request.principal

    @property
    def tenant(self) -> str:
        """The tenant the call was made for, or ``""``."""
        return self._run.request.tenant

    @property
    def extensions(self) -> Mapping[str, JSON]:
        """The extensions that are active for this request: their URIs, each with what its `Extension.activate` gave."""
        return self._run.request.extensions

    @property
    def attempt(self) -> int:
        """1; more when workers died or stopped with this request and the agent says ``on_worker_lost = "retry"``."""
        return self._run.request.attempt

    @property
    def accepted_output_modes(self) -> tuple[str, ...]:
        """Media types the client takes; empty: any."""
        configuration = self._run.request.configuration
        return configuration.accepted_output_modes if configuration else ()

    def accepts(self, media_type: str) -> bool:
        """The client takes parts of this media type; an agent should then not answer with other ones (spec 3.2.2)."""
        return media_type in Modes(self.accepted_output_modes)

    @property
    def task(self) -> Task:
        """The task as it was at the first look at it: artifacts, history with the incoming message, state."""
        if self._loaded is None:
            self._loaded = self._at_home(self._run.stored).task
        return self._loaded

    @property
    def history(self) -> tuple[Message, ...]:
        """The conversation of this task so far, the incoming message last. Read from the store when asked for."""
        return self.task.history

    @property
    def referenced_tasks(self) -> tuple[Task, ...]:
        """The tasks that the message names in ``reference_task_ids``, read from the store at the first look at them.

        What the caller could not see by GetTask is left out, as is what was removed meanwhile.
        """
        if self._referenced is None:
            ids = dict.fromkeys(filter(None, self.message.reference_task_ids))
            self._referenced = self._at_home(lambda: tuple(self._look_up(ids)))
        return self._referenced

    def _look_up(self, ids: Iterable[str]) -> Iterator[Task]:
        for task_id in ids:
            with suppress(TaskNotFoundError):
                yield self._run.stored(task_id).task

    # -- the tasks of the context --

    def conversation(self, limit: int = 100) -> tuple[Message, ...]:
        """What both sides said in all tasks of this context, this caller's only: the newest turns, the incoming message last.

        The agent's turns include what only artifacts hold. Tasks come one after the other, the one that changed last at the
        end, and this one behind them. Read from the store at each call.

        Raises:
            ValueError: `limit` is below 1.
        """
        return self._at_home(lambda: self._converse(limit))  # type: ignore[no-any-return]

    def _converse(self, limit: int) -> tuple[Message, ...]:
        run = self._run
        try:
            own = run.store.load(run.scope, self.task_id, history=limit).task
        except TaskNotFoundError:
            # An answer without a task may still follow.
            status = TaskStatus(state=TaskState.SUBMITTED)
            own = Task(id=self.task_id, context_id=self.context_id, status=status, history=(self.message,))
        return conversation(run.store, run.scope, own, limit)

    @property
    def state(self) -> State:
        """What the tasks of this context have in common, for this caller: a small mapping, kept as long as one of them is."""
        if self._state is None:
            run, at_home = self._run, self._at_home
            self._state = State(
                lambda: at_home(lambda: run.store.contexts.state(run.scope, self.context_id)),
                lambda body, expected: at_home(lambda: run.keep_state(body, expected)),
            )
        return self._state

    # -- asking --

    def ask(self, question: Content) -> Answer:
        """Ask the client, and go on with its answer in another run: of this process, another one, or after a restart.

        The first time, the run ends here: the task waits for input, with the question as its message. The next message runs
        the handler again from the top, with the message that the first run was called with; there this returns the text of
        the answer, as `Answer`, whose ``message`` is all of it. So all that comes before is done again, must lead here again,
        and must not emit anything. What the handler returns ends the dialogue.

        Raises:
            AskError: something was emitted before, or this is called from a thread or task that the handler has started.
            DialogueChanged: the handler asked something else here when the question was answered.
            TaskCancelled: the task was cancelled.
        """
        return self._ask(self.agent_message(question), ())

    def confirm(self, question: str, *, yes: Sequence[str] = YES, no: Sequence[str] = NO) -> bool:
        """`ask` for a yes or a no; asks again where the answer is neither. `yes` and `no` are the words that count."""
        options = (yes[0], no[0])
        answer = self._ask(self.agent_message(question), options)
        while (result := yes_or_no(answer, yes, no)) is None:
            answer = self._ask(self.agent_message(f"Please answer {yes[0]} or {no[0]}. {question}"), options)
        return result

    def choose(self, question: str, options: Sequence[str]) -> str:
        """`ask` for one of `options`, which are listed behind the question; asks again where the answer names none of them, or
        more than one. Case does not matter, and other words may surround the option.

        Raises:
            ValueError: there are no options, or two are the same.
        """
        options = checked(options)
        whole = f"{question} ({', '.join(options)})"
        answer = self._ask(self.agent_message(whole), options)
        while (option := chosen(answer, options)) is None:
            answer = self._ask(self.agent_message(f"Please choose one of these. {whole}"), options)
        return option

    def _ask(self, question: Message, options: Sequence[str]) -> Answer:
        self._check_asking()
        self.check_cancelled()
        dialogue = self._dialog()
        answer = dialogue.next(question)
        if answer is not None:
            return answer
        message = replace(question, metadata={**question.metadata, MARK: dialogue.mark(options)})
        status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=message)
        self.emit(TaskStatusUpdateEvent(status=status, metadata={MARK: dialogue.asked}))
        raise WaitsForAnswer

    def _check_asking(self) -> None:
        if self._place != here():
            raise AskError(
                "only the handler itself can ask, not a thread or task that it has started, nor a cancel handler"
            )
        if self._run.emitted:
            raise AskError(
                "call ask() before yield, update() and artifact(): with the answer the handler runs again from the top, and"
                " would emit everything once more"
            )

    def _dialog(self) -> Dialogue:
        if self._dialogue is None:
            started, incoming = self._run.started, self._run.request.message
            goes_on = started is not None and asks(started.head.metadata)
            self._dialogue = Dialogue.of(self.history, incoming) if goes_on else Dialogue(incoming)
        return self._dialogue

    def enter(self) -> None:
        """The handler's code is called from here: from where it may `ask`. For those that call it."""
        self._place = here()

    # -- cancelling --

    @property
    def cancelled(self) -> bool:
        """The task was cancelled or timed out: stop as soon as you can."""
        return self._run.cancel_event.is_set()

    def check_cancelled(self) -> None:
        """Raise `TaskCancelled` if the task was cancelled; the way out of a loop."""
        if self.cancelled:
            raise TaskCancelled(self.task_id)

    def sleep(self, seconds: float) -> None:
        """Wait, and wake at once when the task is cancelled.

        Raises:
            TaskCancelled: it was.
        """
        self._at_home(lambda: clock.sleep(self._run.cancel_event, seconds))
        self.check_cancelled()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` (on the cancelling thread, once) when the task is cancelled; at once if it already is."""
        self._at_home(lambda: self._run.on_cancel(callback))

    # -- answering while the run goes on --

    def emit(self, *events: Event) -> None:
        """Store events, in one step, and send them to whoever listens. Ids and times that are left out are filled in.

        Raises:
            TaskCancelled: the run may not write any more.
            IllegalTransition: the task's state does not allow an event; none was stored.
        """
        hook = self._hook
        if hook is not None:
            events = tuple(map(hook, events))
        self._at_home(lambda: self._run.emit(*events))

    def through(self, hook: Callable[[Event], Event]) -> RequestContext:
        """This context, but that what is emitted goes through `hook` first, on the thread that emits it."""
        context = copy(self)
        context._hook = hook
        return context

    def update(self, text: str, *, metadata: Metadata | None = None) -> None:
        """Tell the client how far you are: a `working` status with this text. Progress does not become history."""
        message = self.agent_message(text)
        status = TaskStatus(state=TaskState.WORKING, message=message)
        self.emit(TaskStatusUpdateEvent(status=status, metadata=metadata or {}))

    def artifact(
        self, name: str = "", *, artifact_id: str = "", description: str = "", metadata: Metadata | None = None
    ) -> ArtifactWriter:
        """A writer for one artifact that is sent piece by piece; use it with ``with``."""
        template = Artifact(
            parts=(), artifact_id=artifact_id or new_id(), name=name, description=description, metadata=metadata or {}
        )
        return ArtifactWriter(self.emit, template)

    def agent_message(self, content: Content) -> Message:
        """A message of the agent in this task, made from text, a part, a list of them, or a message with more in it."""
        if isinstance(content, Message):
            return replace(content, role=Role.AGENT, task_id=self.task_id, context_id=self.context_id)
        return Message(
            role=Role.AGENT,
            parts=to_parts(content),
            task_id=self.task_id,
            context_id=self.context_id,
            message_id=new_id(),
        )


@runtime_checkable
class AgentExecutor(Protocol):
    """The low level: code that turns a request into events.

    ``execute`` runs on a worker thread. It may yield events, emit them through the context, or both; a task that is
    neither ended nor waiting when it returns is completed. A `Message` that is yielded is the answer: a direct one, or
    the message of the completed status; one that is emitted goes into the history. An exception fails the task.
    Optional members:
    ``cancel(context)`` (may raise `TaskNotCancelableError` to refuse), ``direct = True`` (see `Limits.direct_reply_timeout`),
    ``on_worker_lost`` (``"fail"`` or ``"retry"``), ``native_thread = True`` (under gevent: run on a real thread).
    """

    def execute(self, context: RequestContext) -> Iterator[Event] | None: ...


def check_executor(agent: Any, *, complete: bool = False) -> None:
    """Refuse what an app cannot run; `complete`: nothing is added to it any more, such as a handler by a decorator.

    Raises:
        TypeError: a class in place of an instance, no ``execute``, or an agent that cannot answer.
    """
    kind = type(agent).__name__
    if isinstance(agent, type):
        raise TypeError(f"{agent.__name__} is a class: give an instance, {agent.__name__}(…)")
    if not callable(getattr(agent, "execute", None)):
        hint = "; to serve a function, decorate it with @agent.message of an Agent" if callable(agent) else ""
        raise TypeError(f"an app serves an Agent or an AgentExecutor, and a {kind} has no execute(context){hint}")
    check = getattr(agent, "check_handler", None)
    if check is not None:
        check(complete=complete)


def as_executor(agent: Any) -> Any:
    """What runs for `agent`: itself, or what its ``as_executor()`` gives, where its own names mean something else."""
    other = getattr(agent, "as_executor", None)
    return agent if other is None else other()
