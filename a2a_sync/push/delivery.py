"""One webhook's turn: what it was not told of yet is posted to it in order, each entry until its receiver has taken it.

After each post the store is told how far the webhook has got, so that whoever goes on after this process has died goes on
there. When turns are taken, and on what thread, is `outbox`'s business.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from traceback import format_tb
from typing import NamedTuple

from a2a_sync import urls
from a2a_sync.bindings.headers import NOTIFICATION_ID, NOTIFICATION_SIGNATURE
from a2a_sync.errors import TaskNotFoundError, UnsafeURLError
from a2a_sync.limits import Limits
from a2a_sync.outbound.http import NoAnswer, Outbound
from a2a_sync.push.notification import Notification, Notifications, PushRefusedError, PushRequest, PushSender, headers
from a2a_sync.stores.base import LOG_PAGE_BYTES, LogPage, TaskStore
from a2a_sync.stores.webhooks import StoredWebhook
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: A turn is over after so many seconds, so that others get theirs.
_TURN = 5.0
_PAGE = 100
#: Of an answer nothing counts but its status.
_MOST_ANSWER = 16 * 1024
#: What is shown of a receiver that could not be called, for whatever reason: more would map the server's network.
_NO_ANSWER = "no answer"
#: When to go on after a fault of the store, in seconds.
_AFTER_FAULT = 5.0


class Turn(NamedTuple):
    """How a turn ended: when the next one is due, in seconds (None: when something happens).

    ``took``: whether the receiver took what was posted last; None where nothing was posted.
    """

    again: float | None = None
    took: bool | None = None


class _Refusal(NamedTuple):
    """Why a receiver did not take a notification. ``final``: it never will; ``hint`` is for the operator's log.

    ``shown`` is what the owner of the webhook may know: not what the network around this server is like.
    """

    reason: str
    shown: str
    retry_after: float = 0.0
    final: bool = False
    hint: str = ""


class Delivery:
    """Takes the turns of the webhooks in `store`. Safe from many threads.

    `sign` makes a token from a URL, the id of a notification and its body. `sender` delivers in place of `outbound`. `count` is called with what became of each post.
    """

    def __init__(
        self,
        store: TaskStore,
        outbound: Outbound,
        limits: Limits,
        *,
        sign: Callable[[str, str, bytes], str] | None = None,
        sender: PushSender | None = None,
        count: Callable[[str], None] | None = None,
    ) -> None:
        self._store = store
        self._webhooks = store.webhooks
        self._outbound = outbound
        self._limits = limits
        self._sign = sign
        self._sender = sender
        self._count = count or (lambda outcome: None)
        self._notifications = Notifications(store, most=limits.push_payload, history=limits.max_history_length)

    def take_turn(self, webhook: StoredWebhook, holder: str, *, stop: Callable[[], bool]) -> Turn:
        """Claim a webhook and post to it what there is, until nothing is left, a post fails or time is up.

        Lets no exception out. Once `stop` says so the store is not asked any more.
        """
        held: StoredWebhook | None = None
        try:
            if stop():
                return Turn()
            held = self._webhooks.claim(webhook, holder)
            return Turn() if held is None else self._go_on(held, stop)
        except TaskNotFoundError:
            return Turn()
        except Exception:
            logger.exception("a webhook could not be told; it is tried again", extra={"task_id": webhook.task_id})
            return Turn(_AFTER_FAULT)

    def _go_on(self, held: StoredWebhook, stop: Callable[[], bool]) -> Turn:
        until = time.monotonic() + _TURN
        took: bool | None = None
        while True:
            page = self._store.log(
                held.scope, held.task_id, after=max(held.cursor, 0), limit=_PAGE, max_bytes=LOG_PAGE_BYTES
            )
            for number, body in self._told(held, page):
                refusal = self._post(held, number, body) if body is not None else None
                if body is not None:
                    took = refusal is None
                if stop():
                    return Turn()
                if refusal is not None:
                    return self._put_off(held, refusal)
                held = replace(held, cursor=number, tries=0, due_ms=0)
                if number >= page.version:
                    break
                if time.monotonic() > until:
                    self._webhooks.settle(held, release=True)
                    return Turn(0.0, took)
                if body is not None and not self._webhooks.settle(held):
                    return Turn(0.0, took)
            if held.cursor >= page.version:
                # What was set again, or came meanwhile, is another turn's.
                return Turn(None if self._webhooks.settle(held, release=True) else 0.0, took)

    def _told(self, held: StoredWebhook, page: LogPage) -> Iterator[Notification]:
        """What is to be posted, in order: what the log has, or the task where the log has it no more."""
        if held.cursor < 0 or held.cursor < page.compacted:
            yield self._notifications.of_task(held)
        else:
            for entry in page.entries:
                yield self._notifications.of_entry(held, entry)

    # -- one post --

    def _post(self, held: StoredWebhook, number: int, body: bytes) -> _Refusal | None:
        """Post it; why it was not taken, if it was not."""
        if self._sender is not None:
            return self._hand_over(self._sender, held, number, body)
        try:
            answer = self._outbound.request(
                "POST",
                held.config.url,
                headers=self._headers(held, number, body),
                body=body,
                timeout=self._limits.push_timeout,
                most=_MOST_ANSWER,
            )
        except UnsafeURLError as refused:
            return _Refusal(f"the URL {refused}", _NO_ANSWER, hint=refused.hint)
        except NoAnswer as error:
            return _Refusal(str(error), _NO_ANSWER)
        if 200 <= answer.status < 300:
            self._count("delivered")
            return None
        wait = _seconds(answer.headers.get("Retry-After", ""))
        said = f"HTTP {answer.status}"
        return _Refusal(said, said, wait, final=answer.status == 410)

    def _hand_over(self, sender: PushSender, held: StoredWebhook, number: int, body: bytes) -> _Refusal | None:
        """Give it to the sender of the app; why that failed, if it did."""
        request = PushRequest(
            task_id=held.task_id,
            config=held.config,
            headers=self._headers(held, number, body),
            body=body,
            timeout=self._limits.push_timeout,
        )
        try:
            sender(request)
        except PushRefusedError as refused:
            return _Refusal(refused.reason, refused.reason, refused.retry_after, final=refused.permanent)
        except Exception as error:
            # Without the exception's text: those of HTTP clients show URLs, which can hold secrets.
            raised, frames = type(error).__name__, "".join(format_tb(error.__traceback__))
            logger.warning("the push sender raised %s\n%s", raised, frames, extra={"task_id": held.task_id})
            return _Refusal(f"the sender raised {raised}", _NO_ANSWER)
        self._count("delivered")
        return None

    def _headers(self, held: StoredWebhook, number: int, body: bytes) -> dict[str, str]:
        written = headers(held, number)
        if self._sign is not None:
            token = self._sign(held.config.url, written[NOTIFICATION_ID], body)
            written[NOTIFICATION_SIGNATURE] = token
            # Where the webhook asks for no credentials of its own, it is there too that receivers look.
            written.setdefault("Authorization", f"Bearer {token}")
        return written

    def _put_off(self, held: StoredWebhook, refusal: _Refusal) -> Turn:
        """Try again later, or never."""
        tries = held.tries + 1
        where = {"task_id": held.task_id}
        seen = refusal.reason + (refusal.hint and f" ({refusal.hint})")
        what = (held.id, _origin(held.config.url), seen)
        if refusal.final or tries >= self._limits.push_attempts:
            reason = f"{refusal.shown} ({tries} tries)" if tries > 1 else refusal.shown
            if not self._webhooks.settle(replace(held, tries=tries, disabled=reason), release=True):
                return Turn(0.0, False)
            logger.error("webhook %s at %s is disabled: %s after %d tries", *what, tries, extra=where)
            self._count("disabled")
            return Turn(took=False)
        pause = _pause(tries, refusal.retry_after, self._limits)
        due_ms = time.time_ns() // 1_000_000 + int(pause * 1000)
        if not self._webhooks.settle(replace(held, tries=tries, due_ms=due_ms), release=True):
            return Turn(0.0, False)  # it was set again
        logger.warning("webhook %s at %s was not told: %s; again in %.0f s", *what, pause, extra=where)
        self._count("failed")
        return Turn(pause, False)


def _pause(tries: int, retry_after: float, limits: Limits) -> float:
    """How long to wait after so many failures: twice as long each time, give or take, and as long as the receiver wants."""
    longest = limits.push_longest_pause
    pause = min(longest, limits.push_pause * 2.0 ** min(tries - 1, 60))
    return float(min(longest, max(pause * random.uniform(0.5, 1.0), retry_after)))


def _seconds(value: str) -> float:
    """What a Retry-After asks for; 0 where it asks for nothing that can be understood."""
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _origin(url: str) -> str:
    """What may be logged of a URL: paths and queries hold secrets."""
    read = urls.parse(url)
    return f"{read.scheme}://{read.authority}"
