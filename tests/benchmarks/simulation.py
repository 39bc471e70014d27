"""Leases, messages and polls of very many processes as discrete events: no sockets, no threads, no clock but its own.

The rules are those of `engine.membership` and `engine.bridge`: each process renews its lease of two heartbeats and looks for one that is
over, once per heartbeat; each entry is one message to the processes that follow its task; a poll finds what messages have lost.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Times are in seconds.

    Parameters:
        processes: that share one database.
        beat, poll: `Limits.worker_heartbeat_interval` and `Limits.store_poll_interval`.
        dying: the share of processes that die, all at one moment: a rack without power.
        appends: entries per second that each process stores for a follower in another process.
        loss: the share of messages that are lost.
        seconds: the simulated time.
    """

    processes: int
    beat: float = 2.0
    poll: float = 5.0
    dying: float = 0.01
    appends: float = 1.0
    loss: float = 0.01
    seconds: float = 30.0


@dataclass
class Outcome:
    """What was counted. Delays are in seconds."""

    setup: Setup
    #: Statements for heartbeats, looks, claims and polls.
    statements: int = 0
    claims: int = 0
    #: Messages that were sent, and those that a process received.
    sent: int = 0
    received: int = 0
    take_overs: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    @property
    def statements_per_process(self) -> float:
        """Per second."""
        return self.statements / self.setup.processes / self.setup.seconds

    @property
    def messages_per_append(self) -> float:
        return self.received / max(1, self.sent)

    def row(self) -> str:
        """A row of the table in docs/explanation/scale.md."""
        return (
            f"| {self.setup.processes:,} | {self.statements / self.setup.seconds:,.0f} | {self.statements_per_process:.2f}"
            f" | {self.messages_per_append:.2f} | {statistics.median(self.take_overs):.1f} s | {max(self.take_overs):.1f} s"
            f" | {max(self.delays):.1f} s |"
        )


class Simulation:
    """One run of `Setup`; `run` returns what was counted. The same seed gives the same result."""

    #: Seconds for one message through Redis, and for one statement.
    MESSAGE, STATEMENT = 0.002, 0.002

    def __init__(self, setup: Setup, seed: int = 1) -> None:
        self._setup = setup
        self._random = random.Random(seed)
        self._outcome = Outcome(setup)
        self._now = 0.0
        self._queue: list[tuple[float, int, str, int]] = []
        self._order = 0
        #: The end of the lease of each process in the database; and the index on it.
        self._until: dict[int, float] = {}
        self._leases: list[tuple[float, int]] = []
        self._dead: set[int] = set()
        #: Per process: when entries were stored that its streams have not seen, because their messages were lost.
        self._missed: dict[int, deque[float]] = {}
        self._died_at = setup.seconds / 3

    def run(self) -> Outcome:
        """Simulate all of `Setup.seconds`."""
        setup = self._setup
        for process in range(setup.processes):
            self._at(self._random.uniform(0, setup.beat), "beat", process)
            self._at(self._random.uniform(0, setup.beat), "look", process)
            self._at(self._random.uniform(0, setup.poll), "poll", process)
            self._at(self._random.expovariate(setup.appends), "append", process)
        self._at(self._died_at, "die", -1)
        while self._queue:
            self._now, _, kind, process = heapq.heappop(self._queue)
            if self._now > setup.seconds:
                break
            if process not in self._dead:
                getattr(self, f"_{kind}")(process)
        return self._outcome

    def _at(self, when: float, kind: str, process: int) -> None:
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, kind, process))

    # -- leases --

    def _beat(self, process: int) -> None:
        self._outcome.statements += 1
        self._lease(process, self._now + 2 * self._setup.beat)
        self._at(self._now + self._setup.beat, "beat", process)

    def _lease(self, process: int, until: float) -> None:
        self._until[process] = until
        heapq.heappush(self._leases, (until, process))

    def _look(self, process: int) -> None:
        """Claim dead workers one by one until the index shows none."""
        pause = self._setup.beat
        self._outcome.statements += 1
        if (found := self._expired()) is not None:
            self._outcome.claims += 1
            # The runs of the dead worker are read and adopted, and its row is deleted.
            self._outcome.statements += 3
            self._outcome.take_overs.append(self._now - self._died_at + 4 * self.STATEMENT)
            del self._until[found]
            pause = 4 * self.STATEMENT
        self._at(self._now + pause, "look", process)

    def _expired(self) -> int | None:
        while self._leases and self._leases[0][0] < self._now:
            until, process = heapq.heappop(self._leases)
            if self._until.get(process) == until:
                return process
        return None

    def _die(self, _: int) -> None:
        count = max(1, round(self._setup.processes * self._setup.dying))
        self._dead.update(self._random.sample(range(self._setup.processes), count))

    # -- messages and polls --

    def _append(self, process: int) -> None:
        """An entry of a run here, whose task one other process follows."""
        follower = self._random.randrange(self._setup.processes)
        self._outcome.sent += 1
        if self._random.random() < self._setup.loss:
            self._missed.setdefault(follower, deque()).append(self._now)
        else:
            self._outcome.received += 1
            self._outcome.delays.append(self.MESSAGE + self.STATEMENT)
        self._at(self._now + self._random.expovariate(self._setup.appends), "append", process)

    def _poll(self, process: int) -> None:
        """One statement reads the versions of all tasks that are followed here; another one the webhooks that are due."""
        self._outcome.statements += 2
        missed = self._missed.pop(process, ())
        self._outcome.delays.extend(self._now - at + self.STATEMENT for at in missed)
        self._at(self._now + self._setup.poll, "poll", process)
