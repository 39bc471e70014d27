"""`LangGraphBridge`: graphs of LangGraph and agents of LangChain (``create_agent``). Needs ``pip install a2a-sync[langgraph]``.

The checkpointer of the graph holds the conversation. The state of the context has the checkpoint of the last completed task,
from which each new task continues, so canceled and failed tasks leave no trace. Without a checkpointer the graph is given
the conversation, and cannot ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import wraps
from typing import Any, TypeAlias

from a2a_sync.client.client import Client
from a2a_sync.integrations.bridge import (
    Ask,
    Bridge,
    BridgeEvent,
    Data,
    Final,
    Note,
    Question,
    Text,
    Turn,
    Usage,
    as_json,
    final_of,
)
from a2a_sync.integrations.chat_messages import to_chat_messages
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.integrations.remote import AgentModel, AgentTool, ToolAnswer, as_message
from a2a_sync.integrations.runners import workflow_input
from a2a_sync.types import Role, TaskState

try:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.language_models.chat_models import agenerate_from_stream
    from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langchain_core.tools import StructuredTool
    from langgraph.config import get_stream_writer
    from langgraph.errors import GraphRecursionError
    from langgraph.func import task
    from langgraph.types import Command, interrupt
except ImportError as _error:
    raise ImportError("LangGraphBridge needs LangGraph: pip install 'a2a-sync[langgraph]'") from _error

__all__ = [
    "LangGraphBridge",
    "remote_model",
    "remote_tool",
]

_STATE = "langgraph"
#: Makes the answer of the final state of a graph.
_Answer: TypeAlias = Callable[[dict[str, Any]], Any]


class LangGraphBridge(Bridge):
    """Serves a compiled graph: ``A2AApp(LangGraphBridge(graph, name="…", description="…"), store=…)``.

    Parameters:
        agent: the graph, or a function that makes it.
        nodes: the nodes whose tokens are streamed; None: all.
        answer: makes the answer of the final state of the graph: text, or another JSON value. The default is the text of
            the last message of the model, and ``structured_response``.
        options: those of `Bridge`. ``deps`` becomes the runtime context of the graph.
    """

    public: Mapping[type[BaseException], tuple[TaskState, str]] = {
        GraphRecursionError: (TaskState.FAILED, "the agent took too many steps")
    }
    modes: Sequence[str] = ("text/plain", "application/json", "image/*")
    decision = "type"

    def __init__(
        self, agent: Any, *, nodes: Collection[str] | None = None, answer: _Answer | None = None, **options: Any
    ) -> None:
        super().__init__(agent, **options)
        self._nodes = nodes
        self._answer = answer

    async def events(self, turn: Turn) -> AsyncIterator[BridgeEvent]:
        """Run the graph from the last good checkpoint, or resume it at the one where it asked."""
        graph = await _asynchronous(await self.agent())
        saver = graph.checkpointer
        shared = await asyncio.to_thread(turn.context.state.get, _STATE)
        pending: Any = turn.pending or {"at": shared or {"thread_id": f"{turn.context.key}.{turn.context.task_id}"}}
        base = pending.get("base", shared)
        given: Any = Command(resume=_resume(pending, turn.answers)) if turn.resumes else _input(graph, turn)
        values, last, node, known = {}, pending["at"], "", set[Any]()
        modes = ["messages", "updates", "custom", "values", *(["checkpoints"] if saver else [])]
        options = {"stream_mode": modes, "subgraphs": True, "durability": "sync" if saver else None}
        async for namespace, mode, data in graph.astream(given, _config(pending["at"]), context=turn.deps, **options):
            if mode == "custom" and isinstance(data, str):
                yield Note(data)
            elif namespace or mode == "custom":
                continue
            elif mode == "values":
                values, known = data, known or {message.id for message in data.get("messages", ())}
            elif mode == "checkpoints":
                last = _place(data["config"])
            elif mode == "messages":
                chunk, about = data
                shown = self._nodes is None or about.get("langgraph_node") in self._nodes
                if isinstance(chunk, AIMessageChunk) and shown:
                    yield Text(str(chunk.text), chunk.id or "")
            else:
                for name, update in data.items():
                    node = name if name != "__interrupt__" else node
                    for event in _reported(update, known):
                        yield event
        if saver:
            interrupts = (await graph.aget_state(_config(last))).interrupts
            if interrupts:
                kept = [(one.id, len(_requests(one.value))) for one in interrupts]
                questions = [question for one in interrupts for question in _questions(one)]
                yield Ask(questions, {"at": last, "base": base, "interrupts": kept})
                return
            await self._keep(turn, graph, base, last, values.get("messages"), node)
        for event in self._final(values):
            yield event

    def _final(self, values: dict[str, Any]) -> Iterator[BridgeEvent]:
        if self._answer is not None:
            yield from final_of(self._answer(values))
            return
        said = [message for message in values.get("messages", ()) if isinstance(message, AIMessage)]
        if said:
            yield Final(str(said[-1].text))
        if (structured := values.get("structured_response")) is not None:
            yield Data(as_json(structured))

    async def _keep(self, turn: Turn, graph: Any, base: Any, own: Any, messages: Any, node: str) -> None:
        """Make `own` the last good checkpoint; where another task was faster, add the messages to its checkpoint."""
        while True:
            newest = await asyncio.to_thread(turn.context.state.change, lambda state: _exchange(state, base, own))  # noqa: B023
            if newest == base:
                return
            snapshot = await graph.aget_state(_config(newest))
            known = {message.id for message in snapshot.values.get("messages", ())}
            added = [message for message in messages or () if message.id not in known]
            config = await graph.aupdate_state(_config(newest), {"messages": added}, as_node=node)
            base, own = newest, _place(config)


def _config(checkpoint: Any) -> dict[str, Any]:
    return {"configurable": {"checkpoint_ns": "", **checkpoint}}


def _place(config: Any) -> dict[str, Any]:
    return {name: config["configurable"][name] for name in ("thread_id", "checkpoint_id")}


def _exchange(state: dict[str, Any], expected: Any, new: Any) -> Any:
    """Replace the last good checkpoint if it is `expected`; returns the one before."""
    before = state.get(_STATE)
    if before == expected:
        state[_STATE] = new
    return before


def _input(graph: Any, turn: Turn) -> Any:
    if "messages" not in graph.channels:
        return workflow_input(turn.message)
    *earlier, _ = [turn.message] if graph.checkpointer else turn.context.conversation(completed_only=True)
    # A caller may send a message as the agent. Nodes would execute the calls of tools in it.
    return {"messages": to_chat_messages([*earlier, replace(turn.message, role=Role.USER)])}


def _reported(update: Any, known: set[Any]) -> Iterator[BridgeEvent]:
    """The calls of tools, their results and the usage in one update of a node. Nodes may repeat `known` messages."""
    messages = update.get("messages", ()) if isinstance(update, dict) else ()
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, (AIMessage, ToolMessage)) or message.id in known:
            continue
        known.add(message.id)
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                yield ToolCall(id=call["id"] or "", name=call["name"], arguments=call["args"])
            if usage := message.usage_metadata:
                yield Usage(usage["input_tokens"], usage["output_tokens"], 1)
        else:
            failed = message.status == "error"
            yield ToolResult(tool_call_id=message.tool_call_id, content=str(message.text), is_error=failed)


# -- questions ----------------------------------------------------------------------------------------------------------


def _requests(value: Any) -> list[Any]:
    """The calls that LangChain's ``HumanInTheLoopMiddleware`` asks about."""
    return value.get("action_requests") or [] if isinstance(value, dict) else []


