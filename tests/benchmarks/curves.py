"""Curves for the page on performance: rates against connections, latencies, costs against stored tasks, memory of streams.

Each point is measured as the rows are: servers side by side on one core, short stretches of load in turn, medians. A point that a
server cannot reach is None.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.benchmarks import exchanges, servers
from tests.benchmarks.load import Exchange, Sample, WrongAnswer
from tests.benchmarks.rows import CHUNKS, gunicorn_with, held_each, load
from tests.benchmarks.servers import Server, Setup

OURS, OURS_SQLITE, SDK, FASTA = "a2a_sync, memory", "a2a_sync, SQLite", "a2a-sdk", "fasta2a"
SERVERS = {OURS: servers.MEMORY, OURS_SQLITE: servers.SQLITE, SDK: servers.SDK, FASTA: servers.FASTA}
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)

Points = dict[str, list[list[float | None]]]


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds, seconds of each stretch of load, and the last points of the curves."""

    rounds: int
    seconds: float
    connections: tuple[int, ...]
    stored: tuple[int, ...]
    streams: tuple[int, ...]


FULL = Effort(5, 1.5, (1, 4, 16, 64, 256), (1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000, 5_000))
#: Without what takes longest: filling stores with many tasks, and thousands of streams.
SHORT = Effort(2, 0.7, (1, 4, 16, 64, 256), (1_000, 10_000), (10, 100, 1_000))
SMALL = Effort(1, 0.5, (1, 16), (1_000,), (10,))


def sends(effort: Effort) -> dict[str, Any]:
    """Blocking sends by the number of connections, and their latencies."""
    return _against_connections(effort, {name: _send(name) for name in SERVERS})


def streams(effort: Effort) -> dict[str, Any]:
    """Streamed sends by the number of connections."""
    return _against_connections(effort, dict.fromkeys(SERVERS, exchanges.stream(CHUNKS)))


def _send(name: str) -> Callable[[], Exchange]:
    return exchanges.accepted if name == FASTA else exchanges.send


def _against_connections(effort: Effort, asks: Mapping[str, Callable[[], Exchange]]) -> dict[str, Any]:
    """Rates and processor times by server, and the percentiles of the latency (ms) with 16 connections."""
    rates: Points = {name: [] for name in asks}
    times: Points = {name: [] for name in asks}
    latencies: dict[str, list[float]] = {}
    with ExitStack() as stack:
        started = {name: stack.enter_context(Server(SERVERS[name])) for name in asks}
        for count in effort.connections:
            taken = _in_turn(
                {
                    name: load(started[name], ask, connections=count, seconds=effort.seconds)
                    for name, ask in asks.items()
                },
                effort.rounds,
            )
            for name, samples in taken.items():
                rates[name].append([count, _median(sample.rate for sample in samples)])
                times[name].append([count, _median(sample.cpu * 1e6 for sample in samples)])
                if count == 16 and samples:
                    latencies[name] = _percentiles(samples)
            _progress(f"{count} connections")
    return {"a second": rates, "CPU µs": times, "latencies": latencies}


def _in_turn(steps: Mapping[str, Callable[[], Sample]], rounds: int) -> dict[str, list[Sample]]:
    taken: dict[str, list[Sample]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            sample = _attempt(name, step)
            if sample is not None and sample.latencies:
                taken[name].append(sample)
    return taken


def _attempt(name: str, step: Callable[[], Any]) -> Any:
    """The result of `step`; None where the server fails."""
    try:
        return step()
    except (OSError, RuntimeError, WrongAnswer) as error:
        print(f"  {name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)
        return None


def _percentiles(samples: Iterable[Sample]) -> list[float]:
    latencies = sorted(latency for sample in samples for latency in sample.latencies)
    return [latencies[min(int(len(latencies) * percent / 100), len(latencies) - 1)] * 1e3 for percent in PERCENTILES]


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None


def stored(effort: Effort) -> dict[str, Any]:
    """Processor time of a send by the number of stored tasks."""
    setups: dict[str, Callable[[int], Setup]] = {
        OURS: gunicorn_with,
        OURS_SQLITE: lambda count: gunicorn_with(count, STORE="sqlite:///{folder}/ours.db", MAX_TASKS=str(3 * count)),
        SDK: lambda count: servers.uvicorn("sdk", "sdk:app", FILL=str(count)),
        FASTA: lambda count: servers.uvicorn("fasta", "fasta:app", FILL=str(count)),
    }
    points: Points = {name: [] for name in setups}
    for count in effort.stored:
        # More than a hundred thousand need gigabytes in memory, with each of the libraries.
        named = {name: setup for name, setup in setups.items() if count <= 100_000 or name == OURS_SQLITE}
        with ExitStack() as stack:
            steps = {}
            for name, setup in named.items():
                start = partial(Server, setup(count), timeout=60 + count / 200)
                server = _attempt(name, lambda start=start: stack.enter_context(start()))
                if server is not None:
                    steps[name] = load(server, _send(name), connections=4, seconds=effort.seconds)
            for name, samples in _in_turn(steps, effort.rounds).items():
                points[name].append([count, _median(sample.cpu * 1e6 for sample in samples)])
        _progress(f"{count:,} tasks")
    return {"CPU µs": points}


def memory(effort: Effort) -> dict[str, Any]:
    """Memory of each open stream in KB, by the number of streams."""
    setups: dict[str, Callable[[int], Setup]] = {
        "a2a_sync, gthread": lambda n: servers.ours(RUNS=str(n + 50)),
        "a2a_sync, gevent": lambda n: servers.ours(worker="gevent", RUNS=str(n + 50)),
        SDK: lambda n: servers.SDK,
        FASTA: lambda n: servers.uvicorn("fasta", "fasta:app", LOOPS=str(n + 10)),
    }
    points: Points = {name: [] for name in setups}
    for count in effort.streams:
        for name, setup in setups.items():
            # Long enough to open all of them on a busy machine.
            silent = 4.0 + count / 80
            each = _attempt(name, partial(held_each, setup(count), count, silent, limit=3 * silent + 60))
            points[name].append([count, each])
        _progress(f"{count:,} streams")
    return {"KB": points}


def _progress(what: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
