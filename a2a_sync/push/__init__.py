"""Push notifications: what happens to a task is posted to the webhooks of its clients (spec 3.5.3, 4.3, 13.2).

``A2AApp(agent, push=True)`` switches them on; a `PushNotifications` says how.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from a2a_sync.urlguard import URLGuard

__all__ = ["PushNotifications"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushNotifications:
    """How an app sends push notifications.

    `guard` judges the URLs that clients give; the default refuses everything in private networks.
    """

    guard: URLGuard = field(default_factory=URLGuard)
