"""LlamaIndex with the model of `brain`."""

from collections.abc import AsyncIterator
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from a2a_sync.integrations.llamaindex import LlamaIndexBridge
from tests.frameworks.brain import CANARY, SYSTEM, Price, Tools, think, words


class FakeModel(CustomLLM, FunctionCallingLLM):
    images: list[Any] = []
    window: int = 100_000

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, context_window=self.window)

    def complete(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def stream_complete(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _prepare_chat_with_tools(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _turns(self, messages: list[ChatMessage]) -> list[tuple[str, str]]:
        self.images += [block for one in messages for block in one.blocks if block.block_type == "image"]
        return [(one.role.value, one.content or "") for one in messages if one.role.value != "system"]

    async def astream_chat_with_tools(self, tools: Any, chat_history: Any = None, **options: Any) -> Any:
        assert CANARY in str(chat_history[0].content)
        answer = think(self._turns(chat_history))

        async def stream() -> AsyncIterator[ChatResponse]:
            text = ""
            for word in words(answer if isinstance(answer, str) else "Let me see."):
                text += word
                yield ChatResponse(message=ChatMessage(role="assistant", content=text), delta=word)
            calls = [] if isinstance(answer, str) else answer
            message = ChatMessage(role="assistant", content=text)
            message.additional_kwargs["calls"] = [
                {"tool_id": f"c{len(chat_history)}-{n}", "tool_name": call.name, "tool_kwargs": call.arguments}
                for n, call in enumerate(calls)
            ]
            yield ChatResponse(message=message, delta="")

        return stream()

    def get_tool_calls_from_response(self, response: ChatResponse, **options: Any) -> list[ToolSelection]:
        return [ToolSelection(**call) for call in response.message.additional_kwargs.get("calls", [])]


class Kit:
    """What the suite needs of one framework."""

    preamble = True
    counts_tokens = False

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.model = FakeModel(images=[])

    def agent(self, **options: Any) -> Any:
        async def buy(ctx: Context, what: str) -> str:
            """Buy something."""
            assert await ctx.store.get("deps") == {"secret": CANARY}
            asked = InputRequiredEvent(
                prefix="Buy it?", kind="approval", tool="buy", arguments={"what": what}, what=what
            )
            answer = await ctx.wait_for_event(
                HumanResponseEvent, waiter_event=asked, waiter_id=what, requirements={"what": what}
            )
            return self.tools.buy(what) if answer.response is True else "not approved"

        tools = [self.tools.add, buy, self.tools.wait, self.tools.doze, *self.tools.more]
        return FunctionAgent(llm=self.model, tools=tools, system_prompt=SYSTEM, timeout=None, **options)

    def make(self, **options: Any) -> LlamaIndexBridge:
        return LlamaIndexBridge(self.agent, name="shop", deps=lambda context: {"secret": CANARY}, **options)

    def structured(self) -> LlamaIndexBridge:
        agent = self.agent(structured_output_fn=lambda messages: Price(amount=5).model_dump())
        return LlamaIndexBridge(agent, name="prices")

    def images_seen(self) -> list[Any]:
        return self.model.images
