"""The rows of the table: measurements, comparisons, and required ratios.

Each suite starts the compared servers, alternates short stretches of load between them (A B A B …) and reports the median of
the ratios of neighbouring stretches: the speed of a machine drifts, the ratio of two neighbouring measurements does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.benchmarks import exchanges, servers
from tests.benchmarks.clients import cpu_per_call, import_seconds
from tests.benchmarks.load import Exchange, Sample, drive
from tests.benchmarks.servers import Server, Setup

ROUNDS = 7
CHUNKS, TOKENS = 10, 2_000
MILLION, MANY, FEW = 1_000_000, 100_000, 1_000


@dataclass(frozen=True)
class Row:
    """A ratio with its bounds "must" and "goal" (None: no bound), which are lower bounds if `least` is set.

    `by_cpu` is the ratio of the servers' processor times per response, where they were measured.
    """

    name: str
    ratio: float
    least: bool
    must: float | None
    goal: float | None
    shown: str
    by_cpu: float | None = None

    def meets(self, bound: float | None) -> bool | None:
        """Whether the ratio satisfies `bound`."""
        if bound is None:
            return None
        return self.ratio >= bound if self.least else self.ratio <= bound


def at_least(must: float | None, goal: float | None) -> dict[str, Any]:
    return {"least": True, "must": must, "goal": goal}


def at_most(must: float | None, goal: float | None) -> dict[str, Any]:
    return {"least": False, "must": must, "goal": goal}


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """The median of the ratios of neighbouring measurements."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def row(name: str, ours: list[float], theirs: list[float], unit: str, bounds: dict[str, Any]) -> Row:
    shown = f"{_shown(statistics.median(ours))} : {_shown(statistics.median(theirs))} {unit}".rstrip()
    return Row(name, ratio(ours, theirs), shown=shown, **bounds)


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def alternate(*steps: Callable[[], Sample], rounds: int = ROUNDS) -> list[list[Sample]]:
    """The samples of each step, measured in turns."""
    taken: list[list[Sample]] = [[] for _ in steps]
    for _ in range(rounds):
        for samples, step in zip(taken, steps, strict=True):
            samples.append(step())
    return taken


def load(server: Server, ask: Callable[[], Exchange], **bounds: Any) -> Callable[[], Sample]:
    return partial(server.load, ask, **bounds)


def throughput(name: str, ours: list[Sample], theirs: list[Sample], bounds: dict[str, Any], size: int = 0) -> Row:
    """A row of responses per second, or of megabytes per second if `size` is the size of a response.

    The processor time of the servers per response is printed as well: its ratio is equal on an idle machine and more stable
    on a busy one.
    """
    scale, unit = (size / 1e6, "MB a second") if size else (1, "a second")
    rates = [[sample.rate * scale for sample in samples] for samples in (ours, theirs)]
    times = " : ".join(_shown(statistics.median(sample.cpu * 1e3 for sample in samples)) for samples in (ours, theirs))
    by_cpu = ratio((sample.cpu for sample in theirs), (sample.cpu for sample in ours))
    return replace(row(name, *rates, f"{unit}; CPU {times} ms, {by_cpu:.2f}", bounds), by_cpu=by_cpu)


def running(stack: ExitStack, *setups: Setup, timeout: float = 60.0) -> Iterator[Server]:
    for setup in setups:
        yield stack.enter_context(Server(setup, timeout=timeout))


# -- sends --------------------------------------------------------------------------------------------------------------


def send() -> Iterator[Row]:
    """Blocking sends over 16 connections."""
    with ExitStack() as stack:
        taken = alternate(
            *(load(s, exchanges.send) for s in running(stack, servers.MEMORY, servers.SDK, servers.FLOOR))
        )
        ours, sdk, floor = taken
        yield throughput("blocking send, memory / a2a-sdk", ours, sdk, at_least(5.5, 6.5))
        yield throughput("blocking send, memory / bare gthread", ours, floor, at_least(0.52, 0.6))
        p99s = [[sample.p99 * 1e3 for sample in samples] for samples in (ours, sdk)]
        yield row("its p99 / a2a-sdk", *p99s, "ms", at_most(0.2, 0.15))


