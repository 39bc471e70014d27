"""Calls of remote agents from the event loops of frameworks: `RemoteCall`; remote agents as their tools and
models: `AgentTool` and `AgentModel`.

The client blocks, so it works on a thread of the loop's executor; its events arrive on the loop. No framework is imported here.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, TypeAlias

from a2a_sync.client.client import Client
from a2a_sync.client.connections import HEAD_OBSERVER
from a2a_sync.client.retry import RETRY_OBSERVER, ClientClosedError
from a2a_sync.client.stream import TaskStream
from a2a_sync.client.tools import MAX_ID_CHARS, SKILL, answer_text, can_continue, tool_result
from a2a_sync.concurrency.eventloop import iterate_on_thread, retrieve_error
from a2a_sync.errors import MAX_TEXT, A2AError, TaskFailedError, left_out, shortened
from a2a_sync.jsontext import dumps
from a2a_sync.types import Content, Message, StreamResponse, Task, TaskStatusUpdateEvent

#: The longest time that a cancel of an abandoned task may take, in seconds.
_CANCEL_SECONDS = 2.0
#: How long an abandoned stream may take to name its task, in seconds. Then its thread is needed for others.
_NAME_SECONDS = 10.0
#: The bytes of the events of a call, as a multiple of the largest task. Frameworks keep every event, also where the task stays small
#: because the agent replaces an artifact again and again. The end of an answer may repeat all of it.
_MAX_TASKS = 4


class RemoteEvent(NamedTuple):
    """One event of the stream of a remote task, and the text that it adds to the artifacts."""

    event: StreamResponse
    new_text: str


class RemoteCall:
    """One message to a remote agent: iterate over its events, then read `result`.

    When the iteration is closed or its asyncio task is cancelled, reading stops and the remote task is cancelled.

    Parameters:
        client: the client of the agent.
        content: the message.
        cancel_remote: whether an abandoned task is cancelled.
        options: further arguments of `Client.stream`, such as ``task_id``, ``context_id`` and ``timeout``.
    """

    def __init__(self, client: Client, content: Content, *, cancel_remote: bool = True, **options: Any) -> None:
        self._client = client
        self._content = content
        self._cancel_remote = cancel_remote
        self._options = options
        self._stream: TaskStream | None = None
        #: Ends the wait for the head of a response, while there is one.
        self._end_wait: Callable[[], None] | None = None
        self._abandoned = False
        #: The call was abandoned, and its agent has not begun to answer in time.
        self._expired = False
        #: The task or message that the agent has answered with.
        self.result: Task | Message | None = None

    async def events(self) -> AsyncGenerator[RemoteEvent, None]:
        """Send the message; its events as they arrive.

        Raises:
            MalformedResponseError: the events have more than four times the client's ``max_task_bytes``.
            AgentError, TransportError: as `Client.stream`.
        """
        async with aclosing(iterate_on_thread(self._read)) as events:
            try:
                async for event in events:
                    yield event
            except (GeneratorExit, asyncio.CancelledError):
                self._abandoned = True
                loop = asyncio.get_running_loop()
                loop.call_later(_NAME_SECONDS, self._expire)
                abandoning = loop.run_in_executor(None, self._abandon)
                abandoning.add_done_callback(retrieve_error)
                raise

    async def run(self) -> Task | Message:
        """Send the message and wait for the answer. Raises as `events`."""
        async for _ in self.events():
            pass
        assert self.result is not None
        return self.result

    # -- on threads --

    def _read(self) -> Iterator[RemoteEvent]:
        observed = RETRY_OBSERVER.get()

        def observe(failure: Exception | None) -> None:
            if failure is not None and self._abandoned and self._stream is None:
                # An agent may break every connection, and so be called without end.
                raise ClientClosedError("the call was abandoned")
            if observed is not None:
                observed(failure)

        # In the context of this call: the thread has a copy.
        RETRY_OBSERVER.set(observe)
        HEAD_OBSERVER.set(self._note_wait)
        with self._client.stream(self._content, **self._options) as stream:
            self._stream = stream
            if self._abandoned:
                stream.close_within(_NAME_SECONDS)
            for event in _limited(stream):
                if self._abandoned and stream.task_id:
                    self._cancel(stream)
                    return
                yield RemoteEvent(event, stream.new_text)
            self.result = stream.message or stream.task

    def _note_wait(self, end: Callable[[], None] | None) -> None:
        self._end_wait = end
        if self._expired and end is not None:
            end()

    def _expire(self) -> None:
        """End the wait of an abandoned call for the head of a response, on the loop; it does not block."""
        if self._stream is None:
            self._expired = True
            if (end := self._end_wait) is not None:
                end()

    def _abandon(self) -> None:
        stream = self._stream
        if stream is None:
            return
        if stream.task_id:
            self._cancel(stream)
        else:
            # There is no id to cancel by; the thread that reads cancels the task when it knows it.
            stream.close_within(_NAME_SECONDS)

    def _cancel(self, stream: TaskStream) -> None:
        stream.close()
        if self._cancel_remote and stream.task_id and not stream.state.paused:
            with suppress(A2AError):
                self._client.cancel_task(stream.task_id, timeout=_CANCEL_SECONDS)


def _limited(stream: TaskStream) -> Iterator[StreamResponse]:
    """The events of a stream. Raises `MalformedResponseError` where they are more than a framework may have to keep."""
    for event in stream:
        stream._check_received(_MAX_TASKS)
        yield event


# -- tools --------------------------------------------------------------------------------------------------------------

#: The calls of remote tools in a run, by the framework's ids of these calls, for frameworks whose tools have no place for
#: them: what `AgentTool.resume` returns, and ``answer``. A bridge sets it for each run, and stores it while the run waits.
remote_calls: contextvars.ContextVar[dict[str, dict[str, Any]]] = contextvars.ContextVar("a2a_sync_remote_calls")


def calls_of_run(bridge: str) -> dict[str, dict[str, Any]]:
    """The value of `remote_calls`. Raises `RuntimeError` in a run that `bridge` does not serve."""
    try:
        return remote_calls.get()
    except LookupError:
        raise RuntimeError(
            f"remote_tool works in agents that {bridge} serves; elsewhere use client.as_tool()"
        ) from None


class ToolAnswer(NamedTuple):
    """What a remote agent has answered, with at most 1,000,000 characters of it; the id of its task if that waits for an answer."""

    text: str
    task_id: str = ""


#: A text is progress, a dictionary with ``agent`` and ``text`` a piece of the answer; the answer itself is the last item.
ToolItem: TypeAlias = str | dict[str, str] | ToolAnswer


class AgentTool:
    """A remote agent as a tool of a framework: its name and description, and calls that report their progress.

    Parameters:
        client: the client of the agent.
        skill: the id of one skill of the card.
        name: in place of that of the card.
        description: what a model reads about the tool, in place of that of the card.
        options: further arguments of `Client.stream`, such as ``context_id`` and ``timeout``.
    """

    def __init__(
        self, client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
    ) -> None:
        function = client.as_tool(skill, name=name, description=description)
        self.name: str = function.__name__
        self.description: str = (function.__doc__ or "").partition("\n\nArgs:")[0]
        self.client = client
        marked: dict[str, Any] = (
            {} if skill is None else {"metadata": {**(options.get("metadata") or {}), SKILL: skill}}
        )
        self.options: dict[str, Any] = {**options, **marked}

    async def send(self, message: str, task_id: str = "") -> AsyncIterator[ToolItem]:
        """Send a message, or the answer to the question of a task. An abandoned call cancels the task."""
        call = RemoteCall(self.client, message, task_id=task_id or None, **self.options)
        async for item in call.events():
            for one in self._reported(*item):
                yield one
        yield self._answer(call.result)

    async def answer(self, message: str, task_id: str = "") -> ToolAnswer:
        """`send` without progress."""
        answer = ToolAnswer("")
        async for item in self.send(message, task_id):
            if isinstance(item, ToolAnswer):
                answer = item
        return answer

    def send_blocking(self, message: str, task_id: str = "") -> Iterator[ToolItem]:
        """`send` on the thread of the caller."""
        with self.client.stream(message, task_id=task_id or None, **self.options) as stream:
            for event in _limited(stream):
                yield from self._reported(event, stream.new_text)
            yield self._answer(stream.message or stream.task)

    async def resume(self, kept: dict[str, Any] | None, message: str, answer: Any = None) -> dict[str, Any]:
        """Begin a call, or continue it with the answer to its question; returns what is to be kept of it.

        Its members: ``text`` is the question or the answer of the agent, ``task`` the id of the task that waits, if one
        does, and ``number`` that of the question. An agent that cannot be called is a text for the model.

        Parameters:
            kept: the result of the call before; None to begin.
            message: the message that begins.
            answer: the answer to the question in `kept`.
        """
        number = kept["number"] if kept else 0
        try:
            got = await self.answer(as_message(answer) if kept else message, kept["task"] if kept else "")
        except A2AError as error:
            got = ToolAnswer(f"The agent could not be called: {error}")
        return {"text": got.text, "task": got.task_id, "number": number + 1}

    async def cancel(self, task_id: str) -> None:
        """Cancel a task. Raises as `Client.cancel_task`."""
        await asyncio.to_thread(self.client.cancel_task, task_id, timeout=_CANCEL_SECONDS)

    def _reported(self, event: StreamResponse, new_text: str) -> Iterator[ToolItem]:
        if new_text:
            yield {"agent": self.name, "text": new_text}
        if isinstance(event, TaskStatusUpdateEvent) and not event.status.state.paused and event.status.message:
            yield event.status.message.text

    def _answer(self, result: Task | Message | None) -> ToolAnswer:
        if result is None:
            return ToolAnswer("")
        if isinstance(result, Task) and result.state.interrupted and can_continue(result):
            return ToolAnswer(shortened(result.text) or "The agent needs an answer", result.id)
        try:
            return ToolAnswer(tool_result(result))
        except TaskFailedError as error:
            text = shortened(error.task.text) or error.task.state.value
            return ToolAnswer(f"The agent did not complete the task: {text}")


def as_message(answer: Any) -> str:
    """The answer to a question as the text of a message."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    return answer if isinstance(answer, str) else dumps(answer).decode()


