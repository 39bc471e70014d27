"""The API for authors of agents:

`Agent`, `AgentExecutor`, request context, results, dialogues, artifacts, extensions.
"""

from __future__ import annotations

from a2a_sync.agent.agent import Agent
from a2a_sync.agent.artifacts import ArtifactWriter
from a2a_sync.agent.dialogue import Answer, AskError, DialogueChanged, yes_or_no
from a2a_sync.agent.executor import AgentExecutor, Event, RequestContext, TaskCancelled
from a2a_sync.agent.extensions import Extension, Timestamps
from a2a_sync.agent.memory import Memory
from a2a_sync.agent.results import AuthRequired, Failed, InputRequired, Rejected, StreamingResult
from a2a_sync.agent.spec import AgentSpec
from a2a_sync.agent.state import State

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
    "Memory",
    "Rejected",
    "RequestContext",
    "State",
    "StreamingResult",
    "TaskCancelled",
    "Timestamps",
    "yes_or_no",
]
