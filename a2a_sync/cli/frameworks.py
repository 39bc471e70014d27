"""Recognise the agents of frameworks by their classes, without importing a framework."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

#: The class of a framework's agents: its package and name; with the module and the class of their bridge.
_BRIDGES = {
    ("langgraph", "Pregel"): ("langgraph", "LangGraphBridge"),
    ("pydantic_ai", "AbstractAgent"): ("pydantic_ai", "PydanticAIBridge"),
    ("agents", "AgentBase"): ("openai_agents", "OpenAIAgentsBridge"),
    ("strands", "Agent"): ("strands", "StrandsBridge"),
    ("llama_index", "BaseWorkflowAgent"): ("llamaindex", "LlamaIndexBridge"),
    ("llama_index", "AgentWorkflow"): ("llamaindex", "LlamaIndexBridge"),
    ("agent_framework", "BaseAgent"): ("agent_framework", "AgentFrameworkBridge"),
    ("google", "Runner"): ("adk", "ADKExecutor"),
    ("crewai", "Crew"): ("crewai", "CrewBridge"),
    ("crewai", "Agent"): ("crewai", "CrewBridge"),
}
#: The names of agents that were given none.
_UNNAMED = ("LangGraph", "Strands Agents", "Agent", "crew")


def bridge_of(found: Any, name: str, factory: Callable[[], Any] | None = None) -> Any:
    """The bridge that serves `found`, an agent of a framework; None if it is none.

    Parameters:
        found: the object.
        name: the name of the agent in its card, if `found` has none.
        factory: the function that made it, if one did.

    Raises:
        ImportError: the extra of the framework is not installed.
        TypeError: the framework needs a function that makes its agents.
    """
    if isinstance(found, type) and any(_key(cls) == ("crewai", "Flow") for cls in found.__mro__[1:]):
        return import_module("a2a_sync.integrations.crewai").FlowBridge(found)
    for cls in type(found).__mro__:
        bridge = _BRIDGES.get(_key(cls))
        if bridge is not None:
            served: Any = found
            if bridge[0] in ("strands", "crewai") and factory is not None:
                # These agents and crews hold what they have done, so each run has its own.
                served = lambda context: factory()  # noqa: E731
            own = getattr(found, "name", None)
            described = getattr(found, "description", None)
            about = {
                "name": own if isinstance(own, str) and own and own not in _UNNAMED else name,
                "description": described if isinstance(described, str) else "",
            }
            return getattr(import_module(f"a2a_sync.integrations.{bridge[0]}"), bridge[1])(served, **about)
    return None


def _key(cls: type) -> tuple[str, str]:
    return cls.__module__.partition(".")[0], cls.__name__
