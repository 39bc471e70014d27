"""CrewAI with the model of `brain`: a crew with one agent, and a flow that calls the model and asks."""

from __future__ import annotations

import json
from typing import Any

from crewai import Agent, BaseLLM, Crew, Flow, Task
from crewai.flow import human_feedback, listen, router, start
from crewai.llms.base_llm import llm_call_context
from crewai.tools import tool
from pydantic import BaseModel, Field

from a2a_sync.integrations.crewai import CrewBridge, FlowBridge
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, SYSTEM, TIMEOUT, Price, Tools, think, words


class Model(BaseLLM):
    def __init__(self) -> None:
        super().__init__(model="fake/fake")

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, tools: Any = None, *arguments: Any, **options: Any) -> Any:
        listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        answer = self.answer(self.turns(listed))
        usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS}
        self._track_token_usage_internal({**usage, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS})
        if isinstance(answer, str):
            with llm_call_context():
                about = {name: options.get(name) for name in ("from_task", "from_agent")}
                for word in words(answer):
                    self._emit_stream_chunk_event(word, **about)
            return answer
        return [
            {"id": f"c{n}", "type": "function", "function": {"name": one.name, "arguments": json.dumps(one.arguments)}}
            for n, one in enumerate(answer)
        ]

    def turns(self, messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return _turns(messages)

    def answer(self, turns: list[tuple[str, str]]) -> Any:
        return think(turns)


def _turns(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The messages of a single agent, or the lines of a task with roles; and what tools have returned."""
    turns = []
    for message in messages:
        text = str(message.get("content") or "")
        if message["role"] in ("tool", "assistant") and text:
            turns.append((message["role"], text))
        elif message["role"] == "user":
            asked = (text.partition("Current Task:")[2] or text).strip().partition("\n\n")[0]
            lines = [line.strip().partition(": ") for line in asked.splitlines()]
            said = [({"agent": "assistant"}.get(role, role), text) for role, found, text in lines if found]
            turns += said or [("user", asked)]
    return turns


class Kit:
    """A crew and a flow, and what their tools have seen."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    def agent(self, context: Any = None, model: Any = None) -> Agent:
        @tool
        def add(a: int, b: int) -> str:
            """Add two numbers."""
            return str(a + b)

        @tool
        def wait() -> str:
            """Wait for a long time."""
            self.tools.waiting.set()
            self.tools.stopped.wait(TIMEOUT)
            return "waited"

        tools = [add, wait, *self.tools.more]
        return Agent(role="shop", goal="sell", backstory=SYSTEM, llm=model or Model(), tools=tools)

    def crew(self, context: Any = None, model: Any = None, **task: Any) -> Crew:
        agent = self.agent(model=model)
        options = {"description": "{history}\nuser: {query}", "expected_output": "an answer", **task}
        return Crew(agents=[agent], tasks=[Task(agent=agent, **options)])

    def crew_bridge(self, **options: Any) -> CrewBridge:
        return CrewBridge(self.crew, name="shop", **options)

    def agent_bridge(self, **options: Any) -> CrewBridge:
        return CrewBridge(self.agent, name="shop", **options)

    def flow_bridge(self, **options: Any) -> FlowBridge:
        return FlowBridge(ShopFlow, deps=lambda context: {"secret": CANARY, "tools": self.tools}, **options)


class Visit(BaseModel):
    id: str = ""
    query: str = ""
    said: list[str] = Field(default_factory=list)


class ShopFlow(Flow[Visit]):
    """Answers with all that was said; "buy" needs an approval, and a number of them is asked for then."""

    @start()
    def hear(self) -> str:
        assert self.deps["secret"] == CANARY
        self.state.said.append(self.state.query)
        return self.state.query

    @router(hear)
    def choose(self, query: str) -> str:
        return {"buy": "asks", "price": "prices", "ask": "reads"}.get(query, "talks")

    @listen("talks")
    def talk(self) -> str:
        return str(Model().call("\n".join(f"user: {text}" for text in self.state.said)))

    @listen("prices")
    def price(self) -> Price:
        return Price(amount=5)

    @listen("reads")
    def read(self) -> str:
        return f"read: {self.ask('Which one?')}"

    @listen("asks")
    @human_feedback(message="Buy it?")
    def offer(self) -> str:
        return "A boat for 5."

    @listen(offer)
    @human_feedback(message="How many?")
    def count(self, result: Any) -> str:
        return f"Agreed: {result.feedback}."

    @listen(count)
    def buy(self, result: Any) -> str:
        self.deps["tools"].buy("boat")
        return f"{result.output} {result.feedback} boats."
