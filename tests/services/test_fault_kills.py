"""The tests of processes that are killed at a call of the store once more, over PostgreSQL, without and with Celery."""

from __future__ import annotations

import pytest

from tests.faults import test_kills
from tests.faults.test_kills import *  # noqa: F403
from tests.services.celeryworkers import LONG
from tests.services.conftest import place  # noqa: F401 (in place of the fixture of this module)

pytestmark = [pytest.mark.live, pytest.mark.timeout(2 * LONG)]


# A Celery worker takes long to stop.
@pytest.mark.parametrize(
    ("place", "when"), [("postgres", "before"), ("postgres", "after"), ("celery", "before")], indirect=["place"]
)
def test_tasks_of_a_process_killed_while_closing_are_retried_by_the_next(site: test_kills.Site, when: str) -> None:
    test_kills.test_tasks_of_a_process_killed_while_closing_are_retried_by_the_next(site, when)


# With Celery, `test_fault_push.py` kills all processes of a run and starts them again.
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_restarted_server_uses_the_file_of_a_killed_one(site: test_kills.Site) -> None:
    test_kills.test_a_restarted_server_uses_the_file_of_a_killed_one(site)
