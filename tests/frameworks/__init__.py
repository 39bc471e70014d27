"""Agent frameworks through the integrations, in an environment of their own: ``make frameworks``."""

from __future__ import annotations

from importlib.util import find_spec

#: The modules that import a framework when they are imported, with the framework's package and their extra.
BRIDGES = {
    "a2a_sync.integrations.adk": ("google.adk", "adk"),
    "a2a_sync.integrations.agent_framework": ("agent_framework", "agent-framework"),
    "a2a_sync.integrations.crewai": ("crewai", "crewai"),
    "a2a_sync.integrations.langgraph": ("langgraph", "langgraph"),
    "a2a_sync.integrations.llamaindex": ("llama_index", "llamaindex"),
    "a2a_sync.integrations.openai_agents": ("agents", "openai-agents"),
    "a2a_sync.integrations.pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "a2a_sync.integrations.strands": ("strands", "strands"),
}
#: The frameworks that share one environment and its suites, by the name of their module. CrewAI has its own: ``make crewai``.
SHARED = [name for module in BRIDGES if (name := module.rpartition(".")[2]) != "crewai"]
#: Other modules that import a framework or SDK, with its package.
PARTS = {
    **{f"a2a_sync.integrations.adk_{name}": "google.adk" for name in ("calls", "parts", "remote", "sessions")},
    "a2a_sync.integrations.celery": "celery",
    "a2a_sync.integrations.mcp": "mcp",
}
#: The modules that need the extra ``grpc``.
GRPC = dict.fromkeys(
    (
        "a2a_sync.bindings.protobuf",
        "a2a_sync.client.grpc",
        "a2a_sync.grpc",
        "a2a_sync.grpc.__init__",
        "a2a_sync.grpc.calls",
        "a2a_sync.grpc.health",
        "a2a_sync.grpc.server",
    ),
    "grpc",
)


def without_framework() -> set[str]:
    """Those modules of frameworks and of gRPC that cannot be imported here."""
    packages = {module: package for module, (package, _) in BRIDGES.items()} | PARTS | GRPC
    return {module for module, package in packages.items() if not installed(package)}


def installed(package: str) -> bool:
    """Whether a package, or one inside it, can be imported here."""
    parent, _, _ = package.rpartition(".")
    return (not parent or installed(parent)) and find_spec(package) is not None
