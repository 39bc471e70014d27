"""Services for tests, started once for each process that runs tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.engine import Served, serving
from tests.faults.conftest import Place
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import CeleryPlace
from tests.services.servers import PgBouncer, Postgres, program

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres, which `make test-services` installs")

_numbers = itertools.count()


def _need(name: str, package: str) -> None:
    if program(name) is None:
        pytest.skip(f"{name} is not installed (apt-get install {package})")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A private server, which a test may restart."""
    _need("initdb", "postgresql")
    with closing(Postgres()) as server:
        server.start()
        yield server


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    """A database: of the server that A2A_TEST_POSTGRES names, or of a private one."""
    given = os.environ.get("A2A_TEST_POSTGRES")
    return given or request.getfixturevalue("postgres").url


@pytest.fixture(scope="session")
def pgbouncer_url(postgres: Postgres) -> Iterator[str]:
    """The same database through PgBouncer in transaction mode."""
    _need("pgbouncer", "pgbouncer")
    with closing(PgBouncer(postgres.port)) as bouncer:
        bouncer.start()
        yield bouncer.url


@pytest.fixture
def store_url(postgres: Postgres) -> Iterator[str]:
    """A database of its own, for the tests of other folders that share a store between processes."""
    with postgres.database() as url:
        yield url


@pytest.fixture(params=["postgres", "celery"])
def place(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> Iterator[Place]:
    """Where tests of processes that die run their servers: over PostgreSQL, without and with Celery."""
    variables = {"DYING_BEAT": "0.5"}
    if request.param == "postgres":
        yield Place(store_url, tmp_path / "runs", variables=variables)
        return
    with redis_broker(tmp_path) as broker:
        variables["A2A_TEST_BROKER"] = broker.url
        yield CeleryPlace(store_url, tmp_path / "runs", variables=variables, queued=1)


@pytest.fixture
def serve(make_postgres_store: Callable[..., object], prefix: str) -> Iterator[Callable[..., Served]]:
    """Apps for the tests of other folders; each has tables of its own in one database."""
    numbers = itertools.count()
    yield from serving(lambda: make_postgres_store(prefix=f"{prefix}{next(numbers)}_"))


@pytest.fixture
def prefix(postgres_url: str) -> Iterator[str]:
    """A prefix of tables that are removed after the test."""
    name = f"t{os.getpid()}x{next(_numbers)}_"
    yield name
    drop(postgres_url, name)


def drop(url: str, prefix: str) -> None:
    """Remove the tables and functions of a store."""
    like = prefix.replace("_", "\\_") + "%"
    with psycopg.connect(url, autocommit=True) as connection:
        tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s"
        for (table,) in connection.execute(tables, (like,)).fetchall():
            connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE")
        functions = "SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE %s"
        for (function,) in connection.execute(functions, (like,)).fetchall():
            connection.execute(f"DROP FUNCTION IF EXISTS {function} CASCADE")


@pytest.fixture
def make_postgres_store(postgres_url: str, prefix: str) -> Iterator[Callable[..., object]]:
    """A function that creates stores over the same tables."""
    from a2a_sync.stores import PostgresStore

    stores = []

    def make(url: str = postgres_url, **options: object) -> object:
        stores.append(PostgresStore(url, **{"prefix": prefix, **options}))  # type: ignore[arg-type]
        return stores[-1]

    yield make
    for store in stores:
        store.close()
