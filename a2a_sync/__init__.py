"""The A2A (Agent2Agent) protocol for synchronous Python: a WSGI server, a blocking client, no event loop.

The names that most programs use; the others are in the public modules that docs/reference/modules.md lists. A name is imported
when it is first used, so that importing the client loads no server, and importing the package opens no file and starts no
thread.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "a2a_sync.agent.agent": ("Agent",),
    "a2a_sync.agent.executor": ("AgentExecutor", "RequestContext", "TaskCancelled"),
    "a2a_sync.agent.extensions": ("Extension",),
    "a2a_sync.agent.results": ("AuthRequired", "Failed", "InputRequired", "Rejected", "StreamingResult"),
    "a2a_sync.card": ("AgentCard", "AgentSkill"),
    "a2a_sync.client": ("Chat", "Client", "Retry", "TaskStream", "Timeout"),
    "a2a_sync.errors": (
        "A2AError",
        "AgentError",
        "PublicError",
        "TaskNotFoundError",
        "TransportError",
        "TransportTimeoutError",
    ),
    "a2a_sync.gunicorn.program": ("serve",),
    "a2a_sync.limits": ("Limits",),
    "a2a_sync.multiagent.host": ("AgentHost",),
    "a2a_sync.outbound.urlguard": ("URLGuard",),
    "a2a_sync.push": ("PushOptions",),
    "a2a_sync.server.ratelimit": ("RateLimit",),
    "a2a_sync.stores": ("MemoryStore", "SQLiteStore"),
    "a2a_sync.types": (
        "Artifact",
        "DataPart",
        "FilePart",
        "Message",
        "Part",
        "Role",
        "Task",
        "TaskArtifactUpdateEvent",
        "TaskPushNotificationConfig",
        "TaskState",
        "TaskStatus",
        "TaskStatusUpdateEvent",
        "TextPart",
    ),
    "a2a_sync.webhooks": ("PushNotification", "WebhookReceiver"),
    "a2a_sync.wsgi.app": ("A2AApp",),
    "a2a_sync.wsgi.options": ("HTTPOptions",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if TYPE_CHECKING:
    from a2a_sync.agent.agent import Agent
    from a2a_sync.agent.executor import AgentExecutor, RequestContext, TaskCancelled
    from a2a_sync.agent.extensions import Extension
    from a2a_sync.agent.results import AuthRequired, Failed, InputRequired, Rejected, StreamingResult
    from a2a_sync.card import AgentCard, AgentSkill
    from a2a_sync.client import Chat, Client, Retry, TaskStream, Timeout
    from a2a_sync.errors import (
        A2AError,
        AgentError,
        PublicError,
        TaskNotFoundError,
        TransportError,
        TransportTimeoutError,
    )
    from a2a_sync.gunicorn.program import serve
    from a2a_sync.limits import Limits
    from a2a_sync.multiagent.host import AgentHost
    from a2a_sync.outbound.urlguard import URLGuard
    from a2a_sync.push import PushOptions
    from a2a_sync.server.ratelimit import RateLimit
    from a2a_sync.stores import MemoryStore, SQLiteStore
    from a2a_sync.types import (
        Artifact,
        DataPart,
        FilePart,
        Message,
        Part,
        Role,
        Task,
        TaskArtifactUpdateEvent,
        TaskPushNotificationConfig,
        TaskState,
        TaskStatus,
        TaskStatusUpdateEvent,
        TextPart,
    )
    from a2a_sync.webhooks import PushNotification, WebhookReceiver
    from a2a_sync.wsgi.app import A2AApp
    from a2a_sync.wsgi.options import HTTPOptions

# Written out: type checkers evaluate no computed list, so that `from a2a_sync import *` would give them no names.
__all__ = [
    "A2AApp",
    "A2AError",
    "Agent",
    "AgentCard",
    "AgentError",
    "AgentExecutor",
    "AgentHost",
    "AgentSkill",
    "Artifact",
    "AuthRequired",
    "Chat",
    "Client",
    "DataPart",
    "Extension",
    "Failed",
    "FilePart",
    "HTTPOptions",
    "InputRequired",
    "Limits",
    "MemoryStore",
    "Message",
    "Part",
    "PublicError",
    "PushNotification",
    "PushOptions",
    "RateLimit",
    "Rejected",
    "RequestContext",
    "Retry",
    "Role",
    "SQLiteStore",
    "StreamingResult",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskCancelled",
    "TaskNotFoundError",
    "TaskPushNotificationConfig",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "TaskStream",
    "TextPart",
    "Timeout",
    "TransportError",
    "TransportTimeoutError",
    "URLGuard",
    "WebhookReceiver",
    "serve",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
