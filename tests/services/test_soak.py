"""The soaks once more, shorter: over PostgreSQL, and at two hosts whose runs Celery executes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from a2a_sync.stores import PostgresStore
from tests.faults.bounds import check
from tests.services.celeryworkers import LONG
from tests.soak import hosts
from tests.soak.__main__ import soak

pytestmark = [pytest.mark.live, pytest.mark.timeout(4 * LONG)]


def test_clients_notice_nothing_of_killed_workers(store_url: str, tmp_path: Path) -> None:
    assert soak(tmp_path, store_url, seconds=20.0, clients=12, tasks=500, kill=6.0) == 0


def test_clients_of_two_hosts_notice_nothing_of_killed_processes_and_services(tmp_path: Path) -> None:
    assert hosts.run(seconds=30.0, count=20, kill=6.0, folder=tmp_path) == 0


def test_evicted_tasks_use_no_resources(store_url: str) -> None:
    with closing(PostgresStore(store_url, max_tasks=50)) as store:
        check(None, 500, 50, store)
