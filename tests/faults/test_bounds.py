"""Many tasks, few kept: whatever a server has done before, it takes no more room for it. `tests.soak` does it at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bounds import check


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_was_forgotten_takes_no_room(kind: str, tmp_path: Path) -> None:
    check(None if kind == "memory" else tmp_path / "tasks.db", 2_000, 100)
