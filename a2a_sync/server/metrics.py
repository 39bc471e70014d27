"""Metrics of an app for Prometheus: ``A2AApp(agent, metrics=Metrics())`` counts calls and runs, and serves ``/metrics``.

With several workers set ``PROMETHEUS_MULTIPROC_DIR`` to an empty folder before the server starts, as prometheus-client
asks for; `a2a_sync.gunicorn` removes the files of dead workers.

=================================  =========  ===========================================================
``a2a_calls_total``                counter    calls by ``operation`` and ``outcome`` (``ok`` or the reason of the error's class)
``a2a_call_seconds``               histogram  time until a call was answered (a stream: until it began), by ``operation``
``a2a_runs_total``                 counter    runs that returned, by ``outcome`` (``returned``, ``cancelled``, ``raised``)
``a2a_run_seconds``                histogram  how long runs took
``a2a_runs_active``                gauge      runs whose code is being executed
``a2a_runs_lingering``             gauge      runs past their end whose code has not returned
``a2a_streams_open``               gauge      open streams
``a2a_runs_queued``                gauge      runs that have begun here and wait for a thread or another process
``a2a_notifications_total``        counter    posts to webhooks, by ``outcome`` (``delivered``; ``failed``, to be tried again;
                                              ``disabled``, the webhook with it)
=================================  =========  ===========================================================

Of the whole store, read at most every five seconds, and the same in all processes that share it:

=================================  =========  ===========================================================
``a2a_store_up``                   gauge      1: it answered the last read; 0: the values below are older
``a2a_store_tasks``                gauge      tasks by ``state``: ``submitted`` (their run waits) and ``working``
``a2a_store_oldest_wait_seconds``  gauge      how long the task that has waited longest for its run has waited
``a2a_store_workers``              gauge      processes by ``state``: ``alive``, ``late`` (no heartbeat for longer than a
                                              lease) and ``lost`` (their runs are being taken over)
``a2a_store_heartbeat_seconds``    gauge      the age of the oldest heartbeat of a process that is not lost
``a2a_outbox_webhooks``            gauge      webhooks by ``state``: ``behind`` (entries are to be delivered) and ``stopped``
``a2a_outbox_entries``             gauge      entries that are to be delivered
=================================  =========  ===========================================================
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from a2a_sync.agent.dialogue import WaitsForAnswer
from a2a_sync.agent.executor import RequestContext, TaskCancelled
from a2a_sync.concurrency.background import BoundedRead
from a2a_sync.errors import AgentError
from a2a_sync.operations import AnyCall, Endpoint, GeneratorInterceptor
from a2a_sync.stores.base import Inspection
from a2a_sync.telemetry.logs import get_logger

__all__ = [
    "Metrics",
]

logger: Final = get_logger(__name__)

#: How long what was read of a store is shown, and how long a page waits for a read, in seconds.
_READ_INTERVAL = 5.0
_READ_TIMEOUT = 1.0


class Metrics:
    """Counts for one process; `registry` is prometheus-client's, a fresh one by default.

    Raises:
        ImportError: prometheus-client is not installed; the extra ``a2a-sync[prometheus]`` has it.
    """

    def __init__(self, registry: Any = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise ImportError("Metrics needs prometheus-client: pip install 'a2a-sync[prometheus]'") from None
        self._client = prometheus_client
        #: The registry of prometheus-client with the counts of this process.
        self.registry: Any = registry if registry is not None else prometheus_client.CollectorRegistry()
        # prometheus-client keeps values of several processes in files of this folder.
        shared: dict[str, Any] = {"registry": self.registry}
        gauge = {**shared, "multiprocess_mode": "livesum"}
        self._calls = prometheus_client.Counter("a2a_calls", "Calls", ["operation", "outcome"], **shared)
        self._call_seconds = prometheus_client.Histogram("a2a_call_seconds", "Time to answer", ["operation"], **shared)
        self._runs = prometheus_client.Counter("a2a_runs", "Runs that came back", ["outcome"], **shared)
        self._run_seconds = prometheus_client.Histogram("a2a_run_seconds", "Time of runs", **shared)
        self._notifications = prometheus_client.Counter("a2a_notifications", "Posts to webhooks", ["outcome"], **shared)
        self._active = prometheus_client.Gauge("a2a_runs_active", "Runs being executed", **gauge)
        self._lingering = prometheus_client.Gauge("a2a_runs_lingering", "Runs past their end", **gauge)
        self._streams = prometheus_client.Gauge("a2a_streams_open", "Open streams", **gauge)
        self._queued = prometheus_client.Gauge("a2a_runs_queued", "Runs that wait", **gauge)
        self._store = _StoreGauges(prometheus_client, {**shared, "multiprocess_mode": "livemostrecent"})

    def count_notification(self, outcome: str) -> None:
        """Count one post to a webhook."""
        self._notifications.labels(outcome).inc()

    def count_calls(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, counted: an interceptor."""
        return GeneratorInterceptor(self._count)(endpoint)

    def _count(self, call: AnyCall) -> Generator[AnyCall, Any, Any]:
        name, began = call.operation.name, time.perf_counter()
        outcome = "INTERNAL_ERROR"
        try:
            result = yield call
            outcome = "ok"
            return result
        except AgentError as error:
            # Not that of the instance, which another agent may have chosen: each value is kept as long as the process lives.
            outcome = type(error).reason
            raise
        finally:
            self._calls.labels(name, outcome).inc()
            self._call_seconds.labels(name).observe(time.perf_counter() - began)

    @contextmanager
    def around_run(self, context: RequestContext) -> Iterator[None]:
        """Count the run in the block."""
        began = time.perf_counter()
        outcome = "returned"
        self._active.inc()
        try:
            yield
        except WaitsForAnswer:
            raise
        except TaskCancelled:
            outcome = "cancelled"
            raise
        except BaseException:
            outcome = "raised"
            raise
        finally:
            self._active.dec()
            self._runs.labels("cancelled" if context.cancelled else outcome).inc()
            self._run_seconds.observe(time.perf_counter() - began)

    def watch(
        self,
        *,
        lingering: Callable[[], int],
        streams: Callable[[], int],
        queued: Callable[[], int] = lambda: 0,
        inspection: Inspection | None = None,
        lease: float = math.inf,
    ) -> None:
        """Functions for the gauges that are not counted; called for each page.

        Parameters:
            lingering, streams, queued: of this process.
            inspection: of the store; None: it cannot be read.
            lease: the seconds without a heartbeat after which a process is late.
        """
        self._read = ((self._lingering, lingering), (self._streams, streams), (self._queued, queued))
        self._store.inspection, self._store.lease = inspection, lease

    _read: tuple[tuple[Any, Callable[[], int]], ...] = ()

    def refresh(self) -> None:
        """Set the gauges of `watch`."""
        for gauge, read in self._read:
            gauge.set(read())
        self._store.refresh()

    def page(self) -> tuple[bytes, str]:
        """What ``/metrics`` answers: the text and its content type; of all workers where there are several."""
        self.refresh()
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            from prometheus_client import multiprocess

            registry = self._client.CollectorRegistry()
            collector: Any = multiprocess.MultiProcessCollector
            collector(registry)
        return self._client.generate_latest(registry), self._client.CONTENT_TYPE_LATEST


