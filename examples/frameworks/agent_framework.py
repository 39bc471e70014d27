"""An agent of the Microsoft Agent Framework: its tool requires an approval."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    ResponseStream,
    tool,
)

from a2a_sync import A2AApp
from a2a_sync.integrations.agent_framework import AgentFrameworkBridge
from examples.frameworks.pretend import INSTRUCTIONS, MODEL, OPENAI, answer, talk, wish


@tool(approval_mode="always_require")
def buy(what: str) -> str:
    """Buy something."""
    return f"you have bought a {what}"


class PretendingClient(FunctionInvocationLayer, BaseChatClient):
    """Models without a network."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **others: Any) -> Any:
        return ResponseStream(self._stream(messages), finalizer=ChatResponse.from_updates)

    async def _stream(self, messages: Any) -> AsyncIterator[ChatResponseUpdate]:
        last, name = messages[-1], f"m{len(messages)}"
        bought = next((str(one.result) for one in last.contents if one.type == "function_result"), "")
        if not bought and (what := wish(last.text)):
            contents = [Content.from_function_call(f"call-{name}", "buy", arguments={"what": what})]
            yield ChatResponseUpdate(role="assistant", contents=contents, message_id=name)
            return
        for word in answer(last.text, bought):
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(word)], message_id=name)


def client() -> Any:
    if not OPENAI:
        return PretendingClient()
    from agent_framework.openai import OpenAIChatClient

    return OpenAIChatClient(model=MODEL)


agent = Agent(client=client(), instructions=INSTRUCTIONS, tools=[buy])
app = A2AApp(AgentFrameworkBridge(agent, name="shop", description="Sells boats"))

if __name__ == "__main__":
    talk(app)
