"""The OpenAI Agents SDK with the model of `brain`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, ModelResponse, RunContextWrapper, function_tool, set_tracing_disabled
from agents.models.interface import Model
from agents.testing import assistant_message, function_call
from agents.usage import Usage
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent, ResponseUsage
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from a2a_sync.integrations.openai_agents import OpenAIAgentsBridge
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, SYSTEM, Price, Tools, think, words

set_tracing_disabled(True)


class FakeModel(Model):
    def __init__(self) -> None:
        self.images: list[Any] = []

    def _turns(self, items: Any) -> list[tuple[str, str]]:
        turns = []
        for item in items:
            if item.get("type") == "function_call_output":
                turns.append(("tool", str(item["output"])))
            elif item.get("role") in ("user", "assistant"):
                content = item["content"]
                self.images += [one for one in content if one["type"] == "input_image"]
                turns.append((item["role"], " ".join(one["text"] for one in content if "text" in one)))
        return turns

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        output = self._output(arguments[1])
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def _output(self, items: Any) -> list[Any]:
        answer = think(self._turns(items))
        if isinstance(answer, str):
            return [assistant_message(answer, item_id=f"m{len(items)}")]
        calls = [
            function_call(call.name, call.arguments, call_id=f"c{len(items)}-{n}") for n, call in enumerate(answer)
        ]
        return [assistant_message("Let me see.", item_id=f"m{len(items)}"), *calls]

    async def stream_response(
        self, instructions: Any, items: Any, *arguments: Any, **options: Any
    ) -> AsyncIterator[Any]:
        assert CANARY in instructions
        output = self._output(items)
        common = {"item_id": output[0].id, "output_index": 0, "content_index": 0, "sequence_number": 0, "logprobs": []}
        for word in words(output[0].content[0].text):
            yield ResponseTextDeltaEvent(delta=word, type="response.output_text.delta", **common)
        usage = ResponseUsage(
            input_tokens=INPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            total_tokens=INPUT_TOKENS + OUTPUT_TOKENS,
            input_tokens_details=InputTokensDetails.model_construct(cached_tokens=0, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
        response = Response(
            id="r",
            created_at=0,
            model="fake",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
            usage=usage,
        )
        yield ResponseCompletedEvent(response=response, type="response.completed", sequence_number=1)


class Kit:
    """What the suite needs of one framework."""

    preamble = True
    counts_tokens = True

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.model = FakeModel()

    def agent(self) -> Any:
        def buy(context: RunContextWrapper[Any], what: str) -> str:
            assert context.context == {"secret": CANARY}
            return self.tools.buy(what)

        tools = [function_tool(self.tools.add), function_tool(self.tools.wait), function_tool(self.tools.doze)]
        tools.append(function_tool(buy, needs_approval=True))
        tools += self.tools.more
        return Agent("shop", instructions=SYSTEM, model=self.model, tools=tools)

    def make(self, **options: Any) -> OpenAIAgentsBridge:
        return OpenAIAgentsBridge(self.agent, name="shop", deps=lambda context: {"secret": CANARY}, **options)

    def structured(self) -> OpenAIAgentsBridge:
        class Priced(FakeModel):
            def _output(self, items: Any) -> list[Any]:
                return [assistant_message('{"amount": 5}')]

        return OpenAIAgentsBridge(Agent("prices", instructions=SYSTEM, model=Priced(), output_type=Price))

    def images_seen(self) -> list[Any]:
        return self.model.images
