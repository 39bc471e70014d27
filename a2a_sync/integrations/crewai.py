"""`CrewBridge` and `FlowBridge`: crews, single agents and flows of CrewAI. Needs ``pip install a2a-sync[crewai]``.

A crew is given the conversation as text, a single agent as messages. A flow keeps its state in the memory of the conversation, and its
methods with ``@human_feedback`` ask: the caller, or a remote agent (`remote_tool`). All run on threads of their own. CrewAI sends
telemetry unless ``CREWAI_DISABLE_TELEMETRY=true`` is set.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from a2a_sync.agent.asynchronous import iterate
from a2a_sync.agent.executor import RequestContext, TaskCancelled
from a2a_sync.client.client import Client
from a2a_sync.errors import A2AError
from a2a_sync.integrations.bridge import (
    Ask,
    Bridge,
    BridgeEvent,
    Note,
    Question,
    Remember,
    Text,
    Turn,
    Usage,
    as_json,
    final_of,
    parsed,
)
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.integrations.remote import AgentTool, ToolAnswer, as_message
from a2a_sync.integrations.runners import workflow_input
from a2a_sync.types import Role

try:
    from crewai import Agent, BaseLLM, Crew, Flow
    from crewai.agents.agent_executor import AgentExecutor, AgentExecutorState
    from crewai.agents.cache.cache_handler import CacheHandler
    from crewai.agents.tools_handler import ToolsHandler
    from crewai.events import crewai_event_bus
    from crewai.events.base_events import BaseEvent
    from crewai.events.event_listener import event_listener
    from crewai.flow.async_feedback import ConsoleProvider, HumanFeedbackPending, PendingFeedbackContext
    from crewai.flow.flow_config import flow_config
    from crewai.flow.persistence.base import FlowPersistence
    from crewai.hooks import HookAborted, InterceptionPoint
    from crewai.hooks.dispatch import scoped_hooks
    from crewai.types.usage_metrics import UsageMetrics
    from crewai.utilities.streaming import create_frame_generator, create_frame_streaming_state
    from pydantic import PrivateAttr
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
            raise TypeError("CrewBridge needs a Crew, an Agent, or a function that makes one: lambda context: Crew(…)")
        _refuse_console(agent)
        super().__init__(agent, **options)
        self._response_format = response_format

    def events(self, turn: Turn) -> Iterator[BridgeEvent]:
        """Run the crew or agent. A cancel stops it before its next step, call of a model or tool, and at the next token."""
        made: Any = self._given if isinstance(self._given, Agent | Crew) else self._given(turn.context)
        # `Agent.copy` takes half as long as a run. Tools of MCP servers are added to those of the run; results of tools, which other
        # callers must not get, are kept and cached for it alone.
        alone = isinstance(made, Agent)
        own: dict[str, Any] = {}
        if alone:
            cache = CacheHandler() if made.tools_handler.cache else None
            own = {"tools": list(made.tools or ()), "tools_results": [], "tools_handler": ToolsHandler(cache=cache)}
        served = made.model_copy(update=own) if alone else made.copy() if made is self._given else made
        _refuse_console(served)
        for agent in [served] if alone else served.agents:
            if agent.llm is not None:
                agent.llm.stream = True
        *earlier, _ = turn.context.conversation(completed_only=True)
        if alone:
            # As crews do; CrewAI would print the prompts of each agent.
            event_listener.formatter.verbose = served.verbose
            # `kickoff` takes this executor and sets its other members, because it resumes. One of its own would make a class for its
            # state, which takes half as long as a short run.
            executor = AgentExecutor(agent=served, max_iter=served.max_iter, initial_state=AgentExecutorState)
            served.agent_executor, executor._resuming = executor, True
            said = [{"role": "assistant" if one.role is Role.AGENT else "user", "content": one.text} for one in earlier]
            said.append({"role": "user", "content": turn.text()})
            output = yield from _followed(partial(served.kickoff, said, self._response_format), turn)
            yield _usage(UsageMetrics(**(output.usage_metrics or {})))
        else:
            served.stream = False
            lines = (f"{'agent' if one.role is Role.AGENT else 'user'}: {one.text}" for one in earlier)
            inputs = {"history": "\n".join(lines), **workflow_input(turn.message)}
            before = _spent(served)
            output = yield from _followed(partial(served.kickoff, inputs), turn, task=str(served.tasks[-1].id))
            yield _usage(_spent(served).delta_since(before))
        yield from _answer(output)


def _refuse_console(served: Any) -> None:
    if any(task.human_input for task in getattr(served, "tasks", ())):
        raise TypeError("a task with human_input=True reads the console of the server: use a flow with @human_feedback")


# -- runs ---------------------------------------------------------------------------------------------------------------

_CHUNK, _PROGRESS = "llm_stream_chunk", "a2a_remote_progress"
#: Where a canceled run stops, besides at tokens.
_STOPS = (InterceptionPoint.PRE_STEP, InterceptionPoint.PRE_MODEL_CALL, InterceptionPoint.PRE_TOOL_CALL)
#: How a model without function calling begins what it only thinks, and at the end its answer.
_HIDDEN = ("Thought:", "Action:", "Final Answer:")


def _followed(run: Any, turn: Turn, task: str = "", show: bool = True) -> Generator[BridgeEvent, None, Any]:
    """The events of a run, which has a thread; its result is that of the generator. `task`: whose tokens are shown."""

    def stop(*_: Any) -> None:
        if turn.context.cancelled:
            raise HookAborted("the task was canceled")

    def sink(source: Any, event: BaseEvent) -> None:
        if event.type == _CHUNK:
            stop()
        # Not the frame of the event, which has all its members as JSON, with agents and crews.
        state.sync_queue.put(cast(Any, event))

    state = create_frame_streaming_state([])
    stoppable = scoped_hooks({point: [stop] for point in _STOPS})(run)
    #: What the calls of models have said while nothing of it was shown.
    hidden: dict[str, str | None] = {}
    for event in cast(Any, create_frame_generator(state._replace(sink=sink), stoppable, [])):
        if event.type == _CHUNK and show and not event.tool_call and task in ("", event.task_id):
            said = hidden.get(event.call_id, "")
            text = event.chunk if said is None else _spoken(said + event.chunk)
            hidden[event.call_id] = None if said is None or text else said + event.chunk
            yield Text(text, event.call_id)
        elif event.type == _PROGRESS and event.note:
            yield Note(event.note)
        elif event.type == "tool_usage_started":
            yield ToolCall(id=event.event_id, name=event.tool_name, arguments=as_json(parsed(event.tool_args)))
        elif event.type == "tool_usage_finished":
            yield ToolResult(tool_call_id=event.started_event_id or "", content=str(event.output))
        elif event.type == "tool_usage_error":
            yield ToolResult(tool_call_id=event.started_event_id or "", content="failed", is_error=True)
    return state.result_holder[0]


def _spoken(text: str) -> str:
    """What callers may see of the text of a model: not the thoughts and actions of one without function calling."""
    _, found, answer = text.partition(_HIDDEN[-1])
    begins = text.lstrip()
    hidden = any(begins.startswith(mark) or mark.startswith(begins) for mark in _HIDDEN)
    return answer.lstrip() if found else "" if hidden else text


def _spent(crew: Crew) -> UsageMetrics:
    """What the models of a crew have counted since they were made. CrewAI adds one of two agents twice."""
    managers = [crew.manager_llm, getattr(crew.manager_agent, "llm", None)]
    # A copy of a model has the counter of the original.
    models = {
        id(one._token_usage): one
        for one in [*(agent.llm for agent in crew.agents), *managers]
        if isinstance(one, BaseLLM)
    }
    spent = UsageMetrics()
    for model in models.values():
        spent.add_usage_metrics(model.get_token_usage_summary())
    return spent


def _usage(used: UsageMetrics) -> Usage:
    return Usage(used.prompt_tokens, used.completion_tokens, used.successful_requests)


def _answer(output: Any) -> Iterator[BridgeEvent]:
    """The answer: declared outputs and values of flows. Other members of a `CrewOutput` have the prompts of all tasks."""
    declared = getattr(output, "pydantic", None) or getattr(output, "json_dict", None)
    yield from final_of(declared if declared is not None else getattr(output, "raw", output))


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
        flow_config.hitl_provider = flow_config.hitl_provider or A2AFeedback()
        super().__init__(agent, **{"name": agent.__name__, **options})
        self._stream = stream

    def events(self, turn: Turn) -> Iterator[BridgeEvent]:
        """Run a new flow with the state of the conversation, or resume one with the feedback it waits for."""
        pending: Any = turn.pending or {"base": turn.memory[0] if turn.memory else {}}
        states = _States()
        states._run, states._state = turn.context, pending.get("state", pending["base"])
        options: Any = {"persistence": states, "input_provider": states, "suppress_flow_events": True}
        if turn.resumes:
            states._waiting = waiting = PendingFeedbackContext.from_dict(pending["context"])
            # The configuration of a model, which may have its key, is not stored.
            feedback: Any = self._given.flow_definition().methods[waiting.method_name].human_feedback
            waiting.llm = feedback.llm
            flow = self._given.from_pending(_ID, **options)
            (text,) = (one if isinstance(one, str) else json.dumps(one) for one in turn.answers.values())
            run = partial(getattr(feedback.provider, "resume_remote", self._given.resume), flow, text)
        else:
            flow = self._given(**options)
            # A flow persists its state by its id, which is not for callers to choose.
            given = {name: value for name, value in workflow_input(turn.message).items() if name != "id"}
            # A state that is a dictionary has all inputs, a model those that it has members for.
            inputs = {name: given[name] for name in given if name in getattr(type(flow._state), "model_fields", given)}
            run = partial(flow.kickoff, inputs=inputs, restore_from_state_id=_ID if pending["base"] else None)
        object.__setattr__(flow, "deps", turn.deps)
        output = yield from _followed(run, turn, show=self._stream)
        yield _usage(flow.usage_metrics)
        # `flow.state` is a proxy, which has no methods of models.
        state = {name: value for name, value in as_json(flow._state).items() if name != "id"}
        if isinstance(output, HumanFeedbackPending):
            context = {**output.context.to_dict(), "llm": None}
            yield Ask([_question(output.context)], {**pending, "context": context, "state": state})
        else:
            yield Remember(lambda memory: [_merged(pending["base"], state, memory[0] if memory else {})])
            yield from _answer(output)


#: The id of the state in `_States`, which holds only one.
_ID = "a2a"


class A2AFeedback:
    """The provider of ``@human_feedback`` that asks the caller. In flows that no `FlowBridge` runs, it asks on the console."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow[Any]) -> str:
        """End the run of the flow, until the caller has answered."""
        if not isinstance(flow.persistence, _States):
            return str(ConsoleProvider().request_feedback(context, flow))
        raise HumanFeedbackPending(context=context)


