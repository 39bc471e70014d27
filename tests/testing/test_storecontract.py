"""The contract of stores as others use it: a store that keeps it passes, one that does not is found out and told why."""

from __future__ import annotations

from pathlib import Path

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


def test_a_store_that_does_not_is_told_what_is_and_what_should_be(tmp_path: Path) -> None:
    suite = SUITE.replace("class Theirs(MemoryStore):\n    pass\n", WRONG)
    done = run(tmp_path, suite, "-p", PLUGIN, "-k", "tasks_are_listed_by_status_time_then_id")
    assert "1 failed" in done.stdout
    assert "At index 0 diff" in done.stdout, "assertions are rewritten, so that values are shown"


def test_a_suite_without_stores_says_what_is_missing(tmp_path: Path) -> None:
    suite = SUITE[: SUITE.index("    @pytest.fixture")].replace(
        "class TestTheirs(StoreContract):", "class TestTheirs(StoreContract): pass"
    )
    done = run(tmp_path, suite, "-p", PLUGIN, "-k", "a_task_is_created_once")
    assert "give the class a fixture make_store" in done.stdout
