"""The engine of a server: with streams and threads of the server, push notifications and metrics.

An app has an engine of its own. Several agents may share one: each then has a `Mount`, and its tasks are owned under the
name of the mount, so that the others cannot see them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from a2a_sync.agent.spec import AgentSpec
from a2a_sync.engine.components import Component
from a2a_sync.engine.engine import Engine
from a2a_sync.engine.hub import Observer
from a2a_sync.errors import OverloadedError
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.operations import OWNER_MARK, Call, Endpoint, RequestT, ResultT, owner_of
from a2a_sync.push.configs import PushConfigs
from a2a_sync.push.options import PushOptions
from a2a_sync.push.outbox import Outbox
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.responses import ResponseBudget
from a2a_sync.server.threadbudget import ThreadBudget
from a2a_sync.stores.base import Owner, PubSub, TaskBatch, TaskStore


class ServerEngine(Engine):
    """An `Engine` with what calls of a server need.

    Parameters:
        store, limits, executor_of, quota, pubsub, debug: as for `Engine`.
        metrics: counts the notifications, and shows open streams and runs past their end.
        push: switches push notifications on, with these options or with the defaults (True).

    Raises:
        TypeError: `push` is something else.
    """

    def __init__(
        self,
        store: TaskStore | str | None,
        limits: Limits,
        executor_of: Callable[[Owner], AgentSpec | None],
        *,
        metrics: Metrics | None = None,
        push: PushOptions | bool = False,
        quota: OwnerQuota | None = None,
        pubsub: PubSub | None = None,
        debug: bool = False,
    ) -> None:
        super().__init__(store, limits, executor_of, quota=quota, pubsub=pubsub, debug=debug)
        self.responses = ResponseBudget(limits.max_pending_response_bytes)
        self.thread_budget = ThreadBudget(limits.max_open_streams, limits.server_threads, self.quotas)
        if metrics is not None:
            metrics.watch(lingering=lambda: self.runs.lingering, streams=lambda: self.thread_budget.streams)
        self.push_configs: PushConfigs | None = None
        if push:
            options = PushOptions() if push is True else push
            if not isinstance(options, PushOptions):
                raise TypeError(f"push takes True, False or PushOptions(…), not a {type(push).__name__}")
            outbox = Outbox(self, options, count=metrics.count_notification if metrics is not None else None)
            self.push_configs = PushConfigs(self.store.webhooks, options, on_set=outbox.follow)


class Mount(Component):
    """The place of one agent among several on one engine. ``executor`` is its code, set when its app is made."""

    def __init__(self, engine: ServerEngine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.executor: AgentSpec | None = None
        self._closed = False

    @staticmethod
    def name_in(owner: Owner) -> str:
        """The name of the mount that an owner belongs to."""
        return owner.id.partition(OWNER_MARK)[0]

    def around(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint` for the tasks of this mount."""

        def mounted(call: Call[RequestT, ResultT]) -> ResultT:
            if self._closed:
                raise OverloadedError("this agent is not served any more")
            # No id of a caller contains the mark, so none leads to another mount, or from an app beside it to one of these.
            owner = f"{self.name}{OWNER_MARK}{owner_of(call.context)}"
            return endpoint(replace(call, context=replace(call.context, owner=owner)))

        return mounted

    def observer(self, observer: Observer) -> Observer:
        """`observer` for the batches of this mount's tasks only."""

        def observe(batch: TaskBatch) -> None:
            # Another agent may have this name when this one has been removed.
            if self.name_in(batch.owner) == self.name and not self._closed:
                observer(batch)

        return observe

    @property
    def running(self) -> int:
        return 0 if self.executor is None else len(self.engine.runs.runs_of(self.executor))

    @property
    def draining(self) -> bool:
        return self._closed or self.engine.draining

    def start(self) -> bool:
        """Start the engine."""
        return self.engine.start()

    def drain(self) -> None:
        """Accept no new runs of this agent."""
        if self.executor is not None:
            self.engine.runs.drain_agent(self.executor)

    def close(self, timeout: float = 10.0) -> None:
        """Give the runs of this agent `timeout` seconds and fail the rest; the engine and its store stay open.

        Nothing is left to do where the engine itself stops.
        """
        if not self._closed and not self.engine.draining:
            if self.executor is not None:
                self.engine.runs.end_agent(self.executor, timeout, "agent removed")
            self._closed = True
