"""`RemoteAgent`: a remote agent as an agent of the Google ADK; for ``a2a_sync.integrations.adk``."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any

from a2a_sync.client.client import Client
from a2a_sync.client.tools import one_line
from a2a_sync.errors import A2AError
from a2a_sync.integrations.adk_parts import LONG_RUNNING, to_a2a_part, to_adk_parts
from a2a_sync.integrations.remote import RemoteCall
from a2a_sync.lifecycle import joined
from a2a_sync.types import (
    Artifact,
    DataPart,
    Message,
    Metadata,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    new_id,
)

try:
    from google.adk.agents import BaseAgent
    from google.adk.agents.run_config import StreamingMode
    from google.adk.events import Event, EventActions
    from google.genai import types
except ImportError as _error:
    raise ImportError("RemoteAgent needs the Google ADK: pip install 'a2a-sync[adk]'") from _error

_TASK, _CONTEXT, _RESPONSE = "a2a:task_id", "a2a:context_id", "a2a:response"
#: The calls that stand for questions of agents that are none of the ADK, and the names of their arguments.
_ASKED = {
    TaskState.INPUT_REQUIRED: ("mock_function_call_for_required_user_input", "input_required"),
    TaskState.AUTH_REQUIRED: ("mock_function_call_for_required_user_auth", "auth_required"),
}
_FAILED = {
    TaskState.FAILED: "remote_agent_error",
    TaskState.REJECTED: "remote_agent_rejected",
    TaskState.CANCELED: "remote_agent_canceled",
}
_CREDENTIAL = "adk_request_credential"


class RemoteAgent(BaseAgent):  # type: ignore[misc]
    """A remote agent as an agent of the ADK: root, sub-agent, or step of a workflow.

    Parameters:
        name: the name among the agents of the ADK.
        target: what `Client` accepts: a URL, a card, an app; or a `Client`.
        description: what other agents know about it; by default the description in its card, quoted, once the card was read.
        cancel_remote: whether the task is cancelled when the run is closed or cancelled before its end.
        forward_session: keep the conversation by user and session, for session services that lose ``custom_metadata``.
        client_options: further arguments of `Client`.
    """

    def __init__(
        self,
        name: str,
        target: Any,
        *,
        description: str = "",
        cancel_remote: bool = True,
        forward_session: bool = False,
        **client_options: Any,
    ) -> None:
        super().__init__(name=name, description=description)
        self._client = target if isinstance(target, Client) else Client(target, **client_options)
        self._cancel_remote = cancel_remote
        self._forward_session = forward_session

    @property
    def client(self) -> Client:
        """The client of the agent."""
        return self._client

    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event, None]:
        if not self.description:
            await self._read_description()
        request = self._request(ctx)
        if request is None:
            yield self._event(ctx, error_code="no_content", error_message="no user content", turn_complete=True)
            return
        message, ids = request
        call = RemoteCall(self._client, message, cancel_remote=self._cancel_remote, **ids)
        streams = ctx.run_config is not None and ctx.run_config.streaming_mode is StreamingMode.SSE
        answer = _Answer(self, ctx)
        try:
            async for item in call.events():
                for event in answer.streamed(item.event) if streams else answer.noted(item.event):
                    yield event
            last = answer.last(call.result) if not streams else answer.ending(call.result)
        except A2AError as error:
            text = f"A2A request failed: {error}"
            last = [self._event(ctx, error_code="a2a_request_failed", error_message=text, **answer.about())]
        for event in last[:-1]:
            yield event
        yield (last or [self._event(ctx, **answer.about())])[-1].model_copy(update={"turn_complete": True})

    async def _read_description(self) -> None:
        try:
            card = await asyncio.to_thread(self._client.card)
        except A2AError:
            return  # the call itself reports it
        if card.description:
            self.description: str = f'A remote agent that says of itself: "{one_line(card.description)}"'

    def _event(self, ctx: Any, **members: Any) -> Event:
        return Event(author=self.name, invocation_id=ctx.invocation_id, branch=ctx.branch, **members)

    # -- what is sent --

    def _request(self, ctx: Any) -> tuple[Message, dict[str, Any]] | None:
        """The message and the ids of its task and context; None without content."""
        # An answer may have no content, and still ends its task. Errors of earlier turns do not count.
        this = ctx.invocation_id
        events = [one for one in ctx.session.events if one.invocation_id == this or one.content or not one.error_code]
        own = [place for place, event in enumerate(events) if event.author == self.name and _about(event, _CONTEXT)]
        before = events[own[-1]] if own else None
        ids = {"context_id": self._session_context(ctx) if self._forward_session else None, "task_id": None}
        if before is not None:
            ids["context_id"] = _about(before, _CONTEXT)
        calls = {call.id: event for event in events if event.author == self.name for call in event.get_function_calls()}
        answers = [part for part in _user_parts(ctx) if part.function_response and part.function_response.id in calls]
        if answers:
            asked = calls[answers[0].function_response.id]
            ids = {"context_id": _about(asked, _CONTEXT), "task_id": _about(asked, _TASK)}
            parts = [_answer_part(part) for part in answers]
        else:
            if before is not None and _about(before, _RESPONSE) in {state.value for state in _ASKED}:
                ids["task_id"] = _about(before, _TASK)
            new = events[own[-1] + 1 :] if own else events
            parts = [part for event in new for part in self._parts(event)]
        if not parts and ctx.user_content is not None:
            parts = list(self._parts(Event(author="user", content=ctx.user_content)))
        if not parts:
            return None
        message = Message(role=Role.USER, parts=tuple(parts), message_id=new_id())
        return message, {name: value for name, value in ids.items() if value}

    def _session_context(self, ctx: Any) -> str:
        named = "\0".join((ctx.session.app_name, ctx.session.user_id, ctx.session.id))
        return hashlib.sha256(named.encode()).hexdigest()

    def _parts(self, event: Event) -> Iterator[Part]:
        """The parts of an event that the remote agent has not seen; those of other agents are quoted."""
        for part in event.content.parts or () if event.content else ():
            call, response = part.function_call, part.function_response
            if part.thought or _CREDENTIAL in (getattr(call, "name", ""), getattr(response, "name", "")):
                continue
            if event.author == "user" and response is None and (found := to_a2a_part(part)) is not None:
                yield replace(found, metadata={**found.metadata, "is_user_input": True})
            elif response is not None:
                yield TextPart(f"Tool {response.name} returned: {response.response}")
            elif event.author != self.name and part.text:
                yield TextPart(f"[{event.author}] said: {part.text}")
            elif event.author != self.name and call is not None:
                yield TextPart(f"[{event.author}] called tool {call.name} with: {call.args}")
            elif event.author not in ("user", self.name) and (found := to_a2a_part(part)) is not None:
                yield found


def _user_parts(ctx: Any) -> list[Any]:
    return (ctx.user_content.parts or []) if ctx.user_content is not None else []


def _about(event: Event, name: str) -> Any:
    return (event.custom_metadata or {}).get(name)


def _answer_part(part: Any) -> Part:
    response = part.function_response
    if response.name in {name for name, _ in _ASKED.values()}:
        return TextPart(str((response.response or {}).get("result", response.response)))
    converted = to_a2a_part(part)
    assert converted is not None
    return converted


class _Answer:
    """The events of the ADK for what a remote agent sends in one turn."""

    def __init__(self, agent: RemoteAgent, ctx: Any) -> None:
        self._agent = agent
        self._ctx = ctx
        self._ids = {_TASK: "", _CONTEXT: ""}
        self._state: TaskState | None = None
        self._pieces: dict[str, list[Part]] = {}
        self._said: list[str] = []

    def about(self) -> dict[str, Any]:
        """The members of every event: the ids of the task."""
        metadata = {name: value for name, value in self._ids.items() if value}
        if self._state is not None:
            metadata[_RESPONSE] = self._state.value
        return {"custom_metadata": metadata} if metadata else {}

    def _event(self, parts: list[Any], metadata: Metadata | None = None, **members: Any) -> Event:
        content = types.Content(role="model", parts=parts) if parts else None
        return self._agent._event(self._ctx, content=content, actions=_actions(metadata), **self.about(), **members)

    def noted(self, event: Any) -> Iterator[Event]:
        """Without streaming only the ids are kept while the agent works."""
        self._note(event)
        yield from ()

    def _note(self, event: Any) -> None:
        task_id = event.id if isinstance(event, Task) else event.task_id
        self._ids = {_TASK: task_id or self._ids[_TASK], _CONTEXT: event.context_id or self._ids[_CONTEXT]}

    def streamed(self, event: Any) -> Iterator[Event]:
        """The events for one of the stream, but for the last status."""
        self._note(event)
        if isinstance(event, Task):
            for artifact in event.artifacts:
                yield from self._artifact(artifact, append=False, last=event.state.paused)
        elif isinstance(event, TaskArtifactUpdateEvent):
            yield from self._artifact(event.artifact, append=event.append, last=event.last_chunk)
        elif isinstance(event, TaskStatusUpdateEvent) and not event.status.state.paused and event.status.message:
            parts = to_adk_parts(event.status.message.parts)
            thoughts = [part.model_copy(update={"thought": True}) if part.text else part for part in parts]
            yield self._event(thoughts, event.metadata, partial=True)

    def _artifact(self, artifact: Artifact, *, append: bool, last: bool) -> Iterator[Event]:
        # Extended in place: a copy for each of n pieces would take time in the square of n.
        whole = self._pieces.setdefault(artifact.artifact_id, [])
        if not append:
            whole.clear()
        whole += artifact.parts
        if not last:
            yield self._event(to_adk_parts(artifact.parts), artifact.metadata, partial=True)
            return
        self._said.append(_text(whole))
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._ctx.invocation_id}/{artifact.artifact_id}")
        del self._pieces[artifact.artifact_id]
        yield self._event(to_adk_parts(joined(whole)), artifact.metadata, id=str(identity))

    def ending(self, result: Task | Message | None) -> list[Event]:
        """The events after the stream: what was not complete, and the status."""
        if isinstance(result, Task):
            unfinished, self._pieces = list(self._pieces.values()), {}
            self._said += [_text(parts) for parts in unfinished]
            events = [self._event(to_adk_parts(joined(parts))) for parts in unfinished]
            return events + self._status(result.status)
        return self.last(result)

    def last(self, result: Task | Message | None) -> list[Event]:
        """The events for a whole answer."""
        if isinstance(result, Message):
            self._note(result)
            return [self._event(to_adk_parts(result.parts), result.metadata)]
        if result is None:
            return []
        self._note(result)
        events = []
        for artifact in result.artifacts:
            self._said.append(_text(artifact.parts))
            events.append(self._event(to_adk_parts(joined(artifact.parts)), artifact.metadata))
        if not events and result.status.message is None and not result.state.interrupted:
            said = [message for message in result.history if message.role is Role.AGENT][-1:]
            events = [self._event(to_adk_parts(message.parts)) for message in said]
        return events + self._status(result.status)

    def _status(self, status: TaskStatus) -> list[Event]:
        self._state = status.state
        parts = list(status.message.parts) if status.message is not None else []
        metadata = status.message.metadata if status.message is not None else None
        if status.state in _FAILED:
            text = _text(parts) or f"the task was {status.state.value}"
            return [self._event([], error_code=_FAILED[status.state], error_message=text)]
        if status.state in _ASKED:
            return [self._question(status.state, parts, metadata)]
        if parts and _text(parts) not in self._said:
            return [self._event(to_adk_parts(parts), metadata)]
        return []

    def _question(self, state: TaskState, parts: list[Part], metadata: Metadata | None) -> Event:
        calls = {id_ for part in parts if part.metadata.get(LONG_RUNNING) is True and (id_ := _call_id(part))}
        if calls:
            return self._event(to_adk_parts(parts), metadata, long_running_tool_ids=calls)
        texts = [place for place, part in enumerate(parts) if isinstance(part, TextPart) and part.text]
        name, argument = _ASKED[state]
        call = types.FunctionCall(
            id=new_id(),
            name=name,
            args={argument: parts[texts[-1]].text if texts else ""},  # type: ignore[union-attr]
        )
        shown = to_adk_parts(part for place, part in enumerate(parts) if place not in texts[-1:])
        return self._event([*shown, types.Part(function_call=call)], metadata, long_running_tool_ids={call.id})


def _call_id(part: Part) -> str:
    named = part.data.get("id") if isinstance(part, DataPart) and isinstance(part.data, dict) else None
    return named if isinstance(named, str) else ""


def _actions(metadata: Metadata | None) -> EventActions:
    """What a peer may set: it must not change state, transfer or ask for credentials."""
    named = (metadata or {}).get("adk_actions")
    flags = named if isinstance(named, dict) else {}
    return EventActions(
        escalate=flags.get("escalate") is True or None,
        skip_summarization=(flags.get("skip_summarization") or flags.get("skipSummarization")) is True or None,
    )


def _text(parts: Any) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))
