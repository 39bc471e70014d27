"""`Bridge`: the part of an executor that is the same for agents of all frameworks.

An adapter turns a run of its framework into the events of this module; the bridge turns them into those of a task. It joins
tokens into pieces, keeps the memory of the conversation, asks and resumes, adds up usage, and hides what callers must not
see. No framework is imported here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
import weakref
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal, TypeAlias, get_args

from a2a_sync.agent.asynchronous import batches
from a2a_sync.agent.dialogue import INTERRUPT, yes_or_no
from a2a_sync.agent.executor import Event, RequestContext, TaskCancelled
from a2a_sync.agent.memory import ValueTooLargeError
from a2a_sync.card import AgentCard, Skills, as_skills
from a2a_sync.concurrency.background import Periodic
from a2a_sync.concurrency.closing import closed_after
from a2a_sync.concurrency.eventloop import retrieve_error
from a2a_sync.errors import PublicError
from a2a_sync.integrations.chat_parts import call_of, part_of_call, part_of_result
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.jsontext import dumps
from a2a_sync.lifecycle import end_run
from a2a_sync.multiagent.taskresult import RESULT_NAMES
from a2a_sync.types import (
    JSON,
    Artifact,
    DataPart,
    FilePart,
    Message,
    Metadata,
    Part,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    new_id,
)

__all__ = [
    "About",
    "Ask",
    "Bridge",
    "BridgeEvent",
    "Data",
    "File",
    "Final",
    "Note",
    "Question",
    "Refused",
    "Remember",
    "Section",
    "Text",
    "Turn",
    "Usage",
]

#: The key of the usage in the metadata of a task.
USAGE = "urn:a2a-sync:usage:1"
#: So many events of an adapter may wait for the thread of the run.
_AHEAD = 256
#: The most files of a message. Frameworks handle each by itself in every turn, on the event loop of all runs.
MAX_FILES = 100


# -- what an adapter yields ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """The next characters of the answer. `message` is the framework's id of the message they belong to.

    When another message begins, the text of the one before becomes a message of the history.
    """

    delta: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Final:
    """The whole text of the answer. It replaces the streamed text if the two differ."""

    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """The text so far is complete: a separate artifact with this name. The next text begins another one."""

    name: str


@dataclass(frozen=True, slots=True)
class Data:
    """A declared, structured output: a data part of the answer."""

    value: JSON


@dataclass(frozen=True, slots=True)
class File:
    """A file that the agent has created: a separate artifact."""

    part: FilePart
    name: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Progress, as with `RequestContext.update`."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and requests of models, which are added up over the runs of the task, in its metadata."""

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class About:
    """Metadata for the status that ends the run."""

    metadata: Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One open question of an agent that waits.

    Parameters:
        id: names the question among those of the task.
        text: is shown to the caller.
        kind: ``"question"``, which any text or data answers, or ``"approval"``, which yes or no answers.
        tool, arguments: the call that is to be approved.
        value: the value that the framework asks with.
        options: the allowed answers, if there are only some.
        form: another form of its data part, for callers that know it: ``{"data": …, "metadata": …}``.
    """

    id: str
    text: str = ""
    kind: str = "question"
    tool: str = ""
    arguments: JSON = None
    value: JSON = None
    options: Sequence[str] = ()
    form: Mapping[str, JSON] | None = None

    def part(self) -> DataPart:
        """The question as a data part of the status message."""
        if self.form is not None:
            return DataPart(**self.form)
        members = {name: getattr(self, name) for name in ("id", "kind", "text", "tool", "arguments", "value")}
        members["options"] = list(self.options)
        return DataPart(
            {"type": "interrupt", **{key: value for key, value in members.items() if value not in (None, "", [])}}
        )

    @classmethod
    def approval(cls, id_: str, tool: str, arguments: JSON, text: str = "") -> Question:
        """Whether `tool` may be called with these arguments."""
        return cls(id=id_, kind="approval", text=text or f"Call {tool}?", tool=tool, arguments=arguments)

    @classmethod
    def of(cls, id_: str, value: Any, text: str = "") -> Question:
        """The question that a framework asks with `value`: text, or an object that may have members of a question."""
        if not isinstance(value, Mapping):
            return cls(id=id_, text=str(value or text))
        text = next((str(value[name]) for name in ("text", "question", "prefix", "msg") if value.get(name)), text)
        about = {name: value[name] for name in ("kind", "tool", "arguments", "options") if name in value}
        return cls(id=id_, text=text, value=None if about else as_json(value), **about)


@dataclass(frozen=True, slots=True)
class Ask:
    """The agent waits for answers. `pending` is what the adapter needs to resume, as JSON; it is stored, and not sent.

    With `authorization` the caller has to authorise something: the task is ``auth-required``.
    """

    questions: Sequence[Question]
    pending: JSON = None
    authorization: bool = False


@dataclass(frozen=True, slots=True)
class Remember:
    """What the turn adds to `Turn.memory`: a list of JSON values, or a function that makes a new memory of the newest one.

    It is stored when the run ends in success, or asks; not when it fails or is canceled.
    """

    items: list[Any] | Callable[[list[Any]], list[Any]]


#: What `Bridge.events` may yield. Events of the protocol are emitted as they are; those of a list in one step.
BridgeEvent: TypeAlias = (
    Text
    | Final
    | Section
    | Data
    | File
    | Note
    | Usage
    | About
    | Ask
    | Remember
    | ToolCall
    | ToolResult
    | Event
    | Sequence[Event]
)
_EMITTED = (*get_args(Event), list, tuple)


class Refused(PublicError):
    """Ends the task in `state`, with a text and `metadata` of its status that are shown to the caller."""

    def __init__(self, text: str, state: TaskState = TaskState.FAILED, metadata: Metadata | None = None) -> None:
        super().__init__(text)
        self.state = state
        self.metadata: Metadata = metadata or {}


# -- one run ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Turn:
    """One message to the agent, as an adapter sees it.

    Parameters:
        context: the request.
        deps: the value for the tools of the agent: the result of ``deps(context)``.
        pending: what the adapter gave to `Ask`, if this message answers; else None.
        answers: the answers by question id.
    """

    context: RequestContext
    deps: Any = None
    pending: JSON = None
    answers: Mapping[str, JSON] = field(default_factory=dict)
    _memory: list[Any] | None = None

    @property
    def message(self) -> Message:
        """The incoming message."""
        return self.context.message

    @property
    def resumes(self) -> bool:
        """The message answers the questions of an earlier run of the task."""
        return bool(self.answers)

    @property
    def memory(self) -> list[Any]:
        """The memory that earlier turns of the conversation have stored. Read once, on the first access."""
        if self._memory is None:
            self._memory = _listed(self.context.memory.get())
        return self._memory

    def text(self) -> str:
        """The message as text for a model: data parts as JSON, files that have a URL as this URL."""
        return _as_text(self.message.parts)

    def parts(self, *, urls: bool = True) -> Iterator[Part]:
        """The parts of the message, where all between two files are one text; `urls`: those behind a URL are files too.

        Frameworks handle each part of a conversation by itself in every turn, on the event loop of all runs.
        """
        for file, run in groupby(self.message.parts, partial(is_web_file, urls=urls)):
            if file:
                yield from run
            else:
                yield TextPart(_as_text(run))


def text_of(part: Part) -> str:
    """One part as text for a model; a file without a URL has none."""
    if isinstance(part, TextPart):
        return part.text
    return dumps(part.data).decode() if isinstance(part, DataPart) else part.url or ""


def _as_text(parts: Iterable[Part]) -> str:
    return "\n".join(filter(None, map(text_of, parts)))


def as_json(value: Any) -> Any:
    """What a framework has made of models and plain values, as JSON. It needs Pydantic, which all frameworks install."""
    from pydantic import TypeAdapter

    return TypeAdapter(Any).dump_python(value, mode="json")


def parsed(arguments: Any) -> Any:
    """The arguments of a call, which some models give as the text of a JSON object; text that is none as it is."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def final_of(output: Any) -> Iterator[BridgeEvent]:
    """The end of an answer whose value is `output`: text, or a declared output, which replaces what was streamed of it."""
    if isinstance(output, str):
        yield Final(output)
    elif output is not None:
        yield Final("")
        yield Data(as_json(output))


