"""Whose turn it is: webhooks that are to be told something, in line by receiver, and those that are being told.

A receiver that hangs, or one with thousands of webhooks, holds up its own only: none has more than a quarter of the places,
those in trouble half of all together, and they take turns. Known to one thread only; how turns are taken is `outbox`'s business.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from a2a_sync import urls
from a2a_sync.stores.webhooks import StoredWebhook

_Key = tuple[str, str]

#: Receivers that are remembered to be in trouble.
_MOST_TROUBLED = 1000


class Line:
    """`places` turns are taken at once at most."""

    def __init__(self, places: int) -> None:
        self._places = places
        #: By receiver, the one that has waited longest for its next turn first.
        self._waiting: OrderedDict[str, OrderedDict[_Key, StoredWebhook]] = OrderedDict()
        self._origins: dict[_Key, str] = {}
        self._active: dict[_Key, str] = {}
        self._busy: Counter[str] = Counter()
        self._troubled: OrderedDict[str, None] = OrderedDict()

    @property
    def idle(self) -> bool:
        """Nobody is in line, nobody is told anything."""
        return not (self._active or self._origins)

    def active(self, webhook: StoredWebhook) -> bool:
        """It is being told something."""
        return _key(webhook) in self._active

    def add(self, webhook: StoredWebhook) -> None:
        """Put it in line, or let it keep its place there: what is new of it counts."""
        key, origin = _key(webhook), _origin(webhook)
        before = self._origins.get(key, origin)
        if before != origin:
            self._leave(key)
        self._origins[key] = origin
        self._waiting.setdefault(origin, OrderedDict())[key] = webhook

    def next(self) -> StoredWebhook | None:
        """Take the next one, which holds a place until `end`; None where no turn can begin now."""
        if len(self._active) >= self._places:
            return None
        origin = next(filter(self._may_begin, self._waiting), None)
        if origin is None:
            return None
        key, webhook = next(iter(self._waiting[origin].items()))
        self._waiting.move_to_end(origin)
        self._leave(key)
        self._active[key] = origin
        self._busy[origin] += 1
        return webhook

    def end(self, webhook: StoredWebhook, *, failed: bool) -> None:
        """Its turn is over. `failed`: its receiver is in trouble, until another turn there goes well."""
        origin = self._active.pop(_key(webhook))
        self._busy[origin] -= 1
        if not self._busy[origin]:
            del self._busy[origin]
        self._troubled.pop(origin, None)
        if failed:
            self._troubled[origin] = None
            if len(self._troubled) > _MOST_TROUBLED:
                self._troubled.popitem(last=False)

    def _leave(self, key: _Key) -> None:
        origin = self._origins.pop(key)
        line = self._waiting[origin]
        del line[key]
        if not line:
            del self._waiting[origin]

    def _may_begin(self, origin: str) -> bool:
        if origin not in self._troubled:
            return self._busy[origin] < max(1, self._places // 4)
        troubled = sum(count for known, count in self._busy.items() if known in self._troubled)
        return self._busy[origin] < 1 and troubled < max(1, self._places // 2)


def _key(webhook: StoredWebhook) -> _Key:
    return webhook.task_id, webhook.id


def _origin(webhook: StoredWebhook) -> str:
    return urls.parse(webhook.config.url).authority