# -- models -------------------------------------------------------------------------------------------------------------

_MARK = "msg_a2a_"


class ModelAnswer(NamedTuple):
    """The whole text of an answer, and the mark by which `AgentModel.send` continues the conversation."""

    text: str
    mark: str


class AgentModel:
    """A remote agent as a model of a framework: it receives the messages after its last answer.

    Parameters:
        client: the client of the agent.
        options: further arguments of `Client.stream`, such as ``timeout``.
    """

    def __init__(self, client: Client, **options: Any) -> None:
        self._client = client
        self._options = options

    def since(self, turns: Iterable[tuple[str, str, str]]) -> tuple[str, str]:
        """What to send, and the mark to continue from: of turns ``(role, text, mark)``, oldest first.

        Texts of the user are sent as they are, those of other agents with a note; others, such as system prompts, are not sent.
        """
        texts: list[str] = []
        last = ""
        for role, text, mark in turns:
            if self._ids(mark) is not None:
                last = mark
                texts.clear()
            elif text and role == "user":
                texts.append(text)
            elif text and role == "assistant":
                texts.append(f"[another agent] {text}")
        return "\n\n".join(texts), last

    async def send(self, text: str, mark: str = "") -> AsyncIterator[str | ModelAnswer]:
        """Send a message: the pieces of the answer, then the answer. A question of the agent is its answer.

        Of more than 1,000,000 characters the first are the answer, with a note.

        Raises:
            TaskFailedError: the task failed, was rejected or canceled.
            AgentError, TransportError: as `Client.stream`.
        """
        call = RemoteCall(self._client, text, **(self._ids(mark) or {}), **self._options)
        sent, missing = "", 0
        async for _, piece in call.events():
            fits = piece[: MAX_TEXT - len(sent)]
            missing += len(piece) - len(fits)
            if fits:
                sent += fits
                yield fits
        result = call.result
        assert result is not None
        task_id = result.id if isinstance(result, Task) and result.state.interrupted else ""
        if task_id:
            whole = result.text or "The agent needs an answer"
        else:
            answer = answer_text(result)
            whole = sent or answer
        last = ""
        if not sent.endswith(whole):
            # A question, or an answer without text in artifacts.
            last = whole[: MAX_TEXT - len(sent)]
            missing += len(whole) - len(last)
        if missing:
            last += left_out(missing)
        if last:
            sent += last
            yield last
        yield ModelAnswer(sent, self._mark(result.context_id or "", task_id))

    @property
    def _agent(self) -> str:
        """A hash of the address of the agent."""
        http = self._client._http
        place = http.agent if http is not None else self._client.card().name
        return hashlib.sha256(place.encode()).hexdigest()[:16]

    def _mark(self, context_id: str, task_id: str) -> str:
        # With an id that is too long, the next message begins a new task or conversation.
        context_id, task_id = (id_ if len(id_) <= MAX_ID_CHARS else "" for id_ in (context_id, task_id))
        ids = {"agent": self._agent, "context_id": context_id, "task_id": task_id}
        return _MARK + base64.urlsafe_b64encode(dumps(ids)).decode().rstrip("=")

    def _ids(self, mark: str) -> dict[str, Any] | None:
        """The context of a mark, and its task if that waits; None for marks of other agents, which have chosen these ids.

        A mark may come from a store or a client: others are None too.
        """
        body = mark.removeprefix(_MARK)
        try:
            found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            agent, *ids = (found.get(name) for name in ("agent", "context_id", "task_id"))
        except (ValueError, AttributeError):
            return None
        if body == mark or agent != self._agent:
            return None
        known = {name: str(id_) for name, id_ in zip(("context_id", "task_id"), ids, strict=True) if id_}
        return known if "task_id" not in known else {"task_id": known["task_id"]}