def sqlite() -> Iterator[Row]:
    """Blocking sends with tasks in a SQLite file."""
    with ExitStack() as stack:
        setups = (servers.SQLITE, servers.SDK, servers.SDK_SQLITE, servers.FLOOR_SQLITE)
        ours, sdk, on_sqlite, floor = alternate(*(load(s, exchanges.send) for s in running(stack, *setups)))
        yield throughput("blocking send, SQLite / a2a-sdk in memory", ours, sdk, at_least(3.5, 4))
        yield throughput("… / a2a-sdk on SQLite", ours, on_sqlite, at_least(22, 28))
        yield throughput("… / bare gthread with its two transactions", ours, floor, at_least(None, None))
        yield throughput("bare gthread with two transactions / a2a-sdk in memory", floor, sdk, at_least(None, None))


def stream() -> Iterator[Row]:
    """Streamed sends of ten chunks (12 or 13 events with the task and its states), and their first event."""
    with ExitStack() as stack:
        started = list(running(stack, servers.MEMORY, servers.SDK, servers.FASTA))
        ours, sdk, fasta = alternate(*(load(s, exchanges.stream(CHUNKS)) for s in started))
        yield throughput("streamed send / a2a-sdk", ours, sdk, at_least(6, 8))
        yield throughput("streamed send / fasta2a", ours, fasta, at_least(2, 2.5))
        ours, sdk = alternate(*(load(s, exchanges.stream(CHUNKS), connections=1, seconds=0.5) for s in started[:2]))
        firsts = [[sample.first * 1e3 for sample in samples] for samples in (ours, sdk)]
        yield row("first event at low load / a2a-sdk", *firsts, "ms", at_most(0.3, 0.25))
    with ExitStack() as stack:
        started = list(running(stack, servers.SQLITE, servers.MEMORY))
        durable, ours = alternate(*(load(s, exchanges.stream(CHUNKS)) for s in started))
        yield throughput("streamed send, SQLite / the same in memory", durable, ours, at_least(0.6, 0.8))


def tokens() -> Iterator[Row]:
    """Streams of 2,000 chunks at full speed, one at a time, in chunks per second."""
    with ExitStack() as stack:
        steps = [
            partial(drive, server.port, exchanges.stream(TOKENS), connections=1, exchanges=2)
            for server in running(stack, servers.MEMORY, servers.SDK, servers.SQLITE)
        ]
        ours, sdk, durable = alternate(*steps, rounds=5)
        rates = [[TOKENS / sample.p50 for sample in samples] for samples in (ours, sdk, durable)]
        yield row(f"{TOKENS:,} chunks at full speed / a2a-sdk", *rates[:2], "chunks a second", at_least(3, None))
        yield row("… SQLite / memory", rates[2], rates[0], "chunks a second", at_least(0.6, None))


def echo() -> Iterator[Row]:
    """Large texts in both directions."""
    for size, connections, seconds in ((1_000_000, 4, 1.5), (10_000_000, 2, 3.0)):
        with ExitStack() as stack:
            steps = [
                load(s, exchanges.echo(size), connections=connections, seconds=seconds)
                for s in running(stack, servers.MEMORY, servers.SDK)
            ]
            ours, sdk = alternate(*steps, rounds=5)
            yield throughput(f"echo of {size // 1_000_000} MB / a2a-sdk", ours, sdk, at_least(4.5, 5), size)


# -- reads --------------------------------------------------------------------------------------------------------------


def reads() -> Iterator[Row]:
    """GetTask and the card over 16 connections."""
    with ExitStack() as stack:
        started = list(running(stack, servers.MEMORY, servers.SDK))
        ours, sdk = alternate(*(load(s, exchanges.get(_some_tasks(s))) for s in started))
        yield throughput("GetTask / a2a-sdk", ours, sdk, at_least(1.5, 2))
        ours, sdk = alternate(*(load(s, exchanges.card) for s in started))
        yield throughput("card / a2a-sdk", ours, sdk, at_least(2.5, 3))


def _some_tasks(server: Server, count: int = 64) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = []
    drive(server.port, partial(exchanges.send, tasks.append), connections=4, exchanges=count)
    return tasks


def pages() -> Iterator[Row]:
    """A page of ListTasks with many tasks stored."""
    with ExitStack() as stack:
        ours = gunicorn_with(MANY, STORE="sqlite:///{folder}/ours.db")
        sdk = servers.uvicorn("sdk", "sdk:app", FILL=str(MANY))
        steps = [
            load(s, partial(exchanges.page, MANY), connections=1, seconds=seconds)
            for s, seconds in zip(running(stack, ours, sdk, timeout=300), (0.5, 1.5), strict=True)
        ]
        mine, theirs = ([sample.p50 * 1e3 for sample in taken] for taken in alternate(*steps, rounds=5))
        name = f"ListTasks page with {MANY:,} tasks, SQLite / a2a-sdk in memory"
        yield row(name, mine, theirs, "ms", at_most(0.02, 0.01))


