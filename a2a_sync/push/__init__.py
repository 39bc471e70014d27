"""Push notifications: the events of a task are posted to the webhooks of its clients (spec 3.5.3, 4.3, 13.2).

``A2AApp(agent, push=True)`` switches them on; a `PushOptions` sets how.
"""

from __future__ import annotations

from a2a_sync.push.notification import PushRefusedError, PushRequest, PushSender
from a2a_sync.push.options import PushOptions

__all__ = ["PushOptions", "PushRefusedError", "PushRequest", "PushSender"]
