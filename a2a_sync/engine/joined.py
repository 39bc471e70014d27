"""The other processes that share this app's store: hearing of what they write, and taking over when they die.

Wires the hub and the runs of this process to hints, the poll under them, and leases. Where the store is not shared there
are no neighbours and nothing of this exists.
"""

from __future__ import annotations

from pathlib import Path

from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.leases import Leases
from a2a_sync.engine.pubsub import ChangePoll, Hints, hints_folder
from a2a_sync.engine.runs import Execution
from a2a_sync.limits import Limits
from a2a_sync.stores.base import Workers

#: How often the store is looked at while somebody waits, where processes cannot send each other hints. In seconds.
_WITHOUT_HINTS = 0.05


class Neighbours:
    """Starts its threads at the first `meet`, in the process that calls it; a forked child meets them anew."""

    def __init__(
        self, workers: Workers, hub: EventHub, execution: Execution, limits: Limits, *, folder: Path | None = None
    ) -> None:
        self._hub = hub
        self._execution = execution
        self._leases = Leases(workers, execution.take_over, beat=limits.worker_heartbeat_interval)
        self._hints = Hints(folder or hints_folder(workers.meeting_place), self._heard)
        self._net = self._poll(workers, limits.store_poll_interval)
        self._fast = self._poll(workers, _WITHOUT_HINTS)
        hub.tell_others = self._hints.tell
        execution.before_run = self.enter

    def _poll(self, workers: Workers, seconds: float) -> ChangePoll:
        return ChangePoll(workers.mark, self._hub.hint, lambda: self._hub.listened_to, seconds=seconds)

    def meet(self) -> None:
        """Hear the others and look after them from now on. Cheap when that has begun."""
        self._leases.watch()
        (self._net if self._hints.listen() else self._fast).watch()

    def enter(self) -> None:
        """Be known to them as alive: to be called before this process holds anything in the store.

        Raises:
            StoreError: the store cannot be written.
        """
        self._leases.enter()

    def _heard(self, task_id: str) -> None:
        self._hub.hint(task_id)
        self._execution.check(task_id)

    def resign(self) -> None:
        """Look after nobody any more, but stay alive. Idempotent."""
        self._leases.resign()

    def close(self) -> None:
        """Leave them: what this process still holds goes to another one. Idempotent."""
        self._net.close()
        self._fast.close()
        self._hints.close()
        self._leases.close()