def _questions(interrupt: Any) -> Iterator[Question]:
    requests = _requests(interrupt.value)
    if not requests:
        yield Question.of(interrupt.id, interrupt.value)
    for number, request in enumerate(requests):
        about = (request["name"], request["args"], request.get("description") or "")
        yield Question.approval(f"{interrupt.id}:{number}", *about)


def _resume(pending: Any, answers: Any) -> dict[str, Any]:
    return {
        id_: {"decisions": [_decision(answers[f"{id_}:{number}"]) for number in range(requests)]}
        if requests
        else answers[id_]
        for id_, requests in pending["interrupts"]
    }


def _decision(answer: Any) -> Any:
    return {"type": "approve" if answer else "reject"} if isinstance(answer, bool) else answer


# -- checkpointers without asynchronous methods -------------------------------------------------------------------------


async def _asynchronous(graph: Any) -> Any:
    """The graph; if its checkpointer has synchronous methods only, a copy that calls those on threads."""
    saver = copy(graph.checkpointer)
    try:
        if saver:
            await saver.aget_tuple(_config({"thread_id": ""}))
        return graph
    except NotImplementedError:
        kind = type(saver)
    methods = {f"a{name}": _on_thread(getattr(kind, name)) for name in ("get_tuple", "put", "put_writes")}
    saver.__class__ = type(kind.__name__, (kind,), methods)
    return graph.copy({"checkpointer": saver})


