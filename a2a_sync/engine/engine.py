"""The engine: everything that serves the tasks of one store in one process, but for HTTP, cards and operations."""

from __future__ import annotations

from typing import Final

from a2a_sync.agent.spec import AgentSpec
from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.bridge import ProcessBridge
from a2a_sync.engine.components import Component, Components
from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.jobs import JobQueue
from a2a_sync.engine.membership import WorkerMembership
from a2a_sync.engine.retention import Sweeper
from a2a_sync.engine.runs import RunManager
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.operations import mount_name
from a2a_sync.stores import open_pubsub, open_store
from a2a_sync.stores.base import Owner, PubSub, TaskStore
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)


class Engine(Components):
    """Runs the tasks of `store`, a `TaskStore` or a URL; a store that was passed as an object stays open after `close`.

    What works on the same tasks, such as push notifications, is added as a further component. Nothing is started or opened
    before `start`.

    Parameters:
        store: holds the tasks; None: memory.
        limits: bounds the runs.
        quota: what one owner may take.
        pubsub: carries messages between the processes that share the store, or a URL; None: what the store has.
        job_queue: carries runs to the processes that execute them; None: threads of this process do.
        debug: callers see the tracebacks of unexpected exceptions.

    Raises:
        ValueError: a job queue over a store that no other process can use.
    """

    def __init__(
        self,
        store: TaskStore | str | None,
        limits: Limits,
        *,
        quota: OwnerQuota | None = None,
        pubsub: PubSub | str | None = None,
        job_queue: JobQueue | None = None,
        debug: bool = False,
    ) -> None:
        super().__init__()
        #: The code of each agent whose tasks the store holds, by the name of its mount; that of an only agent is ``""``.
        self.agents: dict[str, AgentSpec] = {}
        self.limits = limits
        self.debug = debug
        if debug:
            logger.warning("debug=True: callers see the tracebacks of exceptions; use it for development only")
        self.quotas: Quotas = Quotas(quota)
        self.store: TaskStore = open_store(store)
        if self.store is not store:
            self.register(_OwnStore(self.store))
        self.hub: EventHub = EventHub()
        self.runs: RunManager = RunManager(
            self._agent_of, self.store, self.hub, limits, self.quotas, job_queue=job_queue, debug=debug
        )
        workers = self.store.workers
        if workers is None and store is self.store:
            _warn_of_lost_runs(self.store)
        if job_queue is not None and workers is None:
            raise ValueError("job_queue= needs a store that processes share, such as store='sqlite:///tasks.db'")
        self.membership: WorkerMembership | None = None
        if workers is not None:
            beat = limits.worker_heartbeat_interval
            self.membership = WorkerMembership(workers, self.runs.take_over, beat=beat)
            self.runs.before_run = self.membership.join
            self.register(self.membership)
        pubsub = open_pubsub(pubsub) if pubsub is not None else self.store.pubsub()
        if workers is not None or pubsub is not None:
            self.register(ProcessBridge(pubsub, self.store, self.hub, self.runs, limits))
        self.sweeper: Sweeper = Sweeper(self.store, self.hub, limits)
        self.register(self.sweeper)
        self.register(self.runs)

    def _agent_of(self, owner: Owner) -> AgentSpec | None:
        """The code for the tasks of an owner; None: they are not served."""
        return self.agents.get(mount_name(owner.id))


def _warn_of_lost_runs(store: TaskStore) -> None:
    from a2a_sync.stores.memory import MemoryStore

    if not isinstance(store, MemoryStore):
        logger.warning(
            "%s has no workers: a run that is unfinished when the process ends is not recovered after a restart",
            type(store).__name__,
        )


class _OwnStore(Component):
    """A store that the engine opened, so that it is closed with it."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store

    def close(self, timeout: float = 10.0) -> None:
        self._store.close()
