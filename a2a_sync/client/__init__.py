"""The client half: call an agent over the network or in this process.

Nothing of the server half is loaded here, and requests only with the first client that has a URL.
"""

from a2a_sync.client.chat import Chat
from a2a_sync.client.client import Client
from a2a_sync.client.deadlines import Timeout
from a2a_sync.client.link import CallOptions
from a2a_sync.client.retry import Retry
from a2a_sync.client.stream import TaskStream

__all__ = ["CallOptions", "Chat", "Client", "Retry", "TaskStream", "Timeout"]
