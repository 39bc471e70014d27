"""`CrewBridge` and `FlowBridge`: crews, single agents and flows of CrewAI. Needs ``pip install a2a-sync[crewai]``.

A crew is given the conversation as text, a single agent as messages. A flow keeps its state in the memory of the conversation, and its
methods with ``@human_feedback`` ask: the caller, or a remote agent (`remote_tool`). All run on threads of their own. CrewAI sends
telemetry unless ``CREWAI_DISABLE_TELEMETRY=true`` is set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from a2a_sync.agent.asynchronous import iterate
from a2a_sync.agent.executor import RequestContext, TaskCancelled
from a2a_sync.client.client import Client
from a2a_sync.errors import A2AError
from a2a_sync.integrations.bridge import Ask, Bridge, BridgeEvent, Question, Remember, Turn, as_json
from a2a_sync.integrations.remote import AgentTool, ToolAnswer, as_message
from a2a_sync.integrations.runners import workflow_input
from a2a_sync.types import Role

try:
    from crewai import Agent, Crew, Flow
    from crewai.events import crewai_event_bus
    from crewai.events.base_events import BaseEvent
    from crewai.events.event_listener import event_listener
    from crewai.flow.async_feedback import ConsoleProvider, HumanFeedbackPending, PendingFeedbackContext
    from crewai.flow.flow_config import flow_config
    from crewai.flow.persistence.base import FlowPersistence
    from crewai.types.usage_metrics import UsageMetrics
    from pydantic import PrivateAttr

    from a2a_sync.integrations.crewai_runs import PROGRESS, answer_of, followed, usage_of
except ImportError as _error:
    raise ImportError("CrewBridge and FlowBridge need CrewAI: pip install 'a2a-sync[crewai]'") from _error

__all__ = [
    "A2AFeedback",
    "CrewBridge",
    "FlowBridge",
    "RemoteProgress",
    "remote_tool",
]


class CrewBridge(Bridge):
    """Serves a crew, or a single agent: ``A2AApp(CrewBridge(make_crew, name="…"), store=…)``.

    The inputs of the tasks of a crew are those of `workflow_input`, and ``history``: the completed turns of the conversation as lines
    of text. Its last task is the answer. An agent without a crew is given these turns as messages (``Agent.kickoff``).

    Parameters:
        agent: the crew or agent, which is copied for each run; or a function of the `RequestContext` that makes one for each run.
        response_format: the model of Pydantic that the answers of a single agent have.
        options: those of `Bridge` but ``deps``: what tools need is passed by the function.
    """

    def __init__(self, agent: Any, *, response_format: Any = None, **options: Any) -> None:
        if not (isinstance(agent, Crew | Agent) or callable(agent)):
            raise TypeError(
                "CrewBridge needs a Crew, an Agent, or a function that makes one for each run: lambda context: Crew(…)"
            )
        _refuse_console(agent)
        super().__init__(agent, **options)
        self._response_format = response_format

    def events(self, turn: Turn) -> Iterator[BridgeEvent]:
        """Run the crew or agent. A cancel stops it before its next step, call of a model or tool, and at the next token."""
        served: Any = self._given
        if isinstance(served, Agent):
            # `Agent.copy` takes half as long as a run. Tools of MCP servers are added to those of the run.
            served = served.model_copy(update={"tools": [*(served.tools or ())]})
        else:
            served = served.copy() if isinstance(served, Crew) else served(turn.context)
        _refuse_console(served)
        messages = turn.context.conversation(completed_only=True)
        earlier = [message for message in messages if message.message_id != turn.message.message_id]
        for agent in getattr(served, "agents", [served]):
            if agent.llm is not None:
                agent.llm.stream = True
        if isinstance(served, Agent):
            # As crews do; CrewAI would print the prompts of each agent.
            event_listener.formatter.verbose = served.verbose
            said = [{"role": "assistant" if one.role is Role.AGENT else "user", "content": one.text} for one in earlier]
            said.append({"role": "user", "content": turn.text()})
            output = yield from followed(lambda: served.kickoff(said, self._response_format), turn)
            used = UsageMetrics(**(output.usage_metrics or {}))
        else:
            served.stream = False
            lines = (f"{'agent' if one.role is Role.AGENT else 'user'}: {one.text}" for one in earlier)
            inputs = {"history": "\n".join(lines), **workflow_input(turn.message)}
            output = yield from followed(lambda: served.kickoff(inputs), turn, task=str(served.tasks[-1].id))
            used = output.token_usage
        yield usage_of(used)
        yield from answer_of(output)


def _refuse_console(served: Any) -> None:
    if any(task.human_input for task in getattr(served, "tasks", ())):
        raise TypeError("a task with human_input=True reads the console of the server: use a flow with @human_feedback")


# -- flows --------------------------------------------------------------------------------------------------------------


class FlowBridge(Bridge):
    """Serves a flow: ``A2AApp(FlowBridge(TripFlow, name="…"), store=…)``.

    The inputs of a run are those of `workflow_input`. The state of the flow is kept from task to task, and the value that its last
    method returns is the answer. Tasks of one conversation run one after the other.

    Parameters:
        agent: the class of the flow.
        stream: whether the tokens of all models that the flow calls are streamed; otherwise only the answer is sent.
        options: those of `Bridge`. ``deps`` becomes the attribute ``deps`` of the flow.
    """

    exclusive = True

    def __init__(self, agent: type[Flow[Any]], *, stream: bool = True, **options: Any) -> None:
        if not (isinstance(agent, type) and issubclass(agent, Flow)):
            raise TypeError("FlowBridge needs the class of a flow: each run has an instance of its own")
        if flow_config.hitl_provider is None:
            flow_config.hitl_provider = A2AFeedback()
        super().__init__(agent, **{"name": agent.__name__, **options})
        self._stream = stream

    def events(self, turn: Turn) -> Iterator[BridgeEvent]:
        """Run a new flow with the state of the conversation, or resume one with the feedback it waits for."""
        pending: Any = turn.pending or {"base": turn.memory[0] if turn.memory else {}}
        states = _States()
        states.load(self._given, pending, turn.context)
        options = {"persistence": states, "input_provider": _NoInput(), "suppress_flow_events": True}
        if turn.resumes:
            flow = self._given.from_pending(_ID, **options)
            (answer,) = turn.answers.values()
            text = answer if isinstance(answer, str) else json.dumps(answer)
            run: Callable[[], Any] = lambda: states.resume(flow, text)  # noqa: E731
        else:
            flow = self._given(**options)
            inputs = _declared(flow.state, workflow_input(turn.message))
            earlier = _ID if pending["base"] else None
            run = lambda: flow.kickoff(inputs=inputs, restore_from_state_id=earlier)  # noqa: E731
        object.__setattr__(flow, "deps", turn.deps)
        output = yield from followed(run, turn, show=self._stream)
        yield usage_of(flow.usage_metrics)
        if isinstance(output, HumanFeedbackPending):
            context = {**output.context.to_dict(), "llm": None}
            yield Ask([_question(output.context)], {**pending, "context": context, "state": _state(flow)})
            return
        state = _state(flow)
        yield Remember(lambda memory: [_merged(pending["base"], state, memory[0] if memory else {})])
        yield from answer_of(output)


#: The id of the state in `_States`, which holds only one.
_ID = "a2a"


class A2AFeedback:
    """The provider of ``@human_feedback`` that asks the caller. In flows that no `FlowBridge` runs, it asks on the console."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow[Any]) -> str:
        """End the run of the flow, until the caller has answered."""
        if not isinstance(flow.persistence, _States):
            return str(ConsoleProvider().request_feedback(context, flow))
        raise HumanFeedbackPending(context=context)


