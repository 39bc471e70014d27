"""How an app sends push notifications: which URLs, signed by which key, delivered by what, within which limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING

from a2a_sync.lazymodule import LazyModule
from a2a_sync.limits import check_numbers
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.push.notification import PushSender

if TYPE_CHECKING:
    from a2a_sync import signing
else:
    signing = LazyModule("a2a_sync.signing")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """How an app sends push notifications. Times are in seconds, sizes in bytes; the numbers apply to each process.

    Parameters:
        url_guard: checks the URLs that clients set; the default refuses all private networks.
        signer: signs each notification; its public key is then in the key set that the app serves at
            ``/.well-known/jwks.json``.
        sender: delivers each notification in place of the POST of this library: a function that takes a `PushRequest`.
            It is called on a delivery thread, for one webhook in the order of its events. When it returns, the
            notification counts as delivered; an exception means a retry, with the same backoff as after a failed POST.
            A `PushRefusedError` gives a reason, a time for the next attempt, or ends the attempts. The sender should
            respect ``request.timeout``. `url_guard` still checks the URL when a webhook is set; if the sender connects
            to the URL, it has to check the address itself.
        max_configs: webhooks of one task.
        max_payload_bytes: largest notification; a larger one is replaced by its task without artifacts and history, as is any task of
            which more than twice as many bytes are stored.
        timeout: how long a receiver may take to accept the connection, to read the notification, and to answer; each.
        max_concurrent_deliveries: webhooks that a process posts to at once. One receiver gets a quarter of them at
            most. Receivers that have just failed or are new share half of them; of this half, each owner gets an eighth
            and each receiver one.
        max_attempts: attempts to deliver one notification; after the last its webhook is disabled.
        initial_backoff: wait after the first failure; it doubles after each further one.
        max_backoff: longest wait between two attempts, even if a receiver asks for a longer one.

    Raises:
        TypeError: `sender` is no function, or one that is ``async def``.
        ValueError: a number that is not positive.
    """

    url_guard: URLGuard = field(default_factory=URLGuard)
    signer: signing.NotificationSigner | None = None
    sender: PushSender | None = None
    max_configs: int = 10
    max_payload_bytes: int = 4 * 1024 * 1024
    timeout: float = 15.0
    max_concurrent_deliveries: int = 16
    max_attempts: int = 15
    initial_backoff: float = 1.0
    max_backoff: float = 1800.0

    def __post_init__(self) -> None:
        sender = self.sender
        if sender is not None and (not callable(sender) or isinstance(sender, type) or _asynchronous(sender)):
            raise TypeError("sender takes a function of a PushRequest that is not async def")
        check_numbers(self)


def _asynchronous(function: Callable[..., object]) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)
