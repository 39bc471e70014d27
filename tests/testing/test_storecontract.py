"""The store contract as authors of stores use it: a correct store passes, a wrong one fails with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.test_plugin import PLUGIN, run

SUITE = """
import pytest

from a2a_sync import MemoryStore
from a2a_sync.testing.storecontract import StoreContract


class Theirs(MemoryStore):
    pass


class TestTheirs(StoreContract):
    @pytest.fixture
    def make_store(self):
        return Theirs
"""
WRONG = """
from dataclasses import replace


class Theirs(MemoryStore):
    def list(self, scope, query):
        page = super().list(scope, query)
        return replace(page, tasks=page.tasks[::-1])
"""


def test_a_store_that_keeps_the_contract_passes(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE, "-p", PLUGIN)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.rpartition(" passed")[0].split()[-1]) > 100


@pytest.mark.slow
def test_a_wrong_store_gets_the_actual_and_the_expected_value(tmp_path: Path) -> None:
    suite = SUITE.replace("class Theirs(MemoryStore):\n    pass\n", WRONG)
    done = run(tmp_path, suite, "-p", PLUGIN, "-k", "tasks_are_listed_by_status_time_then_id")
    assert "1 failed" in done.stdout
    assert "At index 0 diff" in done.stdout, "assertions are rewritten, so that values are shown"


@pytest.mark.slow
def test_a_suite_without_stores_says_what_is_missing(tmp_path: Path) -> None:
    suite = SUITE[: SUITE.index("    @pytest.fixture")].replace(
        "class TestTheirs(StoreContract):", "class TestTheirs(StoreContract): pass"
    )
    done = run(tmp_path, suite, "-p", PLUGIN, "-k", "a_task_is_created_once")
    assert "give the class a fixture make_store" in done.stdout