class _NoInput:
    """``Flow.ask`` waits inside a method, which cannot be stored: it gets no input, instead of that of the console."""

    def request_input(self, message: str, flow: Any, metadata: Any = None) -> None:
        return None


class _States(FlowPersistence):  # type: ignore[misc]
    """The state that a run begins with. What it persists while it works is kept by the bridge at its end."""

    _run: RequestContext | None = PrivateAttr(default=None)
    _state: dict[str, Any] = PrivateAttr(default_factory=dict)
    _context: PendingFeedbackContext | None = PrivateAttr(default=None)
    _provider: Any = PrivateAttr(default=None)

    def load(self, flow: type[Flow[Any]], pending: Any, run: RequestContext) -> None:
        self._run, self._state = run, pending.get("state", pending["base"])
        if "context" in pending:
            self._context = PendingFeedbackContext.from_dict(pending["context"])
            # The configuration of a model, which may have its key, is not stored.
            feedback = flow.flow_definition().methods[self._context.method_name].human_feedback
            self._context.llm, self._provider = feedback.llm, feedback.provider

    def resume(self, flow: Flow[Any], text: str) -> Any:
        """Continue a flow that waits, or the task of the remote agent that it waits for."""
        if isinstance(self._provider, _Remote):
            return self._provider.resume(flow, self._context, text)
        return flow.resume(text)

    def init_db(self) -> None: ...

    def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None: ...

    def save_pending_feedback(self, flow_uuid: str, context: Any, state_data: Any) -> None: ...

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        return {**self._state, "id": _ID} if self._state else None

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        return ({**self._state, "id": _ID}, self._context) if self._context is not None else None


