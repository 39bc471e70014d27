"""Run the tests of a row with a defect in the library: ``python -m tests.mutants NAME``. The exit code is pytest's.

Without a name, the tests of all rows with defects are run on the unchanged library.
"""

from __future__ import annotations

import sys

import pytest

from tests import engine
from tests.live import ROOT
from tests.mutants.broken import MUTANTS
from tests.parity.test_page import named_by

#: The limit of a wait for what the defect prevents, in seconds.
WAIT_LIMIT = 1.5
#: The library is imported before pytest, and resources that a defect leaks are not checked here.
IGNORED = ("PytestAssertRewriteWarning", "PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")

if __name__ == "__main__":
    engine.TIMEOUT = WAIT_LIMIT
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    for warning in IGNORED:
        options += ["-W", f"ignore::pytest.{warning}"]
    if sys.argv[1:]:
        mutant = MUTANTS[sys.argv[1]]
        with mutant.inside():
            sys.exit(pytest.main([*options, *(f"{ROOT}/{test}" for test in named_by(mutant.row))]))
    engine.TIMEOUT *= 40
    rows = dict.fromkeys(mutant.row for mutant in MUTANTS.values())
    sys.exit(pytest.main([*options, *(test for row in rows for test in named_by(row))]))
