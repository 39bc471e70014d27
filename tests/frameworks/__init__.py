"""Agent frameworks through the integrations, in an environment of their own: ``make frameworks``."""

from __future__ import annotations

from importlib.util import find_spec

#: The modules that import a framework when they are imported, with the framework's package and their extra.
BRIDGES = {
    "a2a_sync.integrations.agent_framework": ("agent_framework", "agent-framework"),
    "a2a_sync.integrations.langgraph": ("langgraph", "langgraph"),
    "a2a_sync.integrations.llamaindex": ("llama_index", "llamaindex"),
    "a2a_sync.integrations.openai_agents": ("agents", "openai-agents"),
    "a2a_sync.integrations.pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "a2a_sync.integrations.strands": ("strands", "strands"),
}


def without_framework() -> set[str]:
    """Those of `BRIDGES` that cannot be imported here."""
    return {module for module, (package, _) in BRIDGES.items() if find_spec(package) is None}
