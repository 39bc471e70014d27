"""LangGraph with the model of `brain`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiosqlite
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from a2a_sync.integrations.langgraph import LangGraphBridge
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, SYSTEM, Price, Tools, think, words

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool"}
_USAGE = {
    "input_tokens": INPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


class Model(BaseChatModel):
    seen: list[Any] = []

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _answer(self, messages: list[BaseMessage]) -> Any:
        self.seen.append(messages[-1].content)
        return think([(_ROLES[one.type], str(one.text)) for one in messages if one.type in _ROLES])

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        chunks = list(self._stream(messages))
        message = chunks[0].message
        for chunk in chunks[1:]:
            message += chunk.message
        whole = AIMessage(content=message.content, tool_calls=message.tool_calls, usage_metadata=message.usage_metadata)
        return ChatResult(generations=[ChatGeneration(message=whole)])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Iterator[Any]:
        answer = self._answer(messages)
        usage: Any = {**_USAGE}
        if isinstance(answer, str):
            for word in words(answer):
                yield ChatGenerationChunk(message=AIMessageChunk(content=word))
            yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=usage))
            return
        calls = [
            {"name": call.name, "args": call.arguments, "id": f"c{len(messages)}-{n}", "type": "tool_call"}
            for n, call in enumerate(answer)
        ]
        whole = AIMessage(content="Let me see.", tool_calls=calls)
        yield ChatGenerationChunk(
            message=AIMessageChunk(content=whole.content, tool_calls=calls, usage_metadata=usage)  # type: ignore[arg-type]
        )

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        for chunk in self._stream(messages):
            yield chunk


class Kit:
    """What the suite needs of one framework. `saver` is shared by all apps of a test."""

    preamble = True
    counts_tokens = True

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.saver: Any = InMemorySaver()
        self.model = Model(seen=[])
        #: The file of a checkpointer that several processes share.
        self.path = ""

    async def agent(self) -> Any:
        if self.path:
            self.saver = AsyncSqliteSaver(await aiosqlite.connect(self.path))
        middleware = HumanInTheLoopMiddleware(interrupt_on={"buy": True})
        tools = [self.tools.add, self.tools.buy, self.tools.wait, self.tools.doze, *self.tools.more]
        return create_agent(self.model, tools, system_prompt=SYSTEM, middleware=[middleware], checkpointer=self.saver)

    def make(self, **options: Any) -> LangGraphBridge:
        return LangGraphBridge(self.agent, name="shop", deps=lambda context: {"secret": CANARY}, **options)

    def structured(self) -> LangGraphBridge:
        class State(MessagesState):
            structured_response: Price

        graph = StateGraph(State)
        graph.add_node("price", lambda state: {"structured_response": Price(amount=5)})
        graph.add_edge(START, "price")
        return LangGraphBridge(graph.compile(), name="prices")

    def images_seen(self) -> list[Any]:
        return [
            piece
            for content in self.model.seen
            if isinstance(content, list)
            for piece in content
            if piece["type"] != "text"
        ]
