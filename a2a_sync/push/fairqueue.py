"""The order of deliveries to webhooks: fair between the owners of tasks, then between the receivers of one owner.

An owner has a fair share of the deliveries at once, a receiver a quarter of them. Receivers that have never accepted a notification of
an owner, or did not accept the last one, may hang: each gets one delivery at once, all those of an owner an eighth of the slots, and
those of all owners half of them, of which at most a quarter of the slots is for receivers that never accepted one. So neither a receiver
that hangs nor an owner with thousands of webhooks at as many host names delays the others. A bounded number of webhooks of each owner
waits here. For one thread only; `outbox` delivers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.operations import quota_owner
from a2a_sync.stores.base import StoredWebhook

_Key = tuple[str, str]

#: Owners whose receivers are remembered, and receivers of each.
_MAX_OWNERS = 1000
_MAX_RECEIVERS = 100
#: Webhooks of one owner that wait in memory; the store has the others.
_MAX_WAITING = 1000


class _Turn(NamedTuple):
    """A delivery in progress. ``unreliable``: its receiver did not accept the last one; ``new``: it never accepted one."""

    owner: str
    origin: str
    unreliable: bool
    new: bool


class FairQueue:
    """Webhooks that wait for a delivery, at most `slots` of them at once."""

    def __init__(self, slots: int, quotas: Quotas) -> None:
        self._slots = slots
        self._quotas = quotas
        self._share = quotas.share(slots, quotas.quota.max_concurrent_deliveries)
        #: By owner and receiver, each ordered by the time since its last delivery, the longest first.
        self._waiting: OrderedDict[str, OrderedDict[str, OrderedDict[_Key, StoredWebhook]]] = OrderedDict()
        self._owner_and_origin: dict[_Key, tuple[str, str]] = {}
        self._waiting_of: Counter[str] = Counter()
        #: Owners with more webhooks than wait here.
        self._left_out: set[str] = set()
        self._active: dict[_Key, _Turn] = {}
        self._busy: Counter[str] = Counter()
        self._new = 0
        self._unreliable = 0
        self._unreliable_of: Counter[str] = Counter()
        #: By owner: whether a receiver accepted the last notification.
        self._accepted: OrderedDict[str, OrderedDict[str, bool]] = OrderedDict()

    @property
    def idle(self) -> bool:
        """No webhook waits, and there is no delivery in progress."""
        return not (self._active or self._owner_and_origin)

    def active(self, webhook: StoredWebhook) -> bool:
        """A delivery to the webhook is in progress."""
        return _key(webhook) in self._active

    def add(self, webhook: StoredWebhook) -> None:
        """Add a webhook; one that waits already keeps its position and is updated. One too many is left out: see `wants_more`."""
        key, where = _key(webhook), (quota_owner(webhook.owner.id), _origin(webhook))
        owner, origin = where
        if key in self._owner_and_origin and self._owner_and_origin[key] != where:
            self._remove(key)
        if key not in self._owner_and_origin:
            if self._waiting_of[owner] >= _MAX_WAITING:
                self._left_out.add(owner)
                return
            self._waiting_of[owner] += 1
        self._owner_and_origin[key] = where
        self._waiting.setdefault(owner, OrderedDict()).setdefault(origin, OrderedDict())[key] = webhook

    def wants_more(self) -> bool:
        """Few webhooks of an owner wait, and some were left out: those that are due should be read from the store. True once."""
        short = {owner for owner in self._left_out if self._waiting_of[owner] < _MAX_WAITING // 2}
        self._left_out -= short
        return bool(short)

    def next(self) -> StoredWebhook | None:
        """Take the next webhook, which holds a slot until `end`; None where no delivery can begin now."""
        if len(self._active) >= self._slots:
            return None
        for owner, receivers in self._waiting.items():
            turn = self._next_of(owner, receivers)
            if turn is not None:
                return self._begin(turn)
        return None

    def _next_of(self, owner: str, receivers: OrderedDict[str, OrderedDict[_Key, StoredWebhook]]) -> _Turn | None:
        if not self._share.admits(owner):
            return None
        accepted: Mapping[str, bool] = self._accepted.get(owner, {})
        for origin in receivers:
            last = accepted.get(origin)
            turn = _Turn(owner, origin, not last, last is None)
            if self._may_begin(turn):
                return turn
        return None

    def _may_begin(self, turn: _Turn) -> bool:
        if not turn.unreliable:
            return self._busy[turn.origin] < self._slots_of(4)
        known = turn.owner or self._quotas.several
        return (
            self._busy[turn.origin] < 1
            and self._unreliable < self._slots_of(2)
            and (not known or self._unreliable_of[turn.owner] < self._slots_of(8))
            and not (turn.new and known and self._new >= self._slots_of(4))
        )

    def _slots_of(self, divisor: int) -> int:
        return max(1, self._slots // divisor)

    def _begin(self, turn: _Turn) -> StoredWebhook:
        receivers = self._waiting[turn.owner]
        key, webhook = next(iter(receivers[turn.origin].items()))
        receivers.move_to_end(turn.origin)
        self._waiting.move_to_end(turn.owner)
        self._remove(key)
        self._active[key] = turn
        self._count(turn, 1)
        self._share.take(turn.owner)
        return webhook

    def _count(self, turn: _Turn, change: int) -> None:
        self._busy[turn.origin] += change
        self._new += change * turn.new
        self._unreliable += change * turn.unreliable
        self._unreliable_of[turn.owner] += change * turn.unreliable

    def end(self, webhook: StoredWebhook, *, accepted: bool | None) -> None:
        """End a delivery. `accepted`: whether its receiver accepted the notification; None where nothing was posted."""
        turn = self._active.pop(_key(webhook))
        self._count(turn, -1)
        self._share.release(turn.owner)
        if not self._busy[turn.origin]:
            del self._busy[turn.origin]
        if not self._unreliable_of[turn.owner]:
            del self._unreliable_of[turn.owner]
        if accepted is not None:
            self._remember(turn, accepted)

    def _remember(self, turn: _Turn, accepted: bool) -> None:
        receivers = self._accepted.setdefault(turn.owner, OrderedDict())
        receivers[turn.origin] = accepted
        receivers.move_to_end(turn.origin)
        self._accepted.move_to_end(turn.owner)
        # An owner with many host names displaces only receivers of its own.
        if len(receivers) > _MAX_RECEIVERS:
            receivers.popitem(last=False)
        if len(self._accepted) > _MAX_OWNERS:
            self._accepted.popitem(last=False)

    def _remove(self, key: _Key) -> None:
        owner, origin = self._owner_and_origin.pop(key)
        self._waiting_of[owner] -= 1
        if not self._waiting_of[owner]:
            del self._waiting_of[owner]
        receivers = self._waiting[owner]
        del receivers[origin][key]
        if not receivers[origin]:
            del receivers[origin]
        if not receivers:
            del self._waiting[owner]


def _key(webhook: StoredWebhook) -> _Key:
    return webhook.task_id, webhook.id


def _origin(webhook: StoredWebhook) -> str:
    return urlsplit(webhook.config.url).netloc.rpartition("@")[2].lower()
