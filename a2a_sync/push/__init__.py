"""Push notifications: what happens to a task is posted to the webhooks of its clients (spec 3.5.3, 4.3, 13.2).

``A2AApp(agent, push=True)`` switches them on; a `PushOptions` says how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING

from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.hub import EventHub
from a2a_sync.lazymodule import LazyModule
from a2a_sync.limits import Limits
from a2a_sync.outbound.http import Outbound
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.push.configs import PushConfigs
from a2a_sync.push.delivery import Delivery
from a2a_sync.push.notification import PushRefusedError, PushRequest, PushSender
from a2a_sync.push.outbox import Outbox
from a2a_sync.stores.base import TaskStore

if TYPE_CHECKING:
    from a2a_sync import signing
else:
    signing = LazyModule("a2a_sync.signing")

__all__ = ["PushOptions", "PushRefusedError", "PushRequest", "PushSender"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """How an app sends push notifications.

    Parameters:
        url_guard: judges the URLs that clients give; the default refuses everything in private networks.
        signer: signs each notification; its public key is then in the key set that the app serves at
            ``/.well-known/jwks.json``.
        sender: delivers each notification in place of the POST of this library: a function that takes a `PushRequest`. It
            is called on a delivery thread, for one webhook in the order of its events. Once it returns the notification
            counts as delivered; an exception means a retry, with the same backoff as a failed POST. A `PushRefusedError`
            gives a reason, a time for the next attempt, or ends the attempts. It should keep to
            ``request.timeout``. `url_guard` still judges the URL when a webhook is set; where the sender connects to it,
            the address it connects to is the sender's to check.

    Raises:
        TypeError: `sender` is no function, or one that is ``async def``.
    """

    url_guard: URLGuard = field(default_factory=URLGuard)
    signer: signing.NotificationSigner | None = None
    sender: PushSender | None = None

    def __post_init__(self) -> None:
        sender = self.sender
        if sender is not None and (not callable(sender) or isinstance(sender, type) or _asynchronous(sender)):
            raise TypeError("sender takes a function of a PushRequest that is not async def")

    def outbox(
        self,
        store: TaskStore,
        hub: EventHub,
        limits: Limits,
        quotas: Quotas,
        *,
        enter: Callable[[], None] | None = None,
        count: Callable[[str], None] | None = None,
    ) -> Outbox:
        """What tells the webhooks of a store's tasks; see `Outbox` and `Delivery`."""
        sign = self.signer.token if self.signer is not None else None
        delivery = Delivery(store, Outbound(self.url_guard), limits, sign=sign, sender=self.sender, count=count)
        return Outbox(store, hub, delivery, limits, quotas, enter=enter)

    def configs(self, store: TaskStore, limits: Limits, outbox: Outbox) -> PushConfigs:
        """The operations on them."""
        return PushConfigs(store.webhooks, self.url_guard, limits, on_set=outbox.follow)


def _asynchronous(function: Callable[..., object]) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)