async def reported_by(
    run: Callable[[Callable[[BridgeEvent], None]], Coroutine[Any, Any, None]],
) -> AsyncGenerator[BridgeEvent, None]:
    """The events that `run` reports by calling its argument, for frameworks that call back.

    `run` works in an asyncio task, which is cancelled when the generator is closed. It calls its argument on the thread of its event
    loop, and does not wait until the event has been read.
    """
    reported: deque[BridgeEvent] = deque()
    news = asyncio.Event()

    def report(event: BridgeEvent) -> None:
        reported.append(event)
        news.set()

    task = asyncio.ensure_future(run(report))
    task.add_done_callback(lambda _: news.set())
    try:
        while not task.done() or reported:
            await news.wait()
            news.clear()
            while reported:
                yield reported.popleft()
        task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])
        retrieve_error(task)


def is_web_file(part: Part, *, urls: bool = True) -> bool:
    """`part` is a file with content, or, with `urls`, one with a URL of http or https.

    Providers of models read other URLs (``gs:``, ``s3:``) with the credentials of the agent.
    """
    return isinstance(part, FilePart) and (
        part.raw is not None or (urls and (part.url or "").lower().startswith(("http://", "https://")))
    )


def _listed(body: bytes | None) -> list[Any]:
    return json.loads(body) if body is not None else []


