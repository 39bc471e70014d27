"""The tests of processes that are killed at a call of the store once more, over PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import Place
from tests.faults.test_kills import *  # noqa: F403
from tests.services.celeryworkers import LONG

pytestmark = [pytest.mark.live, pytest.mark.timeout(2 * LONG)]


@pytest.fixture
def place(store_url: str, tmp_path: Path) -> Place:
    return Place(store_url, tmp_path / "runs", variables={"DYING_BEAT": "0.5"})
