"""Many tasks with a small task limit: use of resources does not grow with evicted tasks. `tests.soak` runs it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bounds import check


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_evicted_tasks_use_no_resources(kind: str, tmp_path: Path) -> None:
    check(None if kind == "memory" else tmp_path / "tasks.db", 2_000, 100)