# -- the executor -------------------------------------------------------------------------------------------------------


class Bridge:
    """An executor for an agent of a framework, which describes itself: ``A2AApp(SomeBridge(agent), store=…)``.

    A subclass implements `events`.

    Parameters:
        agent: the object of the framework; or a function without parameters that makes it, which may be ``async def``. It
            is called once per process, on the event loop of the runs, after servers have forked.
        name, description, skills: for the card. The default of `name` is that of the agent.
        input_modes: the media types that the agent accepts.
        deps: a function of the `RequestContext`, whose result is passed to the tools of the agent; or that value
            itself. The identity of the caller comes from ``context.user``, never from metadata.
        expose_tools: whether callers see the calls of tools and their results, as progress.
        status_text: whether the final status repeats the text of the answer, for callers that read nothing else. ``"auto"``:
            unless the caller is an agent of the Google ADK, which would store it twice.
        interval: seconds for which the characters of the answer are joined into one piece.
    """

    #: The exceptions of the framework that callers may see: the state of the task, and the text.
    public: Mapping[type[BaseException], tuple[TaskState, str]] = {}
    on_worker_lost = "fail"
    #: The member, such as ``type``, of objects that are decisions of the framework: they too answer an approval.
    decision = ""
    modes: Sequence[str] = ("text/plain", "application/json")

    def __init__(
        self,
        agent: Any,
        *,
        name: str = "",
        description: str = "",
        skills: Skills = (),
        input_modes: Sequence[str] | None = None,
        deps: Any = None,
        expose_tools: bool = False,
        status_text: bool | Literal["auto"] = False,
        interval: float = 0.05,
    ) -> None:
        self._given = agent
        self._name = name
        self._description = description
        self._skills = skills
        self._input_modes = tuple(input_modes if input_modes is not None else self.modes)
        self._deps = deps
        self.expose_tools = expose_tools
        self.status_text = status_text
        self.interval = interval
        self._made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Any]] = (
            weakref.WeakKeyDictionary()
        )

    def events(self, turn: Turn) -> Iterable[BridgeEvent] | AsyncIterator[BridgeEvent]:
        """Run the agent for one turn: a generator or an asynchronous generator of events. The adapter implements it."""
        raise NotImplementedError

    def describe(self) -> AgentCard:
        """The card of the agent; the app adds interfaces and capabilities."""
        name = self._name or getattr(self._given, "name", None)
        return AgentCard(
            name=name if isinstance(name, str) and name else type(self).__name__,
            description=self._description,
            version="0.1.0",
            skills=as_skills(self._skills),
            default_input_modes=self._input_modes,
            default_output_modes=("text/plain", "application/json"),
        )

    async def agent(self) -> Any:
        """The agent, which is made first where a function was given. Call it in the generator of `events`."""
        if not _is_factory(self._given):
            return self._given
        loop = asyncio.get_running_loop()
        made = self._made.get(loop)
        if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
            made = self._made[loop] = loop.create_task(self._make())
        # A run that is canceled meanwhile must not cancel what others wait for.
        return await asyncio.shield(made)

    async def _make(self) -> Any:
        made = self._given()
        return await made if inspect.isawaitable(made) else made

    def execute(self, context: RequestContext) -> None:
        """Run the agent for one message, on the thread of the run."""
        pending = _Pending.of(context)
        pending.decision = self.decision
        output = _Output(self, context, pending.artifact or new_id())
        if pending.questions:
            pending.answer(context.message)
            if pending.open:
                output.ask(pending)
                return
        deps = self._deps(context) if callable(self._deps) else self._deps
        turn = Turn(context=context, deps=deps, pending=pending.state, answers=pending.answers)
        try:
            self._follow(turn, output)
        except Refused as refused:
            output.end(refused.state, str(refused), refused.metadata)
        except ValueTooLargeError:
            # Any caller can reach it by long messages.
            output.end(TaskState.FAILED, "the conversation is too long for this agent; start a new one")
        except Exception as error:
            state, text = self._public_reason(error)
            if not text:
                raise
            output.end(state, text)
        finally:
            output.close()

    def _follow(self, turn: Turn, output: _Output) -> None:
        if sum(isinstance(part, FilePart) for part in turn.message.parts) > MAX_FILES:
            raise Refused(f"a message to this agent may have {MAX_FILES} files; send fewer at once", TaskState.REJECTED)
        events = self.events(turn)
        listed: Generator[list[BridgeEvent], None, None] = _one_by_one(events)
        flush = output.flush_soon
        if isinstance(events, AsyncGenerator):
            ahead = _AHEAD if self.interval else 0
            listed, flush = batches(events, turn.context, interval=self.interval, ahead=ahead), output.flush
        with closing(listed):
            for batch in listed:
                turn.context.check_cancelled()
                for event in batch:
                    output.take(event)
                    if output.ended:
                        return
                flush()
        output.finish()

    def _public_reason(self, error: Exception) -> tuple[TaskState, str]:
        return next((reason for kind, reason in self.public.items() if isinstance(error, kind)), (TaskState.FAILED, ""))


