"""An agent of the OpenAI Agents SDK: its tool needs an approval."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, function_tool, set_tracing_disabled
from agents.testing import assistant_message, function_call
from agents.usage import Usage
from openai.types.responses import ResponseCompletedEvent, ResponseTextDeltaEvent

from a2a_sync import A2AApp
from a2a_sync.integrations.openai_agents import OpenAIAgentsBridge
from examples.frameworks.pretend import INSTRUCTIONS, MODEL, OPENAI, answer, talk, wish


@function_tool(needs_approval=True)
def buy(what: str) -> str:
    """Buy something."""
    return f"you have bought a {what}"


class PretendingModel(Model):
    """A model without a network."""

    async def get_response(self, instructions: Any, items: Any, *arguments: Any, **options: Any) -> ModelResponse:
        return ModelResponse(output=self._output(items), usage=Usage(requests=1), response_id=None)

    def _output(self, items: Any) -> list[Any]:
        last = items[-1]
        if last.get("type") == "function_call_output":
            return [assistant_message("".join(answer("", last["output"])), item_id=f"m{len(items)}")]
        text = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
        if what := wish(text):
            return [function_call("buy", {"what": what}, call_id=f"call-{len(items)}")]
        return [assistant_message("".join(answer(text)), item_id=f"m{len(items)}")]

    async def stream_response(
        self, instructions: Any, items: Any, *arguments: Any, **options: Any
    ) -> AsyncIterator[Any]:
        output = self._output(items)
        about = {"output_index": 0, "content_index": 0, "logprobs": []}
        for item in output:
            for word in re.findall(r"\S+\s*", item.content[0].text) if item.type == "message" else ():
                delta = {"type": "response.output_text.delta", "delta": word, "item_id": item.id, **about}
                yield ResponseTextDeltaEvent.model_validate({**delta, "sequence_number": 0})
        response = {"id": "r", "created_at": 0, "model": "pretend", "object": "response", "output": output}
        response |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
        completed = {"type": "response.completed", "response": response, "sequence_number": 1}
        yield ResponseCompletedEvent.model_validate(completed)


if not OPENAI:
    # The SDK would send traces to api.openai.com.
    set_tracing_disabled(True)
agent = Agent("shop", instructions=INSTRUCTIONS, model=MODEL if OPENAI else PretendingModel(), tools=[buy])
app = A2AApp(OpenAIAgentsBridge(agent, description="Sells boats"))

if __name__ == "__main__":
    talk(app)