class _StoreGauges:
    """The gauges of a store."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self.inspection: Inspection | None = None
        self.lease = math.inf
        self._up = client.Gauge("a2a_store_up", "The store answered", **options)
        self._tasks = client.Gauge("a2a_store_tasks", "Unfinished tasks", ["state"], **options)
        self._oldest = client.Gauge("a2a_store_oldest_wait_seconds", "The longest wait for a run", **options)
        self._workers = client.Gauge("a2a_store_workers", "Processes of the store", ["state"], **options)
        self._heartbeat = client.Gauge("a2a_store_heartbeat_seconds", "The oldest heartbeat", **options)
        self._webhooks = client.Gauge("a2a_outbox_webhooks", "Webhooks", ["state"], **options)
        self._entries = client.Gauge("a2a_outbox_entries", "Entries to be delivered", **options)
        self._reading = BoundedRead("a2a-metrics", self._read, interval=_READ_INTERVAL, timeout=_READ_TIMEOUT)

    def refresh(self) -> None:
        """Read the store, if that was not done lately."""
        if self.inspection is not None and not self._reading.refresh():
            self._up.set(0)

    def _read(self) -> None:
        assert self.inspection is not None
        try:
            self._set(self.inspection)
        except Exception:
            self._up.set(0)
            logger.exception("metrics: the store cannot be read")

    def _set(self, inspection: Inspection) -> None:
        runs, webhooks, workers = inspection.run_counts(), inspection.webhook_counts(), inspection.workers()
        self._tasks.labels("submitted").set(runs.queued)
        self._tasks.labels("working").set(runs.working)
        self._oldest.set(0 if runs.since_ms is None else max(0.0, time.time() - runs.since_ms / 1000))
        ages = [worker.age_s or 0.0 for worker in workers if not worker.left]
        late = sum(age > self.lease for age in ages)
        for state, count in {"alive": len(ages) - late, "late": late, "lost": len(workers) - len(ages)}.items():
            self._workers.labels(state).set(count)
        self._heartbeat.set(max(ages, default=0.0))
        self._webhooks.labels("behind").set(webhooks.behind)
        self._webhooks.labels("stopped").set(webhooks.stopped)
        self._entries.set(webhooks.entries)
        self._up.set(1)
