"""The Google ADK with the model of `brain`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from a2a_sync.integrations.adk import ADKExecutor
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, SYSTEM, Price, Tools, think, words

_ROLES = {"user": "user", "model": "assistant"}


class Model(BaseLlm):
    model: str = "fake"
    images: list[Any] = []

    def _turns(self, contents: list[types.Content]) -> list[tuple[str, str]]:
        turns = []
        for content in contents:
            for part in content.parts or ():
                if part.text:
                    turns.append((_ROLES[content.role or "user"], part.text))
                elif part.function_response:
                    response = part.function_response.response or {}
                    turns.append(("tool", str(response.get("result", response))))
                elif part.inline_data:
                    self.images.append(part.inline_data)
        return turns

    def answer(self, contents: list[types.Content]) -> Any:
        return think(self._turns(contents))

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        assert CANARY in request.config.system_instruction
        answer = self.answer(request.contents)
        text = answer if isinstance(answer, str) else "Let me see."
        for word in words(text) if stream else ():
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=word)]), partial=True)
        calls = () if isinstance(answer, str) else answer
        functions = [types.FunctionCall(name=call.name, args=call.arguments) for call in calls]
        parts = [types.Part(text=text), *(types.Part(function_call=function) for function in functions)]
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=INPUT_TOKENS, candidates_token_count=OUTPUT_TOKENS
        )
        yield LlmResponse(content=types.Content(role="model", parts=parts), partial=False, usage_metadata=usage)


class Kit:
    """What the suite needs of one framework. The sessions are shared by all apps of a test."""

    preamble = True
    counts_tokens = True

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.model = Model(images=[])
        self.sessions: Any = InMemorySessionService()
        #: The file of a session service that several processes share.
        self.path = ""

    def agent(self) -> Any:
        def buy(what: str, tool_context: ToolContext) -> str:
            """Buy something."""
            assert tool_context.state["temp:deps"] == {"secret": CANARY}
            return self.tools.buy(what)

        tools = [self.tools.add, self.tools.wait, self.tools.doze, FunctionTool(buy, require_confirmation=True)]
        return LlmAgent(name="shop", model=self.model, instruction=SYSTEM, tools=tools)

    async def runner(self) -> Any:
        if self.path:
            self.sessions = SqliteSessionService(self.path)
        return Runner(agent=self.agent(), app_name="shop", session_service=self.sessions)

    def make(self, **options: Any) -> ADKExecutor:
        return ADKExecutor(self.runner, name="shop", deps=lambda context: {"secret": CANARY}, **options)

    def structured(self) -> ADKExecutor:
        class Priced(Model):
            def answer(self, contents: list[types.Content]) -> Any:
                return '{"amount": 5}'

        agent = LlmAgent(name="prices", model=Priced(), instruction=SYSTEM, output_schema=Price)
        return ADKExecutor(Runner(agent=agent, app_name="prices", session_service=InMemorySessionService()))

    def images_seen(self) -> list[Any]:
        return self.model.images