def _state(flow: Flow[Any]) -> dict[str, Any]:
    # `flow.state` is a proxy, which has no methods of models.
    state = flow._state
    return {name: value for name, value in as_json(state).items() if name != "id"}


def _declared(state: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs that the state has members for; all for a state that is a dictionary."""
    fields = getattr(type(state), "model_fields", None)
    return inputs if fields is None else {name: value for name, value in inputs.items() if name in fields}


def _merged(base: dict[str, Any], own: dict[str, Any], newest: dict[str, Any]) -> dict[str, Any]:
    """`own` with the items that other tasks have added to the lists of `newest` since `base`."""
    merged = dict(own)
    for name, value in newest.items():
        before = base.get(name, [])
        if isinstance(value, list) and isinstance(before, list) and isinstance(own.get(name), list):
            merged[name] = value + own[name][len(before) :]
    return merged


def _question(context: PendingFeedbackContext) -> Question:
    if (remote := context.metadata.get(_REMOTE)) is not None:
        return Question(id=f"feedback-{context.method_name}-{remote['number']}", text=remote["text"])
    output = PendingFeedbackContext._make_json_safe(context.method_output)
    shown = f"{output}\n\n{context.message}" if isinstance(output, str) and output else context.message
    value = None if isinstance(output, str) else output
    return Question(id=f"feedback-{context.method_name}", text=shown, value=value, options=tuple(context.emit or ()))


# -- remote agents as tools ---------------------------------------------------------------------------------------------

#: The member of the metadata of a pending feedback with the task of the remote agent, its question, and its number.
_REMOTE = "a2a"


class RemoteProgress(BaseEvent):  # type: ignore[misc]
    """Progress of a remote agent (`note`), or the next characters of its answer (`delta`), on the event bus of CrewAI."""

    type: str = PROGRESS
    agent: str
    note: str = ""
    delta: str = ""


def remote_tool(
    client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
) -> Any:
    """A remote agent as the provider of a flow's feedback: ``@human_feedback(message="", provider=remote_tool(client))``.

    The result of the method is sent, and the answer of the agent is the feedback. When the agent asks, the flow waits, with the same
    question; the answer continues the task of the agent, and the flow when that is completed. Crews cannot wait: their tools are
    ``crewai.tools.tool("name")(client.as_tool())``.

    The parameters are those of `AgentTool`.
    """
    return _Remote(AgentTool(client, skill, name=name, description=description, **options))


class _Remote:
    def __init__(self, tool: AgentTool) -> None:
        self._tool = tool

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow[Any]) -> str:
        """Send the output of the method; the answer. On a thread of CrewAI."""
        answer = self._send(flow, as_message(PendingFeedbackContext._make_json_safe(context.method_output)))
        while answer.task_id:
            context = _waiting(context, answer)
            given = A2AFeedback().request_feedback(context, flow)
            answer = self._send(flow, given, answer.task_id)
        return answer.text

    def resume(self, flow: Flow[Any], context: Any, text: str) -> Any:
        """Continue the task of the agent, and the flow with its answer, unless the agent asks again."""
        answer = self._send(flow, text, context.metadata[_REMOTE]["task"])
        return HumanFeedbackPending(context=_waiting(context, answer)) if answer.task_id else flow.resume(answer.text)

    def _send(self, flow: Flow[Any], message: str, task_id: str = "") -> ToolAnswer:
        served = isinstance(flow.persistence, _States)
        items: Any = self._tool.send_blocking(message, task_id)
        if served:
            # A cancel of the run cancels the remote task too.
            items = iterate(self._tool.send(message, task_id), flow.persistence._run)  # type: ignore[arg-type]
        try:
            for item in items:
                if isinstance(item, ToolAnswer):
                    return item
                progress = {"note": item} if isinstance(item, str) else {"delta": item["text"]}
                crewai_event_bus.emit(flow, RemoteProgress(agent=self._tool.name, **progress))
        except A2AError as error:
            return ToolAnswer(f"The agent could not be called: {error}")
        except TaskCancelled:
            raise InterruptedError("the task was canceled") from None
        raise AssertionError("the last item is the answer")


def _waiting(context: PendingFeedbackContext, answer: ToolAnswer) -> PendingFeedbackContext:
    number = context.metadata.get(_REMOTE, {}).get("number", 0) + 1
    about = {"task": answer.task_id, "text": answer.text, "number": number}
    return replace(context, message=answer.text, metadata={**context.metadata, _REMOTE: about})
