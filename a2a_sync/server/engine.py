"""The engine of a server: with streams and threads of the server, push notifications and metrics.

Each agent has a `Mount` on an engine. An app makes an engine for its agent. Several agents may share one: each then has a
`NamedMount`, and its tasks are owned under the name of the mount, so that the others cannot see them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from a2a_sync.agent.spec import AgentSpec
from a2a_sync.engine.components import Component
from a2a_sync.engine.engine import Engine
from a2a_sync.engine.hub import Observer
from a2a_sync.engine.jobs import JobQueue
from a2a_sync.errors import OverloadedError
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.operations import OWNER_MARK, Call, Endpoint, RequestT, ResultT, mount_name, owner_of
from a2a_sync.push.configs import PushConfigs
from a2a_sync.push.options import PushOptions
from a2a_sync.push.outbox import Outbox
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.responses import ResponseBudget
from a2a_sync.server.threadbudget import ThreadBudget
from a2a_sync.stores.base import PubSub, TaskBatch, TaskStore


class ServerEngine(Engine):
    """An `Engine` with what calls of a server need.

    Parameters:
        store, limits, quota, pubsub, job_queue, debug: as for `Engine`.
        metrics: counts the notifications, and shows open streams and runs past their end.
        push: switches push notifications on, with these options or with the defaults (True).

    Raises:
        TypeError: `push` is something else.
    """

    def __init__(
        self,
        store: TaskStore | str | None,
        limits: Limits,
        *,
        metrics: Metrics | None = None,
        push: PushOptions | bool = False,
        quota: OwnerQuota | None = None,
        pubsub: PubSub | str | None = None,
        job_queue: JobQueue | None = None,
        debug: bool = False,
    ) -> None:
        super().__init__(store, limits, quota=quota, pubsub=pubsub, job_queue=job_queue, debug=debug)
        self.responses: ResponseBudget = ResponseBudget(
            limits.max_pending_response_bytes, limits.server_threads, self.quotas
        )
        self.thread_budget: ThreadBudget = ThreadBudget(limits.max_open_streams, limits.server_threads, self.quotas)
        if metrics is not None:
            metrics.watch(
                lingering=lambda: self.runs.lingering,
                streams=lambda: self.thread_budget.streams,
                queued=lambda: self.runs.queued,
                inspection=self.store.inspection,
                lease=self.membership.lease if self.membership is not None else math.inf,
            )
        self.push_configs: PushConfigs | None = None
        if push:
            options = PushOptions() if push is True else push
            if not isinstance(options, PushOptions):
                raise TypeError(f"push takes True, False or PushOptions(…), not a {type(push).__name__}")
            webhooks = self.store.webhooks
            if webhooks is None:
                raise ValueError("push= needs a store with webhooks, such as MemoryStore or SQLiteStore")
            outbox = Outbox(self, webhooks, options, count=metrics.count_notification if metrics is not None else None)
            self.push_configs = PushConfigs(webhooks, options, on_set=outbox.follow)

    def reserve(self, threads: int, connections: int | None = None) -> None:
        """Leave some of the `threads` and `connections` of the server free; `Limits.server_threads` takes precedence."""
        if connections is not None:
            self.thread_budget.limit_connections(connections)
        if self.limits.server_threads is None:
            self.thread_budget.reserve(threads)
            self.responses.limit_threads(threads)


class Mount:
    """The place of an agent on an engine: that of the only one."""

    name = ""

    def __init__(self, engine: ServerEngine) -> None:
        self.engine = engine
        #: What starts, drains and closes with the agent.
        self.component: Component = engine

    @property
    def executor(self) -> AgentSpec | None:
        """The agent's code; None before `serve`."""
        return self.engine.agents.get(self.name)

    def serve(self, spec: AgentSpec) -> None:
        """Run the tasks of this mount with `spec`.

        Raises:
            ValueError: it answers without tasks, which a job queue to other processes cannot carry.
        """
        if spec.direct and self.engine.runs.remote:
            raise ValueError(
                f"job_queue= cannot serve {spec.kind}: direct = True answers on a thread of the caller's process"
            )
        self.engine.agents[self.name] = spec

    def around(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint` for the tasks of this mount."""
        return endpoint

    def observer(self, observer: Observer) -> Observer:
        """`observer` for the batches of this mount's tasks only."""
        return observer


class NamedMount(Mount, Component):
    """The place of one agent among several."""

    def __init__(self, engine: ServerEngine, name: str) -> None:
        super().__init__(engine)
        self.name = name
        self.component: Component = self
        self._closed = False

    def around(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint` for the tasks of this mount."""

        def mounted(call: Call[RequestT, ResultT]) -> ResultT:
            if self._closed:
                raise OverloadedError("this agent is no longer served")
            # No id of a caller contains the mark, so none leads to another mount, or from an app beside it to one of these.
            owner = f"{self.name}{OWNER_MARK}{owner_of(call.context)}"
            return endpoint(replace(call, context=replace(call.context, owner=owner)))

        return mounted

    def observer(self, observer: Observer) -> Observer:
        """`observer` for the batches of this mount's tasks only."""

        def observe(batch: TaskBatch) -> None:
            # Another agent may have this name when this one has been removed.
            if mount_name(batch.owner.id) == self.name and not self._closed:
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
