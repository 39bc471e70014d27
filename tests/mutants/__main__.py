"""Runs the tests of a row over a broken library: ``python -m tests.mutants NAME``. Exits as pytest does.

Without a name the tests of all rows that have mutants are run over the library as it is.
"""

from __future__ import annotations

import sys

import pytest

from tests import engine
from tests.mutants.broken import MUTANTS
from tests.parity.test_page import named_by

#: How long a test may wait for what a broken library never does, in seconds.
IMPATIENCE = 1.5
#: The library is imported before pytest is, and what a broken one leaves behind is not what is asked here.
IGNORED = ("PytestAssertRewriteWarning", "PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")

if __name__ == "__main__":
    engine.PATIENCE = IMPATIENCE
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    for warning in IGNORED:
        options += ["-W", f"ignore::pytest.{warning}"]
    if sys.argv[1:]:
        mutant = MUTANTS[sys.argv[1]]
        with mutant.inside():
            sys.exit(pytest.main([*options, *named_by(mutant.row)]))
    engine.PATIENCE *= 10
    rows = dict.fromkeys(mutant.row for mutant in MUTANTS.values())
    sys.exit(pytest.main([*options, *(test for row in rows for test in named_by(row))]))