def gunicorn_with(count: int, **variables: str) -> Setup:
    return servers.ours(FILL=str(count), **variables)


# -- growth -------------------------------------------------------------------------------------------------------------


def turns() -> Iterator[Row]:
    """Turns of one long task, compared in pairs with second turns of new tasks.

    A first turn is another operation: it reads no task, and is stored in one transaction.
    """
    for name, setup in (("memory", servers.MEMORY), ("SQLite", servers.SQLITE)):
        with Server(setup) as server:
            old: dict[str, Any] = {}
            one = partial(drive, server.port, connections=1)
            one(partial(exchanges.turn, old), exchanges=1000)

            def second(one: Callable[..., Sample] = one) -> Sample:
                task: dict[str, Any] = {}
                one(partial(exchanges.turn, task), exchanges=1)
                return one(partial(exchanges.turn, task), exchanges=1)

            late, early = alternate(
                lambda one=one, old=old: one(partial(exchanges.turn, old), exchanges=1), second, rounds=300
            )
            mine, theirs = ([statistics.median(sample.p50 * 1e3 for sample in taken)] for taken in (late, early))
            yield row(f"turn 1,000 / turn 2, {name}", mine, theirs, "ms", at_most(1.05, 1.02))


def history() -> Iterator[Row]:
    """A turn of a task with 1,000 messages, all of which are returned."""
    with ExitStack() as stack:
        steps = []
        for server in running(stack, servers.MEMORY, servers.SDK):
            one = partial(drive, server.port, partial(exchanges.turn, {}, history=None), connections=1)
            one(exchanges=500, limit=120)
            steps.append(partial(one, exchanges=3))
        mine, theirs = ([sample.p50 * 1e3 for sample in taken] for taken in alternate(*steps))
        yield row("turn 500 with its full history / a2a-sdk", mine, theirs, "ms", at_most(0.35, 0.25))


def chunks() -> Iterator[Row]:
    """Streams of many chunks into one artifact, on SQLite: the cost must be linear in their number."""
    few, many = 8_000, 32_000
    with Server(servers.SQLITE) as server:
        steps = [partial(drive, server.port, exchanges.stream(n), connections=1, exchanges=1) for n in (many, few)]
        long, short = ([sample.p50 for sample in taken] for taken in alternate(*steps, rounds=3))
        yield row(f"artifact of {many:,} / {few:,} chunks, SQLite", long, short, "s", at_most(4.2, 4))


def stored() -> Iterator[Row]:
    """The same sends with many and with few stored tasks."""
    for name, url in (("memory", ""), ("SQLite", "sqlite:///{folder}/ours.db")):
        with ExitStack() as stack:
            setups = [gunicorn_with(count, STORE=url) for count in (MANY, FEW)]
            steps = [load(s, exchanges.send, connections=4, seconds=0.7) for s in running(stack, *setups, timeout=150)]
            many, few = ([sample.p50 * 1e3 for sample in taken] for taken in alternate(*steps))
            yield row(f"send with {MANY:,} / {FEW:,} tasks stored, {name}", many, few, "ms", at_most(1.05, 1.02))


def million() -> Iterator[Row]:
    """Sends with a million stored tasks on SQLite. Storing them takes five minutes, so it is measured only when named."""
    with ExitStack() as stack:
        url = "sqlite:///{folder}/ours.db"
        setups = [gunicorn_with(count, STORE=url, MAX_TASKS=str(2 * MILLION)) for count in (MILLION, FEW)]
        started = running(stack, *setups, timeout=1800)
        steps = [load(s, exchanges.send, connections=4, seconds=0.7) for s in started]
        many, few = ([sample.p50 * 1e3 for sample in taken] for taken in alternate(*steps))
        yield row(f"send with {MILLION:,} / {FEW:,} tasks stored, SQLite", many, few, "ms", at_most(1.15, 1.05))


# -- several processes --------------------------------------------------------------------------------------------------


