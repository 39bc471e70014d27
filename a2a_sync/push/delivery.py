"""Delivers the pending notifications of one webhook in order, each until its receiver has accepted it.

After each post the cursor of the webhook is stored, so that another process continues there after this one has died. `outbox`
decides when this happens, and on which thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from traceback import format_tb
from typing import Final, NamedTuple

from a2a_sync import urls
from a2a_sync.bindings.headers import NOTIFICATION_ID, NOTIFICATION_SIGNATURE
from a2a_sync.errors import TaskNotFoundError, UnsafeURLError
from a2a_sync.outbound.http import NoResponseError, Outbound, retry_after
from a2a_sync.push.notification import Notification, Notifications, PushRefusedError, PushRequest, PushSender, headers
from a2a_sync.push.options import PushOptions
from a2a_sync.stores.base import LOG_PAGE_BYTES, LogPage, StoredWebhook, TaskStore, Webhooks
from a2a_sync.stores.largereads import LargeReads
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: A turn of a webhook ends after so many seconds, so that other webhooks get theirs.
_MAX_TURN_SECONDS = 5.0
_PAGE = 100
#: Of a response only the status counts.
_MAX_ANSWER_BYTES = 16 * 1024
#: The reason that the owner of a webhook sees when no connection was possible: more would reveal the server's network.
NO_ANSWER = "no answer"
#: When to retry after a fault of the store, in seconds.
_AFTER_FAULT = 5.0


class Turn(NamedTuple):
    """How a turn ended: when the next one is due, in seconds (None: after the next entry).

    ``accepted``: whether the receiver accepted the last post; None where nothing was posted.
    """

    retry_in: float | None = None
    accepted: bool | None = None


class _Refusal(NamedTuple):
    """Why a receiver did not accept a notification. ``final``: it never will; ``hint`` is for operators.

    ``public_reason`` is what the owner of the webhook may know: nothing of the network around this server.
    """

    reason: str
    public_reason: str
    retry_after: float = 0.0
    final: bool = False
    hint: str = ""


def public_error(error: str) -> str:
    """`StoredWebhook.error` as the owner of the webhook may know it."""
    return NO_ANSWER if error.startswith(NO_ANSWER) else error


@dataclass(eq=False, repr=False)
class Delivery:
    """Delivers to `webhooks`, which are those of `store`. Thread-safe.

    `count` is called with the outcome of each post: ``delivered``, ``failed`` or ``disabled``.
    """

    store: TaskStore
    webhooks: Webhooks
    options: PushOptions
    _: KW_ONLY
    reads: InitVar[LargeReads]
    max_history_length: InitVar[int]
    count: InitVar[Callable[[str], None] | None] = None

    def __post_init__(self, reads: LargeReads, max_history_length: int, count: Callable[[str], None] | None) -> None:
        options = self.options
        self._count = count or (lambda outcome: None)
        self._outbound = Outbound(options.url_guard)
        self._sign = options.signer.token if options.signer is not None else None
        self._notifications = Notifications(
            self.store, reads, max_bytes=options.max_payload_bytes, history=max_history_length
        )

    def deliver(self, webhook: StoredWebhook, holder: str, *, stop: Callable[[], bool]) -> Turn:
        """Claim a webhook and post its pending notifications, until none is left, a post fails or time is up.

        Raises nothing. Once ``stop()`` is true the store is not used any more.
        """
        held: StoredWebhook | None = None
        try:
            if stop():
                return Turn()
            held = self.webhooks.claim(webhook, holder)
            return Turn() if held is None else self._deliver_pending(held, stop)
        except TaskNotFoundError:
            return Turn()
        except Exception:
            logger.exception("a webhook could not be delivered to; it is retried", extra={"task_id": webhook.task_id})
            return Turn(_AFTER_FAULT)

    def _deliver_pending(self, held: StoredWebhook, stop: Callable[[], bool]) -> Turn:
        until = time.monotonic() + _MAX_TURN_SECONDS
        accepted: bool | None = None
        while True:
            # A new webhook gets the task: the entries that have led to it are not read.
            limit = _PAGE if held.cursor >= 0 else 0
            page = self.store.log(
                held.owner, held.task_id, after=max(held.cursor, 0), limit=limit, max_bytes=LOG_PAGE_BYTES
            )
            for number, body in self._pending(held, page):
                refusal = self._post(held, number, body) if body is not None else None
                if body is not None:
                    accepted = refusal is None
                if stop():
                    return Turn()
                if refusal is not None:
                    return self._retry_later(held, refusal)
                held = replace(held, cursor=number, tries=0, due_ms=0)
                if number >= page.version:
                    break
                if time.monotonic() > until:
                    self.webhooks.settle(held, release=True)
                    return Turn(0.0, accepted)
                if body is not None and not self.webhooks.settle(held):
                    return Turn(0.0, accepted)
            if held.cursor >= page.version:
                # A webhook that was set again, or newer entries, are for another turn.
                return Turn(None if self.webhooks.settle(held, release=True) else 0.0, accepted)

    def _pending(self, held: StoredWebhook, page: LogPage) -> Iterator[Notification]:
        """The pending notifications, in order: the entries of the log, or the task where these were compacted away."""
        if held.cursor < 0 or held.cursor < page.compacted:
            yield self._notifications.of_task(held, page.version)
        else:
            for entry in page.entries:
                yield self._notifications.of_entry(held, entry)

    # -- one post --

    def _post(self, held: StoredWebhook, number: int, body: bytes) -> _Refusal | None:
        """Post a notification; the reason where it was not accepted."""
        if self.options.sender is not None:
            return self._call_sender(self.options.sender, held, number, body)
        try:
            answer = self._outbound.request(
                "POST",
                held.config.url,
                headers=self._headers(held, number, body),
                body=body,
                timeout=self.options.timeout,
                max_bytes=_MAX_ANSWER_BYTES,
            )
        except UnsafeURLError as refused:
            return _Refusal(f"the URL {refused}", NO_ANSWER, hint=refused.hint)
        except NoResponseError as error:
            return _Refusal(str(error), NO_ANSWER)
        if 200 <= answer.status < 300:
            self._count("delivered")
            return None
        wait = retry_after(answer.headers) or 0.0
        status = f"HTTP {answer.status}"
        return _Refusal(status, status, wait, final=answer.status == 410)

    def _call_sender(self, sender: PushSender, held: StoredWebhook, number: int, body: bytes) -> _Refusal | None:
        """Pass a notification to the sender of the app; the reason where that failed."""
        request = PushRequest(
            task_id=held.task_id,
            config=held.config,
            headers=self._headers(held, number, body),
            body=body,
            timeout=self.options.timeout,
        )
        try:
            sender(request)
        except PushRefusedError as refused:
            return _Refusal(refused.reason, refused.reason, refused.retry_after, final=refused.permanent)
        except Exception as error:
            # Without the exception's text: HTTP clients show URLs there, which can hold secrets.
            raised, frames = type(error).__name__, "".join(format_tb(error.__traceback__))
            logger.warning("the push sender raised %s\n%s", raised, frames, extra={"task_id": held.task_id})
            return _Refusal(f"the sender raised {raised}", NO_ANSWER)
        self._count("delivered")
        return None

    def _headers(self, held: StoredWebhook, number: int, body: bytes) -> dict[str, str]:
        written = headers(held, number)
        if self._sign is not None:
            token = self._sign(held.config.url, written[NOTIFICATION_ID], body)
            written[NOTIFICATION_SIGNATURE] = token
            # Receivers look there too, where the webhook has no credentials of its own.
            written.setdefault("Authorization", f"Bearer {token}")
        return written

    def _retry_later(self, held: StoredWebhook, refusal: _Refusal) -> Turn:
        """Schedule a retry after a failure, or disable the webhook."""
        now_ms = time.time_ns() // 1_000_000
        tries = held.tries + 1
        seen = refusal.reason + (refusal.hint and f" ({refusal.hint})")
        error = seen if refusal.public_reason == refusal.reason else f"{refusal.public_reason}: {seen}"
        held = replace(held, tries=tries, error=error, error_ms=now_ms)
        if refusal.final or tries >= self.options.max_attempts:
            reason = f"{refusal.public_reason} ({tries} tries)" if tries > 1 else refusal.public_reason
            return self._disable(replace(held, disabled=reason), seen)
        pause = _backoff(tries, refusal.retry_after, self.options)
        due_ms = now_ms + int(pause * 1000)
        if not self.webhooks.settle(replace(held, due_ms=due_ms), release=True):
            return Turn(0.0, False)  # it was set again meanwhile
        logger.warning(
            "webhook %s at %s did not accept a notification: %s; retry in %.0f s",
            *(held.id, _origin(held.config.url), seen, pause),
            extra={"task_id": held.task_id},
        )
        self._count("failed")
        return Turn(pause, False)

    def _disable(self, held: StoredWebhook, seen: str) -> Turn:
        if not self.webhooks.settle(held, release=True):
            return Turn(0.0, False)
        where = held.id, _origin(held.config.url)
        extra = {"task_id": held.task_id}
        logger.error("webhook %s at %s is disabled: %s after %d attempts", *where, seen, held.tries, extra=extra)
        self._count("disabled")
        return Turn(accepted=False)


def _backoff(tries: int, retry_after: float, options: PushOptions) -> float:
    """Exponential backoff with jitter after so many failures, and at least what the receiver asks for."""
    longest = options.max_backoff
    pause = min(longest, options.initial_backoff * 2.0 ** min(tries - 1, 60))
    return float(min(longest, max(pause * random.uniform(0.5, 1.0), retry_after)))


def _origin(url: str) -> str:
    """The part of a URL that may be logged: paths and queries can hold secrets."""
    read = urls.parse(url)
    return f"{read.scheme}://{read.authority}"