def _one_by_one(events: Any) -> Generator[list[BridgeEvent], None, None]:
    with closed_after(events):
        for event in events:
            yield [event]


def _is_factory(agent: Any) -> bool:
    return inspect.isroutine(agent) or isinstance(agent, partial)


# -- from events to the task --------------------------------------------------------------------------------------------


class _Output:
    """What one run has given so far, and the events of the task that it becomes."""

    def __init__(self, bridge: Bridge, context: RequestContext, artifact_id: str) -> None:
        self._bridge = bridge
        self._context = context
        self._writer = context.artifact(RESULT_NAMES[0], artifact_id=artifact_id)
        #: Held while a piece is emitted, so that pieces of two threads keep their order.
        self._lock = threading.Lock()
        self._buffer: list[str] = []
        self._sent_at = 0.0
        # Not a method of this object: a cycle would keep the message of the run until a full garbage collection.
        flush = weakref.WeakMethod(self._flush_later)
        self._flusher = Periodic("a2a-bridge", lambda: (later := flush()) and later(), retry=bridge.interval)
        self._error: BaseException | None = None
        self._message = ""
        self._final: str | None = None
        self._data: list[Part] = []
        self._asked: Ask | None = None
        self._remember: list[Remember] = []
        self._usage: dict[str, int] = {}
        self._metadata: dict[str, JSON] = {}
        self.ended = False

    def take(self, event: BridgeEvent) -> None:
        """Handle one event of the adapter."""
        match event:
            case Text():
                self._text(event)
            case Final():
                self._final = event.text
            case Section():
                self._section(event.name)
            case About():
                self._metadata.update(event.metadata)
            case Data():
                self._data.append(DataPart(event.value))
            case File():
                artifact = Artifact(name=event.name or event.part.filename, parts=(event.part,))
                self._emit(TaskArtifactUpdateEvent(artifact=artifact, last_chunk=True))
            case Note():
                self._note(event.text)
            case Usage():
                for name in ("input_tokens", "output_tokens", "requests"):
                    self._usage[name] = self._usage.get(name, 0) + getattr(event, name)
            case Ask():
                self._asked = event
            case Remember():
                self._remember.append(event)
            case ToolCall():
                call = call_of({"id": event.id, "name": event.name, "arguments": event.arguments})
                self._tool(f"calls {event.name}", part_of_call(call))
            case ToolResult():
                self._tool("", part_of_result(event.tool_call_id, event.content, event.is_error))
            case _ if isinstance(event, _EMITTED):
                self._emit(*(event if isinstance(event, (list, tuple)) else (event,)))
            case _:
                raise TypeError(f"{type(event).__name__} is no event of a bridge")

    # -- while it runs --

    def _text(self, event: Text) -> None:
        if event.message != self._message:
            self._end_message()
            self._message = event.message
        if event.delta:
            with self._lock:
                self._buffer.append(event.delta)

    def flush_soon(self) -> None:
        """Send the joined characters at the end of the interval, on a thread of its own, if that is not over yet."""
        wait = self._sent_at + self._bridge.interval - time.monotonic()
        if wait <= 0:
            self.flush()
        elif self._buffer:
            self._flusher.start(wait)

    def _end_message(self) -> None:
        self.flush()
        if self._writer.text:
            self._emit(self._context.agent_message(self._writer.text))
            self._writer.restart()

    def _section(self, name: str) -> None:
        self.flush()
        parts = self._answer()
        if not parts:
            return
        whole = Artifact(name=name, artifact_id=self._writer.artifact_id, parts=parts)
        self._emit(TaskArtifactUpdateEvent(artifact=whole, last_chunk=True), self._context.agent_message(parts))
        self._writer = self._context.artifact(RESULT_NAMES[0])
        self._message, self._final, self._data = "", None, []

    def flush(self) -> None:
        """Send the joined characters. Raises what an earlier piece raised on the thread of the flusher."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._buffer:
                text = "".join(self._buffer)
                self._buffer.clear()
                self._sent_at = time.monotonic()
                self._writer.write(text)

    def _flush_later(self) -> None:
        try:
            self.flush()
        except BaseException as error:
            self._error = error

    def _note(self, *content: str | Part) -> None:
        self.flush()
        self._context.update([one for one in content if one != ""])

    def _tool(self, text: str, part: Part) -> None:
        if self._bridge.expose_tools:
            self._note(text, part)

    def _emit(self, *events: Event) -> None:
        self.flush()
        self.ended = end_run(events)
        if self.ended:
            self._store_memory()
        self._context.emit(*events)

    # -- at the end --

    def close(self) -> None:
        """End the thread that sends pieces."""
        self._flusher.stop()

    def finish(self) -> None:
        """End the run after the last event: memory first, then answer, history and status in one step."""
        if self._asked is not None:
            asked = self._asked
            self.ask(_Pending(asked.questions, {}, self._writer.artifact_id, asked.pending, asked.authorization))
            return
        self.flush()
        parts = self._answer()
        events: list[Event] = []
        if parts:
            if parts == self._writer.parts:
                events += filter(None, [self._writer.ending()])
            else:
                self._writer.restart()
                events += self._writer.completing(parts)
            events.append(self._context.agent_message(parts))
        texts = [part for part in parts if isinstance(part, TextPart)]
        message = self._context.agent_message(texts) if texts and self._repeats_text() else None
        self._end(TaskStatus(state=TaskState.COMPLETED, message=message), *events)

    def _repeats_text(self) -> bool:
        wanted = self._bridge.status_text
        return not from_adk(self._context.message) if wanted == "auto" else wanted

    def _answer(self) -> tuple[Part, ...]:
        text = self._writer.text if self._final is None else self._final
        return ((TextPart(text),) if text else ()) + tuple(self._data)

    def end(self, state: TaskState, text: str, metadata: Metadata | None = None) -> None:
        """End the task in another state than completed."""
        with suppress(TaskCancelled):
            self.flush()
        self._remember.clear()
        self._metadata.update(metadata or {})
        self._end(TaskStatus(state=state, message=self._context.agent_message(text)))

    def ask(self, pending: _Pending) -> None:
        """End the run with questions; what the agent has said before them becomes history."""
        self._end_message()
        self._store_memory()
        self._context.pending.set(pending.encoded())
        text = "\n".join(question.text for question in pending.open if question.text)
        parts: list[str | Part] = [text] if text else []
        message = self._context.agent_message([*parts, *(question.part() for question in pending.open)])
        about: dict[str, JSON] = {"ids": [question.id for question in pending.open], "artifact": pending.artifact}
        state = TaskState.AUTH_REQUIRED if pending.authorization else TaskState.INPUT_REQUIRED
        self._end(TaskStatus(state=state, message=replace(message, metadata={INTERRUPT: about})))

    def _end(self, status: TaskStatus, *events: Event) -> None:
        self._store_memory()
        if self._usage:
            before = self._context.task.metadata.get(USAGE)
            known = before if isinstance(before, Mapping) else {}
            self._metadata[USAGE] = {name: int(known.get(name, 0)) + n for name, n in self._usage.items()}
        self._context.emit(*events, TaskStatusUpdateEvent(status=status, metadata=self._metadata))
        self.ended = True

    def _store_memory(self) -> None:
        added, self._remember = self._remember, []
        if added:
            self._context.memory.change(partial(_extended, added))


def _extended(added: Sequence[Remember], body: bytes | None) -> bytes:
    memory = _listed(body)
    for one in added:
        memory = one.items(memory) if callable(one.items) else memory + one.items
    return dumps(memory)


# -- questions and answers ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pending:
    """What a task keeps while it waits: its questions, the answers so far, the id of its artifact, the adapter's state."""

    questions: Sequence[Question] = ()
    answers: dict[str, JSON] = field(default_factory=dict)
    artifact: str = ""
    state: JSON = None
    authorization: bool = False
    #: See `Bridge.decision`.
    decision: str = ""

    @classmethod
    def of(cls, context: RequestContext) -> _Pending:
        body = context.pending.get()
        if body is None:
            return cls()
        kept = json.loads(body)
        questions = [Question(**question) for question in kept["questions"]]
        return cls(**{**kept, "questions": questions})

    def encoded(self) -> bytes:
        questions = [{name: getattr(one, name) for name in Question.__dataclass_fields__} for one in self.questions]
        questions = [{**one, "options": list(one["options"])} for one in questions]
        others = {name: getattr(self, name) for name in ("answers", "artifact", "state", "authorization")}
        return dumps({"questions": questions, **others})

    @property
    def open(self) -> list[Question]:
        """The questions that have no answer yet."""
        return [question for question in self.questions if question.id not in self.answers]

    def answer(self, message: Message) -> None:
        """Add the answers in `message`: by id in its data, else by what its text or data can only mean."""
        named = {key: value for part in message.parts for key, value in _named(part)}
        found = False
        for question in self.open:
            if question.id in named:
                found |= self._give(question, named[question.id])
        if not found:
            self._guess(message)

    def _guess(self, message: Message) -> None:
        approvals = [question for question in self.open if question.kind == "approval"]
        others = [question for question in self.open if question.kind != "approval"]
        if approvals and yes_or_no(message.text) is not None:
            for question in approvals:
                self._give(question, message.text)
        elif len(others) == 1:
            data = [part.data for part in message.parts if isinstance(part, DataPart)]
            self._give(others[0], message.text if message.text or not data else data[0])

    def _give(self, question: Question, value: JSON) -> bool:
        if question.kind == "approval":
            value = _decision(value, self.decision, question.tool)
        if value is None:
            return False
        self.answers[question.id] = value
        return True


