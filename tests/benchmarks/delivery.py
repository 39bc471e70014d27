"""Delay of an event to subscribers in the same and in another process, and the cost of an idle wait."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

from a2a_sync import Client, Task
from tests.benchmarks import servers
from tests.benchmarks.rows import Row, at_most, row
from tests.benchmarks.servers import Server

TICKS = 100
ROUNDS = 5
IDLE = 10.0


def delivery() -> Iterator[Row]:
    """Events to another process on the same SQLite file, and two idle processes with an open stream each."""
    with tempfile.TemporaryDirectory(prefix="a2a-bench-") as folder, ExitStack() as stack:
        setup = servers.ours(STORE=f"sqlite:///{folder}/shared.db")
        here, there = (stack.enter_context(Server(setup)) for _ in range(2))
        inside, across = [], []
        for _ in range(ROUNDS):
            near, far = delays(here, there)
            inside.append(near)
            across.append(far)
        yield row("delivery to another process / inside one", across, inside, "ms", at_most(3, None))
        yield _idle(stack, here, there)


def delays(here: Server, there: Server) -> tuple[float, float]:
    """The median delay, in milliseconds, of the events of one task to a client of each server."""
    with Client(here.url) as client:
        task = client.send(f"ticks:{TICKS}", return_immediately=True)
    assert isinstance(task, Task)
    delays: dict[str, list[float]] = {here.url: [], there.url: []}
    readers = [threading.Thread(target=_read, args=(url, task.id, taken)) for url, taken in delays.items()]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    return statistics.median(delays[here.url]), statistics.median(delays[there.url])


def _read(url: str, task_id: str, delays: list[float]) -> None:
    with Client(url) as client, client.subscribe(task_id, timeout=30) as stream:
        next(stream)  # the task so far
        for event in stream:
            now = time.monotonic()
            text = event.artifact.text if hasattr(event, "artifact") else ""
            if text.strip():
                delays.append((now - float(text.split()[-1])) * 1e3)


def _idle(stack: ExitStack, here: Server, there: Server) -> Row:
    """The processor time of both servers with an open idle stream each, beside a2a-sdk on a database of its own.

    A wake-up costs ten times as much on some virtual machines as on others, so a share of a core says little by itself.
    """
    peer = stack.enter_context(Server(servers.SDK_SQLITE))
    silent = f"sleep:{IDLE * 3}"
    client = stack.enter_context(Client(here.url))
    task = client.send(silent, return_immediately=True)
    assert isinstance(task, Task)
    for server in (here, there):
        next(stack.enter_context(stack.enter_context(Client(server.url)).subscribe(task.id)))
    next(stack.enter_context(stack.enter_context(Client(peer.url)).stream(silent)))
    time.sleep(1)
    compared = (here, there, peer)
    before = [server.cpu() for server in compared]
    time.sleep(IDLE)
    *ours, theirs = (server.cpu() - spent for server, spent in zip(compared, before, strict=True))
    return row("idle with an open stream, SQLite / a2a-sdk", [max(ours)], [theirs], f"s in {IDLE:g} s", at_most(1.5, 1))
