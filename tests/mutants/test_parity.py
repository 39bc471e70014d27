"""Every defect makes the row that speaks of it fail."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.live import ROOT
from tests.mutants.broken import MUTANTS
from tests.parity.ids import IDS

pytestmark = pytest.mark.timeout(300)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutants", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_makes_its_row_fail(name: str) -> None:
    ended = run(name)
    output = f"{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, output
    assert re.search(r"^\d+ failed", ended.stdout, re.M), output


def test_without_a_defect_they_pass() -> None:
    ended = run()
    assert ended.returncode == pytest.ExitCode.OK, f"{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


def test_defects_are_of_rows() -> None:
    assert {mutant.row for mutant in MUTANTS.values()} <= set(IDS)