def _decision(value: JSON, member: str, tool: str) -> JSON:
    """The answer to an approval, which is True or False, or an object with `member`; None for anything else.

    An adapter would take any other value, such as ``{"approved": false}``, for an agreement, because it is not empty. A call may
    be edited, where the framework allows it, but not be replaced by one of another tool.
    """
    match value:
        case bool():
            return value
        case str():
            return yes_or_no(value)
        case {"edited_action": edited} if not isinstance(edited, Mapping) or edited.get("name") != tool:
            return None
        case Mapping() if member and isinstance(value.get(member), str | bool):
            return value
        case {"type": "approve" | "reject" as kind}:
            return kind == "approve"
    return None


def from_adk(message: Message) -> bool:
    """The message comes from an agent of the Google ADK, which marks its parts."""
    return any(name == "is_user_input" or name.startswith("adk_") for part in message.parts for name in part.metadata)


def _named(part: Part) -> Iterator[tuple[str, JSON]]:
    """Answers by id in one part. ``interruptResponse`` is the form of Strands, ``id`` and ``response`` that of the ADK."""
    data = part.data if isinstance(part, DataPart) else None
    match data:
        case {"id": str(id_), "name": str(), "response": response}:
            yield id_, response
        case {"interruptResponse": {"interruptId": str(id_), "response": response}}:
            yield id_, response
        case {"answers": Mapping() as answers}:
            yield from answers.items()
        case Mapping():
            yield from data.items()
        case list():
            for item in data:
                yield from _named(DataPart(item))
