"""An agent of Strands: its tool interrupts the agent to ask."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, ToolContext, tool
from strands.models.model import Model

from a2a_sync import A2AApp, RequestContext
from a2a_sync.integrations.strands import StrandsBridge
from examples.frameworks.pretend import INSTRUCTIONS, MODEL, OPENAI, answer, talk, wish


@tool(context=True)
def buy(what: str, tool_context: ToolContext) -> str:
    """Buy something."""
    reason = {"kind": "approval", "tool": "buy", "arguments": {"what": what}, "text": f"Buy a {what}?"}
    # The code before an interrupt runs again when it is answered.
    return f"you have bought a {what}" if tool_context.interrupt("buy", reason=reason) else "nothing was bought"


class PretendingModel(Model):
    """A model without a network."""

    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        last = messages[-1]["content"][-1]
        bought = last["toolResult"]["content"][0]["text"] if "toolResult" in last else ""
        yield {"messageStart": {"role": "assistant"}}
        if not bought and (what := wish(last["text"])):
            use = {"name": "buy", "toolUseId": f"call-{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"what": what})}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            for word in answer("", bought):
                yield {"contentBlockDelta": {"delta": {"text": word}}}
        yield {"contentBlockStop": {}}
        calls = not bought and wish(last["text"])
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def model() -> Model:
    if not OPENAI:
        return PretendingModel()
    from strands.models.openai import OpenAIModel

    return OpenAIModel(model_id=MODEL)


def make_agent(context: RequestContext) -> Agent:
    """The agent of one run: an agent of Strands holds its messages."""
    return Agent(model=model(), system_prompt=INSTRUCTIONS, tools=[buy])


app = A2AApp(StrandsBridge(make_agent, name="shop", description="Sells boats"))

if __name__ == "__main__":
    talk(app)
