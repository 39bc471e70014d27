"""The A2A (Agent2Agent) protocol for synchronous Python: a WSGI server, a blocking client, no event loop.

Everything a README needs is a name of this module. Names are loaded on first use, so that importing the client loads no
server and importing the package opens no file and starts no thread.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "a2a_sync.agent.agent": ("Agent",),
    "a2a_sync.multiagent.events": ("AgentEvent", "AgentEvents"),
    "a2a_sync.multiagent.agentserver": ("AgentServer", "AgentTask"),
    "a2a_sync.multiagent.host": ("AgentHost",),
    "a2a_sync.wsgi.app": ("A2AApp",),
    "a2a_sync.auth.policy": ("Authenticator", "FrameworkAuth"),
    "a2a_sync.auth.schemes": ("ApiKeyAuth", "BasicAuth", "BearerAuth", "MTLSAuth"),
    "a2a_sync.auth.jwt_auth": ("JWTAuth",),
    "a2a_sync.card": (
        "AgentCapabilities",
        "AgentCard",
        "AgentExtension",
        "AgentInterface",
        "AgentProvider",
        "AgentSkill",
    ),
    "a2a_sync.cardmaking": ("create_agent_card",),
    "a2a_sync.cardrules": ("validate_card",),
    "a2a_sync.integrations.chat_messages": ("from_chat_messages", "to_chat_messages"),
    "a2a_sync.client": ("Chat", "Client", "Retry", "TaskStream", "Timeout"),
    "a2a_sync.client.placing": ("ApiKey",),
    "a2a_sync.client.remotetool": ("RemoteTool",),
    "a2a_sync.client.tokens": ("ClientCredentials",),
    "a2a_sync.errors": (
        "AgentError",
        "DataPartError",
        "InvalidCardError",
        "PermissionDeniedError",
        "PublicError",
        "StoreError",
        "StreamInterruptedError",
        "TaskFailedError",
        "TaskNotCancelableError",
        "TaskNotFoundError",
        "TransportError",
        "TransportTimeoutError",
        "UnauthenticatedError",
        "UnsupportedOperationError",
    ),
    "a2a_sync.agent.executor": ("AgentExecutor", "RequestContext", "TaskCancelled"),
    "a2a_sync.agent.extensions": ("Extension", "Timestamps"),
    "a2a_sync.limits": ("Limits",),
    "a2a_sync.integrations.mapper": ("Mapper", "RunEvent"),
    "a2a_sync.operations": ("Principal",),
    "a2a_sync.push": ("PushOptions",),
    "a2a_sync.server.ratelimit": ("RateLimit",),
    "a2a_sync.webhooks": ("PushNotification", "WebhookReceiver"),
    "a2a_sync.agent.results": ("AuthRequired", "Failed", "InputRequired", "Rejected", "StreamingResult"),
    "a2a_sync.multiagent.registry": ("AgentNotFoundError", "AgentRegistry"),
    "a2a_sync.integrations.runners": ("AgentRunnerExecutor", "WorkflowExecutor"),
    "a2a_sync.stores": ("MemoryStore", "SQLiteStore", "TaskStore"),
    "a2a_sync.multiagent.supervisor": ("AgentSupervisor",),
    "a2a_sync.multiagent.taskresult": ("get_task_result",),
    "a2a_sync.types": (
        "Artifact",
        "AuthenticationInfo",
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
    "a2a_sync.outbound.urlguard": ("URLGuard",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

if TYPE_CHECKING:
    from a2a_sync.agent.agent import Agent as Agent
    from a2a_sync.agent.executor import AgentExecutor as AgentExecutor
    from a2a_sync.agent.executor import RequestContext as RequestContext
    from a2a_sync.agent.executor import TaskCancelled as TaskCancelled
    from a2a_sync.agent.extensions import Extension as Extension
    from a2a_sync.agent.extensions import Timestamps as Timestamps
    from a2a_sync.agent.results import AuthRequired as AuthRequired
    from a2a_sync.agent.results import Failed as Failed
    from a2a_sync.agent.results import InputRequired as InputRequired
    from a2a_sync.agent.results import Rejected as Rejected
    from a2a_sync.agent.results import StreamingResult as StreamingResult
    from a2a_sync.auth.jwt_auth import JWTAuth as JWTAuth
    from a2a_sync.auth.policy import Authenticator as Authenticator
    from a2a_sync.auth.policy import FrameworkAuth as FrameworkAuth
    from a2a_sync.auth.schemes import ApiKeyAuth as ApiKeyAuth
    from a2a_sync.auth.schemes import BasicAuth as BasicAuth
    from a2a_sync.auth.schemes import BearerAuth as BearerAuth
    from a2a_sync.auth.schemes import MTLSAuth as MTLSAuth
    from a2a_sync.card import AgentCapabilities as AgentCapabilities
    from a2a_sync.card import AgentCard as AgentCard
    from a2a_sync.card import AgentExtension as AgentExtension
    from a2a_sync.card import AgentInterface as AgentInterface
    from a2a_sync.card import AgentProvider as AgentProvider
    from a2a_sync.card import AgentSkill as AgentSkill
    from a2a_sync.cardmaking import create_agent_card as create_agent_card
    from a2a_sync.cardrules import validate_card as validate_card
    from a2a_sync.client import Chat as Chat
    from a2a_sync.client import Client as Client
    from a2a_sync.client import Retry as Retry
    from a2a_sync.client import TaskStream as TaskStream
    from a2a_sync.client import Timeout as Timeout
    from a2a_sync.client.placing import ApiKey as ApiKey
    from a2a_sync.client.remotetool import RemoteTool as RemoteTool
    from a2a_sync.client.tokens import ClientCredentials as ClientCredentials
    from a2a_sync.errors import AgentError as AgentError
    from a2a_sync.errors import DataPartError as DataPartError
    from a2a_sync.errors import InvalidCardError as InvalidCardError
    from a2a_sync.errors import PermissionDeniedError as PermissionDeniedError
    from a2a_sync.errors import PublicError as PublicError
    from a2a_sync.errors import StoreError as StoreError
    from a2a_sync.errors import StreamInterruptedError as StreamInterruptedError
    from a2a_sync.errors import TaskFailedError as TaskFailedError
    from a2a_sync.errors import TaskNotCancelableError as TaskNotCancelableError
    from a2a_sync.errors import TaskNotFoundError as TaskNotFoundError
    from a2a_sync.errors import TransportError as TransportError
    from a2a_sync.errors import TransportTimeoutError as TransportTimeoutError
    from a2a_sync.errors import UnauthenticatedError as UnauthenticatedError
    from a2a_sync.errors import UnsupportedOperationError as UnsupportedOperationError
    from a2a_sync.integrations.chat_messages import from_chat_messages as from_chat_messages
    from a2a_sync.integrations.chat_messages import to_chat_messages as to_chat_messages
    from a2a_sync.integrations.mapper import Mapper as Mapper
    from a2a_sync.integrations.mapper import RunEvent as RunEvent
    from a2a_sync.integrations.runners import AgentRunnerExecutor as AgentRunnerExecutor
    from a2a_sync.integrations.runners import WorkflowExecutor as WorkflowExecutor
    from a2a_sync.limits import Limits as Limits
    from a2a_sync.multiagent.agentserver import AgentServer as AgentServer
    from a2a_sync.multiagent.agentserver import AgentTask as AgentTask
    from a2a_sync.multiagent.events import AgentEvent as AgentEvent
    from a2a_sync.multiagent.events import AgentEvents as AgentEvents
    from a2a_sync.multiagent.host import AgentHost as AgentHost
    from a2a_sync.multiagent.registry import AgentNotFoundError as AgentNotFoundError
    from a2a_sync.multiagent.registry import AgentRegistry as AgentRegistry
    from a2a_sync.multiagent.supervisor import AgentSupervisor as AgentSupervisor
    from a2a_sync.multiagent.taskresult import get_task_result as get_task_result
    from a2a_sync.operations import Principal as Principal
    from a2a_sync.outbound.urlguard import URLGuard as URLGuard
    from a2a_sync.push import PushOptions as PushOptions
    from a2a_sync.server.ratelimit import RateLimit as RateLimit
    from a2a_sync.stores import MemoryStore as MemoryStore
    from a2a_sync.stores import SQLiteStore as SQLiteStore
    from a2a_sync.stores import TaskStore as TaskStore
    from a2a_sync.types import Artifact as Artifact
    from a2a_sync.types import AuthenticationInfo as AuthenticationInfo
    from a2a_sync.types import DataPart as DataPart
    from a2a_sync.types import FilePart as FilePart
    from a2a_sync.types import Message as Message
    from a2a_sync.types import Part as Part
    from a2a_sync.types import Role as Role
    from a2a_sync.types import Task as Task
    from a2a_sync.types import TaskArtifactUpdateEvent as TaskArtifactUpdateEvent
    from a2a_sync.types import TaskPushNotificationConfig as TaskPushNotificationConfig
    from a2a_sync.types import TaskState as TaskState
    from a2a_sync.types import TaskStatus as TaskStatus
    from a2a_sync.types import TaskStatusUpdateEvent as TaskStatusUpdateEvent
    from a2a_sync.types import TextPart as TextPart
    from a2a_sync.webhooks import PushNotification as PushNotification
    from a2a_sync.webhooks import WebhookReceiver as WebhookReceiver
    from a2a_sync.wsgi.app import A2AApp as A2AApp

# Written out: type checkers read no computed list, and know no name of ``from a2a_sync import *`` without it.
__all__ = [
    "A2AApp",
    "Agent",
    "AgentCapabilities",
    "AgentCard",
    "AgentError",
    "AgentEvent",
    "AgentEvents",
    "AgentExecutor",
    "AgentExtension",
    "AgentHost",
    "AgentInterface",
    "AgentNotFoundError",
    "AgentProvider",
    "AgentRegistry",
    "AgentRunnerExecutor",
    "AgentServer",
    "AgentSkill",
    "AgentSupervisor",
    "AgentTask",
    "ApiKey",
    "ApiKeyAuth",
    "Artifact",
    "AuthRequired",
    "AuthenticationInfo",
    "Authenticator",
    "BasicAuth",
    "BearerAuth",
    "Chat",
    "Client",
    "ClientCredentials",
    "DataPart",
    "DataPartError",
    "Extension",
    "Failed",
    "FilePart",
    "FrameworkAuth",
    "InputRequired",
    "InvalidCardError",
    "JWTAuth",
    "Limits",
    "MTLSAuth",
    "Mapper",
    "MemoryStore",
    "Message",
    "Part",
    "PermissionDeniedError",
    "Principal",
    "PublicError",
    "PushNotification",
    "PushOptions",
    "RateLimit",
    "Rejected",
    "RemoteTool",
    "RequestContext",
    "Retry",
    "Role",
    "RunEvent",
    "SQLiteStore",
    "StoreError",
    "StreamInterruptedError",
    "StreamingResult",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskCancelled",
    "TaskFailedError",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TaskPushNotificationConfig",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "TaskStore",
    "TaskStream",
    "TextPart",
    "Timeout",
    "Timestamps",
    "TransportError",
    "TransportTimeoutError",
    "URLGuard",
    "UnauthenticatedError",
    "UnsupportedOperationError",
    "WebhookReceiver",
    "WorkflowExecutor",
    "create_agent_card",
    "from_chat_messages",
    "get_task_result",
    "to_chat_messages",
    "validate_card",
]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
