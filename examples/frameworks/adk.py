"""An agent of the Google ADK: its tool requires a confirmation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool
from google.genai import types

from a2a_sync import A2AApp
from a2a_sync.integrations.adk import ADKExecutor
from examples.frameworks.pretend import INSTRUCTIONS, answer, talk, wish


def buy(what: str) -> str:
    """Buy something."""
    return f"you have bought a {what}"


class PretendingModel(BaseLlm):
    """A model without a network."""

    model: str = "pretend"

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        last = request.contents[-1].parts[-1]
        response = last.function_response.response or {} if last.function_response else {}
        if last.text and (what := wish(last.text)):
            call = types.Part(function_call=types.FunctionCall(name="buy", args={"what": what}))
            yield LlmResponse(content=types.Content(role="model", parts=[call]))
            return
        words = list(answer(last.text or "", str(response.get("result", ""))))
        for word in words if stream else ():
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=word)]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="".join(words))]))


model = os.environ.get("MODEL", "gemini-2.5-flash") if "GOOGLE_API_KEY" in os.environ else PretendingModel()
tools = [FunctionTool(buy, require_confirmation=True)]
agent = LlmAgent(name="shop", model=model, instruction=INSTRUCTIONS, tools=tools)
# Several workers need sessions in a database.
runner = Runner(agent=agent, app_name="shop", session_service=InMemorySessionService())
app = A2AApp(ADKExecutor(runner, name="shop", description="Sells boats"))

if __name__ == "__main__":
    talk(app)
