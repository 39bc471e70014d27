"""The contract over `PostgresStore`, directly and through PgBouncer in transaction mode."""

from __future__ import annotations

import os

import pytest

from a2a_sync.testing.storecontract import StoreContract
from tests.services.conftest import drop, psycopg


@pytest.fixture(scope="module")
def tables(postgres_url):
    """A prefix; the tables are made once, as that takes longer than most tests."""
    prefix = f"c{os.getpid()}_"
    yield prefix
    drop(postgres_url, prefix)


class Contract(StoreContract):
    persistent = True
    #: The fixture with the URL of the store.
    through = ""

    @pytest.fixture
    def make_store(self, request, tables, postgres_url):
        from a2a_sync.stores import PostgresStore

        url = request.getfixturevalue(self.through)
        stores = []

        def make(**options):
            stores.append(PostgresStore(url, prefix=tables, **options))
            return stores[-1]

        yield make
        for store in stores:
            store.close()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            found = "SELECT string_agg(relname, ', ') FROM pg_class WHERE relkind = 'r' AND relname LIKE %s"
            names = connection.execute(found + " AND relname NOT LIKE %s", (f"{tables}%", "%meta")).fetchone()[0]
            if names:
                connection.execute(f"TRUNCATE {names}")


class TestPostgresStore(Contract):
    through = "postgres_url"


class TestPostgresStoreThroughPgBouncer(Contract):
    through = "pgbouncer_url"


del Contract
