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
}
#: The names of agents that were given none.
_UNNAMED = ("LangGraph", "Strands Agents", "Agent")


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
    for cls in type(found).__mro__:
        bridge = _BRIDGES.get((cls.__module__.partition(".")[0], cls.__name__))
        if bridge is not None:
            served: Any = found
            if bridge[0] == "strands" and factory is not None:
                # These agents hold their messages, so each run has its own.
                served = lambda context: factory()  # noqa: E731
            own = getattr(found, "name", None)
            described = getattr(found, "description", None)
            about = {
                "name": own if isinstance(own, str) and own and own not in _UNNAMED else name,
                "description": described if isinstance(described, str) else "",
            }
            return getattr(import_module(f"a2a_sync.integrations.{bridge[0]}"), bridge[1])(served, **about)
    return None