def workers() -> Iterator[Row]:
    """Sends to two and to four workers, one per core, with tasks in one SQLite file.

    The generator uses a part of the last core. The ratio of processor times is without it, and without waits for the file.
    """

    def prepared(server: Server) -> Sample:
        batch = exchanges.Prepared(exchanges.send, 10_000)
        sample = server.load(batch.ask, connections=32)
        batch.check()
        return sample

    with ExitStack() as stack:
        setups = (servers.pinned(1), servers.pinned(2), servers.pinned(4))
        one, two, four = alternate(*(partial(prepared, s) for s in running(stack, *setups)))
        yield throughput("two workers, SQLite, sends / one", two, one, at_least(1.8, 1.9))
        yield throughput("four workers, SQLite, sends / one", four, one, at_least(None, None))


# -- memory -------------------------------------------------------------------------------------------------------------


def memory() -> Iterator[Row]:
    """Memory per additional task."""
    before, after = 2_000, 12_000
    with ExitStack() as stack:
        each = []
        for server in running(stack, servers.MEMORY, servers.SDK):
            fill = partial(drive, server.port, exchanges.send, connections=16)
            fill(exchanges=before)
            base = server.memory()
            fill(exchanges=after - before)
            each.append([(server.memory() - base) / (after - before) / 1024])
        yield row("memory per stored task / a2a-sdk", *each, "KB", at_most(0.8, 0.6))


def held() -> Iterator[Row]:
    """A thousand concurrent streams, all of which must end correctly, and the memory of each."""
    count = 1_000
    per_stream = {
        name: held_each(setup, count)
        for name, setup in (
            ("sdk", servers.SDK),
            ("gthread", servers.ours(RUNS=str(count + 50))),
            ("gevent", servers.ours(worker="gevent", RUNS=str(count + 50))),
        )
    }
    for name, must, goal in (("gthread", 0.5, 0.4), ("gevent", 0.35, 0.3)):
        shown = f"{count:,} streams on {name} / a2a-sdk, memory each"
        yield row(shown, [per_stream[name]], [per_stream["sdk"]], "KB", at_most(must, goal))


def held_each(setup: Setup, count: int, silent: float = 6.0, limit: float = 60.0) -> float:
    """The memory of each of `count` open streams in KB; each is silent for so many seconds, and ends."""
    with Server(setup) as server:
        base = server.memory()
        peak = []
        drive(
            server.port,
            exchanges.held(silent),
            connections=count,
            exchanges=count,
            limit=limit,
            on_all_begun=lambda: peak.append(server.memory()),
        )
        return (peak[0] - base) / count / 1024


# -- start-up and clients -----------------------------------------------------------------------------------------------


def imports() -> Iterator[Row]:
    """Import times in new interpreters."""
    sdk = import_seconds("sdk", "a2a.server.routes, a2a.server.request_handlers, a2a.server.tasks, a2a.client")
    server = import_seconds("ours", "a2a_sync.wsgi.app, a2a_sync.agent.agent, a2a_sync.stores.sqlite")
    client = import_seconds("ours", "a2a_sync.client")
    requests = import_seconds("ours", "requests")
    pairs = [[] for _ in range(4)]
    for _ in range(9):
        for times, measure in zip(pairs, (server, sdk, client, requests), strict=True):
            times.append(measure() * 1e3)
    yield row("import of the server half / a2a-sdk", pairs[0], pairs[1], "ms", at_most(0.3, 0.25))
    yield row("import of the client half / requests", pairs[2], pairs[3], "ms", at_most(1.1, 1.05))


def clients() -> Iterator[Row]:
    """Processor time of a client's call, against a bare server."""
    with Server(servers.FLOOR) as server:
        for name, text, bounds in (
            ("send", "a short question", at_most(0.6, 0.5)),
            ("streamed send", f"stream:{CHUNKS}", at_most(0.4, 0.3)),
        ):
            mine, theirs = [], []
            for _ in range(5):
                mine.append(cpu_per_call("ours", server.url, name, text) * 1e3)
                theirs.append(cpu_per_call("sdk", server.url, name, text) * 1e3)
            yield row(f"client CPU per {name} / a2a-sdk's client", mine, theirs, "ms", bounds)


SUITES: dict[str, Callable[[], Iterator[Row]]] = {
    suite.__name__: suite
    for suite in (
        send, sqlite, stream, tokens, echo, reads, pages, turns, history, chunks, stored, workers, memory, held,
        imports, clients, million,
    )
}  # fmt: skip
