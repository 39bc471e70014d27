"""Strands with the model of `brain`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models.model import Model

from a2a_sync.integrations.strands import StrandsBridge
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, SYSTEM, Price, Tools, think, words


class FakeModel(Model):
    def __init__(self) -> None:
        self.images: list[Any] = []

    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _turns(self, messages: Any) -> list[tuple[str, str]]:
        turns = []
        for message in messages:
            for block in message["content"]:
                if "text" in block:
                    turns.append((message["role"], block["text"]))
                elif "toolResult" in block:
                    turns.append(("tool", "".join(one.get("text", "") for one in block["toolResult"]["content"])))
                elif "image" in block:
                    self.images.append(block["image"])
        return turns

    def answer(self, messages: Any) -> Any:
        return think(self._turns(messages))

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        assert CANARY in (system_prompt or "")
        answer = self.answer(messages)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for word in words(answer if isinstance(answer, str) else "Let me see."):
            yield {"contentBlockDelta": {"delta": {"text": word}}}
        yield {"contentBlockStop": {}}
        for n, call in enumerate(() if isinstance(answer, str) else answer):
            use = {"name": call.name, "toolUseId": f"c{len(messages)}-{n}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call.arguments)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(answer, str) else "tool_use"}}
        usage = {
            "inputTokens": INPUT_TOKENS,
            "outputTokens": OUTPUT_TOKENS,
            "totalTokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


class Kit:
    """What the suite needs of one framework."""

    preamble = True
    counts_tokens = True

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.model = FakeModel()

    def agent(self, context: Any) -> Any:
        def approve(event: BeforeToolCallEvent) -> None:
            assert event.invocation_state["deps"] == {"secret": CANARY}
            use = event.tool_use
            if use["name"] == "buy":
                reason = {"kind": "approval", "tool": "buy", "arguments": use["input"], "text": "Buy it?"}
                if event.interrupt("approve", reason=reason) is not True:
                    event.cancel_tool = "not approved"

        agent = Agent(
            model=self.model,
            tools=[
                tool(self.tools.add),
                tool(self.tools.buy),
                tool(self.tools.wait),
                tool(self.tools.doze),
                *self.tools.more,
            ],
            system_prompt=SYSTEM,
        )
        agent.add_hook(approve, BeforeToolCallEvent)
        return agent

    def make(self, **options: Any) -> StrandsBridge:
        return StrandsBridge(self.agent, name="shop", deps=lambda context: {"secret": CANARY}, **options)

    def structured(self) -> StrandsBridge:
        class Priced(FakeModel):
            def answer(self, messages: Any) -> Any:
                from tests.frameworks.brain import Call

                return [Call("Price", {"amount": 5})]

        def make(context: Any) -> Any:
            return Agent(model=Priced(), system_prompt=SYSTEM, structured_output_model=Price)

        return StrandsBridge(make, name="prices")

    def images_seen(self) -> list[Any]:
        return self.model.images