class _States(FlowPersistence):  # type: ignore[misc]
    """The state that a run begins with. What it persists while it works is kept by the bridge at its end."""

    _run: RequestContext | None = PrivateAttr(default=None)
    _state: dict[str, Any] = PrivateAttr(default_factory=dict)
    _waiting: PendingFeedbackContext | None = PrivateAttr(default=None)

    def init_db(self) -> None: ...

    def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None: ...

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        return {**self._state, "id": _ID} if self._state else None

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        return ({**self._state, "id": _ID}, self._waiting) if self._waiting is not None else None

    def request_input(self, message: str, flow: Any, metadata: Any = None) -> None:
        """``Flow.ask`` waits inside a method, which cannot be stored: it gets no input, instead of that of the console."""


def _merged(base: dict[str, Any], own: dict[str, Any], newest: dict[str, Any]) -> dict[str, Any]:
    """`own` with the items that other tasks have added to the lists of `newest` since `base`."""
    common = [name for name in own if name in newest]
    lists = [name for name in common if all(isinstance(one.get(name, []), list) for one in (base, own, newest))]
    return own | {name: newest[name] + own[name][len(base.get(name, [])) :] for name in lists}


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

    type: str = _PROGRESS
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

    def resume_remote(self, flow: Flow[Any], text: str) -> Any:
        """Continue the task of the agent, and the flow with its answer, unless the agent asks again."""
        context = flow.pending_feedback
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
