"""The projects of ``a2a-sync new --framework``: their tests pass with a model of the framework's own for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_sync.cli.new import FRAMEWORKS
from tests.cli.projects import create, run_tests


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "crewai"])
def test_the_tests_of_a_project_pass(framework: str, tmp_path: Path) -> None:
    assert "1 passed" in run_tests(create(tmp_path, "--framework", framework))
