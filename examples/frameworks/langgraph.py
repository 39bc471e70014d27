"""An agent of LangChain, which LangGraph runs: the middleware asks before the tool is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from a2a_sync import A2AApp
from a2a_sync.integrations.langgraph import LangGraphBridge
from examples.frameworks.pretend import INSTRUCTIONS, MODEL, OPENAI, answer, talk, wish


def buy(what: str) -> str:
    """Buy something."""
    return f"you have bought a {what}"


class PretendingModel(BaseChatModel):
    """A model without a network."""

    @property
    def _llm_type(self) -> str:
        return "pretend"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Iterator[Any]:
        last = messages[-1]
        if last.type == "human" and (what := wish(last.text)):
            call = {"name": "buy", "args": {"what": what}, "id": last.id or "call", "type": "tool_call"}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_calls=[call]))  # type: ignore[list-item]
            return
        for word in answer(last.text, last.text if last.type == "tool" else ""):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages))


model = init_chat_model(f"openai:{MODEL}") if OPENAI else PretendingModel()
asks = HumanInTheLoopMiddleware(interrupt_on={"buy": True})
# Several workers need a checkpointer in a database.
agent = create_agent(model, [buy], system_prompt=INSTRUCTIONS, middleware=[asks], checkpointer=InMemorySaver())
app = A2AApp(LangGraphBridge(agent, name="shop", description="Sells boats"))

if __name__ == "__main__":
    talk(app)
