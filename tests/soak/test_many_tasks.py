"""Fifty thousand tasks with a limit of one thousand: use of memory, threads and storage does not grow with past tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bounds import check


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_fifty_thousand_tasks_use_the_resources_of_one_thousand(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early, late = check(None if kind == "memory" else tmp_path / "tasks.db", 50_000, 1_000)
    with capsys.disabled():
        print(f"\nafter 3,000 of 50,000 tasks: {early}\nafter all of them: {late}")
