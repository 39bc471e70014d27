"""An agent that asks two questions, finds two other agents by what they can do, and asks both at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

from a2a_sync import A2AApp, Agent, AgentSkill, Message, RequestContext
from a2a_sync.multiagent import AgentRegistry


class Planner(Agent):
    """Plans an outing: asks when and for how many, then other agents for the rest."""

    name = "planner"
    skills = (AgentSkill.of("plan_outing", "Plans an outing", tags=["leisure"]),)

    def __init__(self, registry: AgentRegistry) -> None:
        super().__init__()
        self._registry = registry

    def handle_message(self, message: Message, context: RequestContext) -> Iterator[str]:
        """Ask the client, then the agents; what each of them says goes out as soon as it comes."""
        day = context.choose("Which day?", ["Friday", "Saturday", "Sunday"])
        people = context.ask("For how many people?")
        questions = {"forecast": day, "find_place": f"{people} people"}
        with ThreadPoolExecutor(len(questions)) as pool:
            answers = [pool.submit(self._tool(skill), question) for skill, question in questions.items()]
            for answer in as_completed(answers):
                yield answer.result() + "\n"
        yield "Have a nice day!"

    def _tool(self, skill: str) -> Callable[..., str]:
        return self._registry.client(self._registry.resolve(skill=skill)).as_tool(skill)


def registry() -> AgentRegistry:
    """The agents whose URLs are in ``OUTING_AGENTS``, separated by blanks."""
    found = AgentRegistry()
    for url in os.environ.get("OUTING_AGENTS", "").split():
        found.register(url, url)
    return found


app = A2AApp(Planner(registry()), store=os.environ.get("OUTING_STORE", "memory:"))
