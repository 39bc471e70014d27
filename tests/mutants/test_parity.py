"""Each defect makes the tests of its row fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live import ROOT
from tests.mutants.broken import MUTANTS
from tests.parity.ids import IDS

pytestmark = pytest.mark.timeout(300)
COMMAND = [sys.executable, "-m", "tests.mutants"]
Results = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def result_of(request: pytest.FixtureRequest) -> Iterator[Results]:
    """What the command reports of a defect. It runs once for all selected ones, and again for one that is requested again."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    names = [item.callspec.params["name"] for item in items if hasattr(item, "callspec")]
    reported: dict[str, dict[str, Any]] = {}

    def result(name: str) -> dict[str, Any]:
        if name in reported:
            return dict(json.loads(subprocess.check_output([*COMMAND, name], cwd=ROOT)))
        for line in process.stdout or ():
            found = json.loads(line)
            reported[found["name"]] = found
            if found["name"] == name:
                break
        return reported[name]

    with subprocess.Popen([*COMMAND, *names], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as process:
        yield result
        # It and the fork that it waits for.
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_of_the_row_detect_the_defect(name: str, result_of: Results) -> None:
    result = result_of(name)
    assert result["code"] == pytest.ExitCode.TESTS_FAILED, result["output"]
    assert re.search(r"^\d+ failed", result["output"], re.M), result["output"]


def test_all_rows_pass_without_a_defect() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == pytest.ExitCode.OK, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_each_defect_names_an_existing_row() -> None:
    assert {mutant.row for mutant in MUTANTS.values()} <= set(IDS)
