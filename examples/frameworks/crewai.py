"""A flow of CrewAI, which asks with ``@human_feedback``; crews cannot ask."""

from __future__ import annotations

from typing import Any

from crewai import LLM, BaseLLM, Flow
from crewai.flow import human_feedback, listen, router, start
from crewai.llms.base_llm import llm_call_context
from pydantic import BaseModel

from a2a_sync import A2AApp
from a2a_sync.agent import yes_or_no
from a2a_sync.integrations.crewai import FlowBridge
from examples.frameworks.pretend import INSTRUCTIONS, MODEL, OPENAI, answer, talk, wish


class PretendingLLM(BaseLLM):
    """A model without a network."""

    def __init__(self) -> None:
        super().__init__(model="pretend/pretend")

    def call(self, messages: Any, *arguments: Any, **options: Any) -> str:
        bought = messages.partition("Confirm to the customer: ")[2]
        words = list(answer("", bought))
        with llm_call_context():
            for word in words:
                self._emit_stream_chunk_event(word)
        return "".join(words)


def ask_model(text: str) -> str:
    """What the model says to a text."""
    llm = LLM(f"openai/{MODEL}", stream=True) if OPENAI else PretendingLLM()
    return str(llm.call(f"{INSTRUCTIONS}\n{text}"))


class Visit(BaseModel):
    """The state of the flow."""

    id: str = ""
    query: str = ""


class Shop(Flow[Visit]):
    """Sells boats, if the caller agrees."""

    @start()
    def hear(self) -> str:
        return self.state.query

    @router(hear)
    def choose(self, query: str) -> str:
        return "buys" if wish(query) else "talks"

    @listen("talks")
    def talk(self) -> str:
        return ask_model(f"The customer says: {self.state.query}")

    @listen("buys")
    @human_feedback(message="Buy it?")
    def offer(self) -> str:
        return f"A {wish(self.state.query)} for 5."

    @listen(offer)
    def buy(self, offered: Any) -> str:
        if not yes_or_no(offered.feedback):
            return "Nothing was bought."
        return ask_model(f"Confirm to the customer: you have bought a {wish(self.state.query)}")


app = A2AApp(FlowBridge(Shop, name="shop", description="Sells boats"))

if __name__ == "__main__":
    talk(app)
