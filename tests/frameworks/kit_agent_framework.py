"""The Microsoft Agent Framework with the model of `brain`."""

from collections.abc import AsyncIterator
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)

from a2a_sync.integrations.agent_framework import AgentFrameworkBridge
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, SYSTEM, Price, Tools, think, words


class FakeClient(FunctionInvocationLayer, BaseChatClient):
    def __init__(self) -> None:
        super().__init__()
        self.images: list[Any] = []

    def _turns(self, messages: list[Message]) -> list[tuple[str, str]]:
        turns = []
        for message in messages:
            texts = [content.text for content in message.contents if content.type == "text"]
            if message.role in ("user", "assistant") and texts:
                turns.append((message.role, " ".join(texts)))
            self.images += [content for content in message.contents if content.type == "data"]
            turns += [("tool", str(one.result)) for one in message.contents if one.type == "function_result"]
        return turns

    def answer(self, messages: list[Message]) -> Any:
        return think(self._turns(messages))

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        assert stream
        assert CANARY in str(options) + "".join(message.text for message in messages)
        return ResponseStream(self._stream(messages), finalizer=ChatResponse.from_updates)

    async def _stream(self, messages: list[Message]) -> AsyncIterator[ChatResponseUpdate]:
        answer = self.answer(messages)
        name = f"m{len(messages)}"
        for word in words(answer if isinstance(answer, str) else "Let me see."):
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(word)], message_id=name)
        calls = [] if isinstance(answer, str) else answer
        contents = [
            Content.from_function_call(f"c{len(messages)}-{n}", call.name, arguments=call.arguments)
            for n, call in enumerate(calls)
        ]
        usage: Any = {"input_token_count": INPUT_TOKENS, "output_token_count": OUTPUT_TOKENS}
        contents.append(Content.from_usage(usage))
        yield ChatResponseUpdate(role="assistant", contents=contents, message_id=name)


class Kit:
    """What the suite needs of one framework."""

    preamble = True
    counts_tokens = True

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.client = FakeClient()

    def agent(self) -> Any:
        @tool(approval_mode="always_require")
        def buy(what: str, ctx: FunctionInvocationContext) -> str:
            """Buy something."""
            assert ctx.kwargs["deps"] == {"secret": CANARY}
            return self.tools.buy(what)

        tools = [
            tool(self.tools.add, name="add"),
            tool(self.tools.wait, name="wait"),
            tool(self.tools.doze, name="doze"),
            buy,
            *self.tools.more,
        ]
        return Agent(client=self.client, instructions=SYSTEM, tools=tools)

    def make(self, **options: Any) -> AgentFrameworkBridge:
        return AgentFrameworkBridge(self.agent, name="shop", deps=lambda context: {"secret": CANARY}, **options)

    def structured(self) -> AgentFrameworkBridge:
        class Priced(FakeClient):
            def answer(self, messages: list[Message]) -> Any:
                return '{"amount": 5}'

        agent = Agent(client=Priced(), instructions=SYSTEM, default_options={"response_format": Price})
        return AgentFrameworkBridge(agent, name="prices")

    def images_seen(self) -> list[Any]:
        return self.client.images
