"""All that serves the tasks of one store in one process: runs, those who follow them, neighbours, retention, webhooks.

An app has an engine of its own. Several agents may share one: each then has a `Seat`, and its tasks are owned under the seat's
name, so that they do not exist for the others. Nothing is known here of HTTP, cards and what an operation means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from a2a_sync.concurrency.quotas import Quotas
from a2a_sync.engine.hub import EventHub
from a2a_sync.engine.joined import Neighbours
from a2a_sync.engine.retention import Sweeper
from a2a_sync.engine.runs import Execution
from a2a_sync.errors import OverloadedError
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.operations import OWNER_MARK, Call, Endpoint, owner_of
from a2a_sync.push import PushOptions
from a2a_sync.push.configs import PushConfigs
from a2a_sync.push.outbox import Outbox
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.places import Places
from a2a_sync.stores import open_store
from a2a_sync.stores.base import Owner, TaskStore
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)


class Engine:
    """Works on `store`, a `TaskStore` or a URL; one that was handed in is not closed with it.

    `executor_of` says whose code works for the tasks of a scope (None: nobody's). Nothing is started or opened before `start`.
    """

    def __init__(
        self,
        store: TaskStore | str | None,
        limits: Limits,
        executor_of: Callable[[Owner], Any | None],
        *,
        metrics: Metrics | None = None,
        push: PushOptions | bool = False,
        quota: OwnerQuota | None = None,
        debug: bool = False,
    ) -> None:
        self.limits = limits
        #: Callers see the tracebacks of unexpected exceptions.
        self.debug = debug
        if debug:
            logger.warning("debug=True: callers see the tracebacks of exceptions; use it for development only")
        self.quotas = Quotas(quota)
        self.store = open_store(store)
        self._owns_store = self.store is not store
        self.hub = EventHub()
        self.execution = Execution(executor_of, self.store, self.hub, limits, self.quotas, debug=debug)
        self.places = Places(limits.max_open_streams, limits.server_threads, self.quotas)
        self.sweeper = Sweeper(self.store, self.hub, limits)
        workers = self.store.workers
        self.neighbours = Neighbours(workers, self.hub, self.execution, limits) if workers is not None else None
        self.metrics = metrics
        if metrics is not None:
            metrics.watch(lingering=lambda: self.execution.lingering, streams=lambda: self.places.streams)
        self._outbox: Outbox | None = None
        self.push_configs: PushConfigs | None = None
        if push:
            self.push_configs = self._push(PushOptions() if push is True else push)

    def _push(self, push: PushOptions) -> PushConfigs:
        if not isinstance(push, PushOptions):
            raise TypeError(f"push takes True, False or PushOptions(…), not a {type(push).__name__}")
        enter = self.neighbours.enter if self.neighbours is not None else None
        count = self.metrics.count_notification if self.metrics is not None else None
        outbox = self._outbox = push.outbox(self.store, self.hub, self.limits, self.quotas, enter=enter, count=count)
        self.execution.on_begun = outbox.follow
        return push.configs(self.store, self.limits, outbox)

    @property
    def running(self) -> int:
        """Runs of this process that have not come back."""
        return self.execution.running

    @property
    def draining(self) -> bool:
        """No more work is taken."""
        return self.execution.draining

    def start(self) -> None:
        """Begin what goes on beside the calls, if that has not begun. Cheap then."""
        self.sweeper.start()
        if self._outbox is not None:
            self._outbox.start()

    def begin(self) -> None:
        """`start`, and look after the other processes of the store."""
        self.start()
        if self.neighbours is not None:
            self.neighbours.meet()

    def drain(self) -> None:
        """Take no more work, but for what the runs that go on ask for. Idempotent."""
        self.execution.drain()
        if self.neighbours is not None:
            self.neighbours.resign()

    def close(self, timeout: float) -> None:
        """`drain`, give the runs `timeout` seconds, fail what is left, end everything but the store. Idempotent."""
        self.execution.close(timeout)
        self.sweeper.close()
        if self._outbox is not None:
            self._outbox.close()
        if self.neighbours is not None:
            self.neighbours.close()

    def release(self) -> None:
        """Close the store, if it is the engine's own: the last step. Idempotent."""
        if self._owns_store:
            self.store.close()


class Seat:
    """The place of one agent among several on one engine. ``executor`` is its code, once there is an app for it."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.executor: Any = None
        self._left = False

    @staticmethod
    def named_by(scope: Owner) -> str:
        """The name of the seat that a scope belongs to."""
        return scope.id.partition(OWNER_MARK)[0]

    def around(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint` for the tasks of this seat."""

        def seated(call: Call) -> Any:
            if self._left:
                raise OverloadedError("this agent is not served any more")
            # Nobody's id has the mark in it, so none leads to another seat, or from an app beside it to one of these.
            owner = f"{self.name}{OWNER_MARK}{owner_of(call.context)}"
            return endpoint(replace(call, context=replace(call.context, owner=owner)))

        return seated

    @property
    def running(self) -> int:
        """Runs of this agent, in this process, that have not come back."""
        return 0 if self.executor is None else len(self.engine.execution.runs_of(self.executor))

    @property
    def draining(self) -> bool:
        """No more work is taken."""
        return self._left or self.engine.draining

    def start(self) -> None:
        """See `Engine.start`."""
        self.engine.start()

    def begin(self) -> None:
        """See `Engine.begin`."""
        self.engine.begin()

    def drain(self) -> None:
        """Take no more runs of this agent, but for what the runs that go on ask for. Idempotent."""
        self.engine.execution.leave(self.executor)

    def close(self, timeout: float) -> None:
        """`drain`, give its runs `timeout` seconds and fail what is left; the engine and its store go on. Idempotent.

        Nothing is left to do where the engine itself stops.
        """
        if not self._left and not self.engine.draining:
            self.engine.execution.end(self.executor, timeout, "agent removed")
            self._left = True

    def release(self) -> None:
        """The store is the engine's."""
