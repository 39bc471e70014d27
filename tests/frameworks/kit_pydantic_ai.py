"""Pydantic AI with the model of `brain`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import BinaryContent, ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from a2a_sync.integrations.pydantic_ai import PydanticAIBridge
from tests.frameworks.brain import CANARY, SYSTEM, Price, Tools, think, words


class Kit:
    """What the suite needs of one framework."""

    preamble = True
    #: The fake model of the framework estimates its tokens.
    counts_tokens = False

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.images: list[Any] = []

    def _turns(self, messages: list[ModelMessage]) -> list[tuple[str, str]]:
        turns = []
        for part in (part for message in messages for part in message.parts):
            match part.part_kind:
                case "user-prompt":
                    contents = [part.content] if isinstance(part.content, str) else part.content
                    self.images += [one for one in contents if isinstance(one, BinaryContent)]
                    turns.append(("user", " ".join(one for one in contents if isinstance(one, str))))
                case "tool-return":
                    turns.append(("tool", str(part.content)))
                case "text":
                    turns.append(("assistant", part.content))
        return turns

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        assert CANARY in str(messages)
        assert CANARY in (info.instructions or "")
        answer = think(self._turns(messages))
        if isinstance(answer, str):
            for word in words(answer):
                yield word
            return
        yield "Let me see."
        for n, call in enumerate(answer):
            yield {n: DeltaToolCall(call.name, json.dumps(call.arguments), tool_call_id=f"c{len(messages)}-{n}")}

    def agent(self) -> Any:
        def buy(context: RunContext[Any], what: str) -> str:
            assert context.deps == {"secret": CANARY}
            return self.tools.buy(what)

        tools = [self.tools.add, self.tools.wait, self.tools.doze, Tool(buy, requires_approval=True), *self.tools.more]
        model = FunctionModel(stream_function=self._stream)
        return Agent(model, tools=tools, system_prompt=SYSTEM, instructions=SYSTEM, deps_type=dict)

    def make(self, **options: Any) -> PydanticAIBridge:
        return PydanticAIBridge(self.agent, name="shop", deps=lambda context: {"secret": CANARY}, **options)

    def structured(self) -> PydanticAIBridge:
        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            yield {0: DeltaToolCall(info.output_tools[0].name, '{"amount": 5}', tool_call_id="c")}

        return PydanticAIBridge(Agent(FunctionModel(stream_function=stream), output_type=Price), name="prices")

    def images_seen(self) -> list[Any]:
        return self.images
