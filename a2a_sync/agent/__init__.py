"""The API for authors of agents:

`Agent`, `AgentExecutor`, request context, results, dialogues, artifacts, extensions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from a2a_sync.lazymodule import lazy_names

if TYPE_CHECKING:
    from a2a_sync.agent.agent import Agent as Agent
    from a2a_sync.agent.artifacts import ArtifactWriter as ArtifactWriter
    from a2a_sync.agent.dialogue import Answer as Answer
    from a2a_sync.agent.dialogue import AskError as AskError
    from a2a_sync.agent.dialogue import DialogueChanged as DialogueChanged
    from a2a_sync.agent.executor import AgentExecutor as AgentExecutor
    from a2a_sync.agent.executor import Event as Event
    from a2a_sync.agent.executor import RequestContext as RequestContext
    from a2a_sync.agent.executor import TaskCancelled as TaskCancelled
    from a2a_sync.agent.extensions import Extension as Extension
    from a2a_sync.agent.extensions import Timestamps as Timestamps
    from a2a_sync.agent.results import AuthRequired as AuthRequired
    from a2a_sync.agent.results import Failed as Failed
    from a2a_sync.agent.results import InputRequired as InputRequired
    from a2a_sync.agent.results import Rejected as Rejected
    from a2a_sync.agent.results import StreamingResult as StreamingResult
    from a2a_sync.agent.spec import AgentSpec as AgentSpec
    from a2a_sync.agent.state import State as State

_MODULES = {
    "a2a_sync.agent.agent": ("Agent",),
    "a2a_sync.agent.artifacts": ("ArtifactWriter",),
    "a2a_sync.agent.dialogue": (
        "Answer",
        "AskError",
        "DialogueChanged",
    ),
    "a2a_sync.agent.executor": (
        "AgentExecutor",
        "Event",
        "RequestContext",
        "TaskCancelled",
    ),
    "a2a_sync.agent.extensions": (
        "Extension",
        "Timestamps",
    ),
    "a2a_sync.agent.results": (
        "AuthRequired",
        "Failed",
        "InputRequired",
        "Rejected",
        "StreamingResult",
    ),
    "a2a_sync.agent.spec": ("AgentSpec",),
    "a2a_sync.agent.state": ("State",),
}

__all__ = [
    "Agent",
    "AgentExecutor",
    "AgentSpec",
    "Answer",
    "ArtifactWriter",
    "AskError",
    "AuthRequired",
    "DialogueChanged",
    "Event",
    "Extension",
    "Failed",
    "InputRequired",
    "Rejected",
    "RequestContext",
    "State",
    "StreamingResult",
    "TaskCancelled",
    "Timestamps",
]

__getattr__ = lazy_names(__name__, _MODULES)