def _on_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    return wraps(method)(lambda *arguments, **named: asyncio.to_thread(method, *arguments, **named))


# -- remote agents as tools ---------------------------------------------------------------------------------------------


def remote_tool(
    client: Client, skill: str | None = None, *, name: str = "", description: str = "", **options: Any
) -> Any:
    """A remote agent as a tool of a graph or agent with a checkpointer; its questions are interrupts of the graph.

    Progress (text) and pieces of the answer (``{"agent": …, "text": …}``) are written to the stream ``custom``. A resumed graph
    continues the task of the agent; it sends no message twice.

    The parameters are those of `AgentTool`.
    """
    agent = AgentTool(client, skill, name=name, description=description, **options)

    @task  # type: ignore[untyped-decorator]
    async def send(message: str, task_id: str) -> tuple[str, str]:
        write = get_stream_writer()
        async for item in agent.send(message, task_id):
            if isinstance(item, ToolAnswer):
                return item.text, item.task_id
            write(item)
        raise AssertionError("the last item is the answer")

    @task  # type: ignore[untyped-decorator]
    def send_blocking(message: str, task_id: str) -> tuple[str, str]:
        write = get_stream_writer()
        for item in agent.send_blocking(message, task_id):
            if isinstance(item, ToolAnswer):
                return item.text, item.task_id
            write(item)
        raise AssertionError("the last item is the answer")

    async def call(message: str) -> str:
        text, task_id = await send(message, "")
        while task_id:
            text, task_id = await send(as_message(interrupt({"question": text})), task_id)
        return str(text)

    def call_blocking(message: str) -> str:
        text, task_id = send_blocking(message, "").result()
        while task_id:
            text, task_id = send_blocking(as_message(interrupt({"question": text})), task_id).result()
        return str(text)

    about = {"name": agent.name, "description": agent.description}
    return StructuredTool.from_function(call_blocking, call, **about)


# -- remote agents as models --------------------------------------------------------------------------------------------

#: The member of the metadata of an answer with the context and the waiting task.
_MODEL_MARK = "a2a"


def remote_model(client: Client, **options: Any) -> BaseChatModel:
    """A remote agent as a chat model of LangChain: ``create_agent(remote_model(client), [])``, or a node of a graph.

    The agent receives the messages after its last answer, and neither system messages nor tools. Its context and its waiting task are
    in the metadata of that answer.

    Parameters:
        client: the client of the agent.
        options: further arguments of `Client.stream`, such as ``timeout``.
    """
    return _RemoteModel(agent=AgentModel(client, **options))


class _RemoteModel(BaseChatModel):  # type: ignore[misc]
    agent: Any

    @property
    def _llm_type(self) -> str:
        return "a2a"

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in self.agent.send(*self.agent.since(_said(message) for message in messages)):
            if isinstance(piece, str):
                chunk = AIMessageChunk(content=piece)
            else:
                chunk = AIMessageChunk(content="", response_metadata={_MODEL_MARK: piece.mark}, chunk_position="last")
            yield ChatGenerationChunk(message=chunk)

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        # On a thread of its own: a loop may run on that of the caller.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._agenerate(messages)).result()


def _said(message: Any) -> tuple[str, str, str]:
    role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
    return role, str(message.text), str(getattr(message, "response_metadata", {}).get(_MODEL_MARK, ""))
