"""Fifty thousand tasks with a limit of a thousand: whatever a server has done before, it takes no more room for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bounds import check


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_fifty_thousand_tasks_take_the_room_of_a_thousand(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early, late = check(None if kind == "memory" else tmp_path / "tasks.db", 50_000, 1_000)
    with capsys.disabled():
        print(f"\nafter 3,000 of 50,000 tasks: {early}\nafter all of them: {late}")
