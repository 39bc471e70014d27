"""The client half: call an agent over the network or in this process.

Nothing of the server half is loaded here, and requests only with the first client that has a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from a2a_sync.client.arguments import CallOptions
from a2a_sync.client.client import Chat, Client
from a2a_sync.client.deadlines import Timeout
from a2a_sync.client.retry import Retry
from a2a_sync.client.stream import TaskStream
from a2a_sync.lazymodule import lazy_names

if TYPE_CHECKING:
    from a2a_sync.client.credentials import ApiKey, ClientCredentials
    from a2a_sync.client.request import Frame
    from a2a_sync.client.tools import RemoteTool, tool_name

_MODULES = {
    "a2a_sync.client.credentials": ("ApiKey", "ClientCredentials"),
    "a2a_sync.client.request": ("Frame",),
    "a2a_sync.client.tools": ("RemoteTool", "tool_name"),
}

__all__ = [
    "ApiKey",
    "CallOptions",
    "Chat",
    "Client",
    "ClientCredentials",
    "Frame",
    "RemoteTool",
    "Retry",
    "TaskStream",
    "Timeout",
    "tool_name",
]

__getattr__: Final = lazy_names(__name__, _MODULES)
