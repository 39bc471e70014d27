"""Message brokers: private processes on loopback, which tests may kill and start again, or running ones of the environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.live import HOST, free_port

#: Seconds that a broker may take to start: RabbitMQ needs about ten on an idle machine.
_START = 120.0
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Broker:
    """A broker that tests neither kill nor restart."""

    def __init__(self, url: str) -> None:
        self.url = url


class PrivateBroker(Broker):
    """A broker's process: `url` stays the same when it is started again."""

    def __init__(self, url: str, command: list[str], port: int, folder: Path, **environment: str) -> None:
        super().__init__(url)
        self._command, self._port, self._folder = command, port, folder
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        log = (self._folder / "broker.log").open("ab")
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        deadline = time.monotonic() + _START
        while not self._accepts():
            assert self._process.poll() is None, (self._folder / "broker.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the broker does not start"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self._port), timeout=5):
            return True
        return False

    def kill(self) -> None:
        """End it without a warning: what it has not written to disk is lost."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self._process = None


def redis_broker(folder: Path) -> contextlib.AbstractContextManager[Broker]:
    """A Redis server: an empty database of the one that A2A_TEST_REDIS names, or a private one."""
    given = os.environ.get("A2A_TEST_REDIS")
    return _redis_database(given) if given else private_redis(folder)


@contextlib.contextmanager
def _redis_database(url: str) -> Iterator[Broker]:
    import redis

    for number in range(16):
        one = urlsplit(url)._replace(path=f"/{number}").geturl()
        with redis.Redis.from_url(one) as database:
            # The key reserves the database against tests of other processes.
            if not database.dbsize() and database.set("a2a-tests", os.getpid(), nx=True, ex=3600):
                try:
                    yield Broker(one)
                finally:
                    database.flushdb()
                return
    raise AssertionError(
        "each of the 16 databases of the server in A2A_TEST_REDIS holds keys; name one with an empty database"
    )


@contextlib.contextmanager
def private_redis(folder: Path) -> Iterator[PrivateBroker]:
    """A Redis server without persistence."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    port = free_port()
    command = [program, "--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no"]
    broker = PrivateBroker(f"redis://{HOST}:{port}/0", command, port, folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def rabbitmq_broker(folder: Path) -> contextlib.AbstractContextManager[Broker]:
    """A RabbitMQ server: the virtual host that A2A_TEST_RABBITMQ names, or a private one."""
    given = os.environ.get("A2A_TEST_RABBITMQ")
    return _rabbitmq_host(given) if given else _private_rabbitmq(folder)


@contextlib.contextmanager
def _rabbitmq_host(url: str) -> Iterator[Broker]:
    from kombu import Connection

    try:
        yield Broker(url)
    finally:
        with Connection(url) as connection:
            connection.default_channel.queue_delete("celery")


@contextlib.contextmanager
def _private_rabbitmq(folder: Path) -> Iterator[PrivateBroker]:
    """With its own Erlang port mapper."""
    if not _RABBITMQ.exists():
        pytest.skip("rabbitmq-server is not installed (apt-get install rabbitmq-server)")
    port, mapper = free_port(), str(free_port())
    environment = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": mapper,
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": f"a2a{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
    }
    (folder / "plugins").write_text("[].\n")
    broker = PrivateBroker(f"amqp://guest:guest@{HOST}:{port}//", [str(_RABBITMQ)], port, folder, **environment)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        # It starts the port mapper as a daemon.
        subprocess.run(["epmd", "-port", mapper, "-kill"], check=False, capture_output=True, timeout=30)
