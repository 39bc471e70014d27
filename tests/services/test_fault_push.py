"""The tests of deliveries by servers that die once more, over PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import Place
from tests.faults.test_push import *  # noqa: F403
from tests.services.celeryworkers import LONG

pytestmark = [pytest.mark.live, pytest.mark.timeout(2 * LONG)]


@pytest.fixture
def place(store_url: str, tmp_path: Path) -> Place:
    return Place(store_url, tmp_path / "runs")
