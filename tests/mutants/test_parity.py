"""Each defect makes the tests of its row fail."""

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
def test_the_tests_of_the_row_detect_the_defect(name: str) -> None:
    ended = run(name)
    output = f"{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, output
    assert re.search(r"^\d+ failed", ended.stdout, re.M), output


def test_all_rows_pass_without_a_defect() -> None:
    ended = run()
    assert ended.returncode == pytest.ExitCode.OK, f"{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


def test_each_defect_names_an_existing_row() -> None:
    assert {mutant.row for mutant in MUTANTS.values()} <= set(IDS)
