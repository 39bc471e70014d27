"""Private instances of services: in a folder of their own, on a free port of the loopback interface, killed at the end.

The tests restart and stop them, so a service that runs already is not enough for most. A server that refuses to run as root
runs as the user that its package has made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.live import HOST, free_port

#: Seconds for the start and the end of a service, on a loaded machine.
LIMIT = 60.0

_numbers = itertools.count()


def program(name: str) -> str | None:
    """The path of a program, also of one that Debian installs outside of PATH."""
    places = [os.environ.get("PATH", ""), "/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))]
    return shutil.which(name, path=os.pathsep.join(reversed(places)))


class Service:
    """A process in a folder of its own."""

    name = "service"
    #: The account that it runs as where the tests run as root.
    user = ""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"a2a-{self.name}-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            account = pwd.getpwnam(self.user)
            os.chown(self.folder, account.pw_uid, account.pw_gid)

    def run(self, *command: str | Path) -> None:
        """Run a command to its end, as the user of the service."""
        done = subprocess.run(
            [str(part) for part in command],
            **self._options(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
        )  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout.decode()[-2000:]

    def command(self) -> list[str]:
        """The command of the process, which stays in the foreground."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether the process serves requests."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), **self._options(), stdout=log, stderr=log)
        wait_until(lambda: self._alive() and self.is_ready())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal that ends the process, and wait for its end."""
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(number)
            process.wait(LIMIT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill the process and remove its folder."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _alive(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        return True

    def _options(self) -> dict[str, object]:
        as_root = os.getuid() == 0
        account = pwd.getpwnam(self.user) if as_root else None
        options: dict[str, object] = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "start_new_session": True}
        return (
            options
            if account is None
            else {**options, "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        )


class Postgres(Service):
    """A PostgreSQL server that trusts every local connection. Without fsync: nothing here survives the machine."""

    name = "postgres"
    user = "postgres"

    def __init__(self) -> None:
        super().__init__()
        self._binaries = Path(program("initdb") or "initdb").resolve().parent
        server = program("postgres")
        assert server is not None
        self._server = server
        self._settings: dict[str, str] = {}
        self._data = self.folder / "data"
        self.run(
            program("initdb") or "initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"
        )

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def use_tls(self, certificate: bytes, key: bytes) -> None:
        """Before the start: offer TLS, and require it and a password of the role ``app``."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"hostssl all app {HOST}/32 scram-sha-256\n{rules.read_text()}")
        owner = rules.stat()
        for name, content in (("server.crt", certificate), ("server.key", key)):
            path = self._data / name
            path.write_bytes(content)
            path.chmod(0o600)
            os.chown(path, owner.st_uid, owner.st_gid)
        self._settings["ssl"] = "on"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new database, which is removed afterwards with all sessions."""
        import psycopg

        name = f"t{os.getpid()}x{next(_numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
            try:
                yield self.url.removesuffix("postgres") + name
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "max_connections": 200,
            "shared_buffers": "64MB",
            "autovacuum_naptime": "10s",
            **self._settings,
        }
        return [self._server, "-D", str(self._data), *(f"--{name}={value}" for name, value in settings.items())]

    def is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def restart(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """Stop (SIGQUIT: in immediate mode, as after a crash) and start again."""
        self.stop(number)
        self.start()

    def freeze(self) -> None:
        """Stop the server and all its sessions from working, without closing their connections."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        parent = self._process.pid
        self.signal(number)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    os.kill(int(stat.parent.name), number)
            except (FileNotFoundError, ProcessLookupError):
                continue


class PgBouncer(Service):
    """PgBouncer in transaction mode before a PostgreSQL server: each transaction may get another session."""

    name = "pgbouncer"
    user = "postgres"

    def __init__(self, postgres_port: int, *, user: str = "postgres") -> None:
        super().__init__()
        # Fewer sessions than connections, so that they really are shared.
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={HOST} port={postgres_port} user={user}\n"
            f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {self.port}\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 500\nunix_socket_dir =\n"
        )
        os.chmod(self.folder / "pgbouncer.ini", 0o644)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def command(self) -> list[str]:
        return [program("pgbouncer") or "pgbouncer", str(self.folder / "pgbouncer.ini")]

    is_ready = Postgres.is_ready


def wait_until(condition: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait until `condition` holds: for what other processes do, of which there is no event here."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "this did not happen in time"
        time.sleep(0.02)
