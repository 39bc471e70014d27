"""The project of ``a2a-sync new --framework crewai``: its tests pass without a key."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("crewai")

from tests.cli.projects import create, run_tests


def test_the_tests_of_a_project_pass(tmp_path: Path) -> None:
    assert "1 passed" in run_tests(create(tmp_path, "--framework", "crewai"))
