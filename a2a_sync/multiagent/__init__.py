"""Several agents: hosts, registries, supervision, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from a2a_sync.lazymodule import lazy_names

if TYPE_CHECKING:
    from a2a_sync.multiagent.agentserver import AgentServer, AgentTask
    from a2a_sync.multiagent.events import AgentEvent, AgentEvents
    from a2a_sync.multiagent.host import AgentHost
    from a2a_sync.multiagent.registry import AgentNotFoundError, AgentRegistry, RegisteredAgent
    from a2a_sync.multiagent.supervisor import AgentSupervisor
    from a2a_sync.multiagent.taskresult import get_task_result

_MODULES = {
    "a2a_sync.multiagent.agentserver": ("AgentServer", "AgentTask"),
    "a2a_sync.multiagent.events": ("AgentEvent", "AgentEvents"),
    "a2a_sync.multiagent.host": ("AgentHost",),
    "a2a_sync.multiagent.registry": ("AgentNotFoundError", "AgentRegistry", "RegisteredAgent"),
    "a2a_sync.multiagent.supervisor": ("AgentSupervisor",),
    "a2a_sync.multiagent.taskresult": ("get_task_result",),
}

__all__ = [
    "AgentEvent",
    "AgentEvents",
    "AgentHost",
    "AgentNotFoundError",
    "AgentRegistry",
    "AgentServer",
    "AgentSupervisor",
    "AgentTask",
    "RegisteredAgent",
    "get_task_result",
]

__getattr__: Final = lazy_names(__name__, _MODULES)
