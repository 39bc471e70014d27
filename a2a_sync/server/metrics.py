"""Metrics of an app for Prometheus: ``A2AApp(agent, metrics=Metrics())`` counts calls and runs, and serves ``/metrics``.

With several workers set ``PROMETHEUS_MULTIPROC_DIR`` to an empty folder before the server starts, as prometheus-client
asks for; `a2a_sync.gunicorn` removes the files of dead workers.

=================================  =========  ===========================================================
``a2a_calls_total``                counter    calls by ``operation`` and ``outcome`` (``ok`` or the error's reason)
``a2a_call_seconds``               histogram  time until a call was answered (a stream: until it began), by ``operation``
``a2a_runs_total``                 counter    runs that returned, by ``outcome`` (``returned``, ``cancelled``, ``raised``)
``a2a_run_seconds``                histogram  how long runs took
``a2a_runs_active``                gauge      runs whose code is being executed
``a2a_runs_lingering``             gauge      runs past their end whose code has not returned
``a2a_streams_open``               gauge      open streams
``a2a_notifications_total``        counter    posts to webhooks, by ``outcome`` (``delivered``; ``failed``, to be tried again;
                                              ``disabled``, the webhook with it)
=================================  =========  ===========================================================
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from a2a_sync.agent.dialogue import WaitsForAnswer
from a2a_sync.agent.executor import RequestContext, TaskCancelled
from a2a_sync.errors import AgentError
from a2a_sync.operations import Call, Endpoint, RequestT, ResultT

__all__ = [
    "Metrics",
]


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

    def count_notification(self, outcome: str) -> None:
        """Count one post to a webhook."""
        self._notifications.labels(outcome).inc()

    def count_calls(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, counted: an interceptor."""

        def counted(call: Call[RequestT, ResultT]) -> ResultT:
            began = time.perf_counter()
            outcome = "INTERNAL_ERROR"
            try:
                result = endpoint(call)
                outcome = "ok"
                return result
            except AgentError as error:
                outcome = error.reason
                raise
            finally:
                name = call.operation.name
                self._calls.labels(name, outcome).inc()
                self._call_seconds.labels(name).observe(time.perf_counter() - began)

        return counted

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

    def watch(self, *, lingering: Callable[[], int], streams: Callable[[], int]) -> None:
        """Functions for the gauges that are not counted; called for each page."""
        self._read = (lingering, streams)

    _read: tuple[Callable[[], int], Callable[[], int]] = (lambda: 0, lambda: 0)

    def refresh(self) -> None:
        """Set the gauges of `watch`."""
        lingering, streams = self._read
        self._lingering.set(lingering())
        self._streams.set(streams())

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
