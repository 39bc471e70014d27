"""Push notifications: the rate at which one worker delivers them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType

from tests.benchmarks import exchanges, servers
from tests.benchmarks.rows import Row, at_least, row
from tests.benchmarks.servers import AGENTS, Server

RECEIVERS = 16
TASKS = 300
ROUNDS = 5
LIMIT = 60.0


def webhooks() -> Iterator[Row]:
    """Push notifications of tasks on SQLite to 16 receivers, from the first send to the last delivery."""
    with ExitStack() as stack:
        receivers = stack.enter_context(Receivers(RECEIVERS))
        setup = servers.ours(STORE="sqlite:///{folder}/ours.db", PUSH="1")
        server = stack.enter_context(Server(setup))
        each = _deliveries(server, receivers, 1, lambda before: _settled(receivers, before))[0]
        deliveries, sends = [], []
        for _ in range(ROUNDS):
            sends.append(server.load(exchanges.send).rate)
            count, seconds = _deliveries(server, receivers, TASKS, lambda before: receivers.wait(before + each * TASKS))
            deliveries.append(count / seconds)
        name = f"webhook deliveries, {RECEIVERS} receivers, SQLite / blocking sends"
        yield row(name, deliveries, sends, f"a second; {each} for each task", at_least(0.5, 0.8))


def _deliveries(server: Server, receivers: Receivers, tasks: int, wait: Callable[[int], None]) -> tuple[int, float]:
    """The notifications of so many tasks, and the seconds from the first send to the last of them."""
    before, begun = receivers.received(), time.monotonic()
    servers.drive(server.port, exchanges.notified(receivers.urls), connections=16, exchanges=tasks)
    wait(before)
    return receivers.received() - before, time.monotonic() - begun


def _settled(receivers: Receivers, before: int) -> None:
    """Wait for the notifications of one task, whose number is not known."""
    receivers.wait(before + 1)
    last = 0
    while last != (last := receivers.received()):
        time.sleep(1.0)


class Receivers:
    """A process that accepts notifications at several ports, on the generator's core; a context manager."""

    def __init__(self, count: int) -> None:
        probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        ports = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
        self.urls = [f"http://127.0.0.1:{port}/" for port in ports]
        # It inherits the core of the generator.
        self._process = subprocess.Popen(
            [sys.executable, str(AGENTS / "receiver.py"), *map(str, ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def received(self) -> int:
        """The notifications so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._read())

    def wait(self, count: int) -> None:
        """Wait until so many have come.

        Raises:
            RuntimeError: they did not come in time.
        """
        end = time.monotonic() + LIMIT
        while self.received() < count:
            if time.monotonic() > end:
                raise RuntimeError(f"{self.received()} of {count} notifications came within {LIMIT:g} seconds")
            time.sleep(0.01)

    def __enter__(self) -> Receivers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(10)
