"""An agent of LlamaIndex: its tool asks with an event of the workflow."""

# Without `from __future__ import annotations`: LlamaIndex recognises the context among the parameters of a tool by its type.
from collections.abc import AsyncIterator
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, ToolCallBlock
from llama_index.core.llms import LLM
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from a2a_sync import A2AApp
from a2a_sync.integrations.llamaindex import LlamaIndexBridge
from examples.frameworks.pretend import INSTRUCTIONS, MODEL, OPENAI, answer, talk, wish


async def buy(ctx: Context, what: str) -> str:
    """Buy something."""
    asked = InputRequiredEvent(prefix=f"Buy a {what}?", kind="approval", tool="buy", what=what)
    answered = await ctx.wait_for_event(
        HumanResponseEvent, waiter_event=asked, waiter_id=what, requirements={"what": what}
    )
    return f"you have bought a {what}" if answered.response is True else "nothing was bought"


class PretendingModel(MockFunctionCallingLLM):
    """A model without a network."""

    async def astream_chat(self, messages: Any, **options: Any) -> AsyncIterator[ChatResponse]:
        return self._pieces(messages)

    async def _pieces(self, messages: Any) -> AsyncIterator[ChatResponse]:
        last = messages[-1]
        text = last.content or ""
        if last.role == "user" and (what := wish(text)):
            call = ToolCallBlock(tool_call_id=f"call-{len(messages)}", tool_name="buy", tool_kwargs={"what": what})
            yield ChatResponse(message=ChatMessage(role="assistant", blocks=[call]), delta="")
            return
        said = ""
        for word in answer(text, text if last.role == "tool" else ""):
            said += word
            yield ChatResponse(message=ChatMessage(role="assistant", content=said), delta=word)


def model() -> LLM:
    if not OPENAI:
        return PretendingModel()
    from llama_index.llms.openai import OpenAI

    return OpenAI(MODEL)


agent = FunctionAgent(llm=model(), system_prompt=INSTRUCTIONS, tools=[buy], timeout=None)
app = A2AApp(LlamaIndexBridge(agent, name="shop", description="Sells boats"))

if __name__ == "__main__":
    talk(app)
