"""Run the tests of rows with a defect in the library: ``python -m tests.mutants NAME ...``.

Prints a JSON object for each name when its tests have ended: name, exit code of pytest, end of the output. Each runs in a fork of this
process, which has imported the library and the tests once. Without a name, the tests of all rows with defects are run on the unchanged
library, and the exit code is pytest's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from typing import IO

import pytest

from tests import engine
from tests.live import ROOT
from tests.mutants.broken import MUTANTS
from tests.parity.test_page import named_by

#: The limit of a wait for what the defect prevents, in seconds.
WAIT_LIMIT = 1.5
#: The limit of the tests of one row, in seconds.
ROW_LIMIT = 280
#: The library is imported before pytest, and resources that a defect leaks are not checked here.
IGNORED = ("PytestAssertRewriteWarning", "PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", *(f"-Wignore::pytest.{warning}" for warning in IGNORED)]


def run_row(name: str) -> int:
    """The exit code of the tests of a row with its defect; its output is that of this process."""
    mutant = MUTANTS[name]
    with mutant.inside():
        return pytest.main([*OPTIONS, *(f"{ROOT}/{test}" for test in named_by(mutant.row))])


def in_fork(name: str, output: IO[bytes]) -> int:
    """Run `run_row` in a fork of this process, with its output in a file; minus the signal if one ended it."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(ROW_LIMIT)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output.fileno(), stream.fileno())
    code = 70
    try:
        code = int(run_row(name))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(names: list[str]) -> int:
    engine.TIMEOUT = WAIT_LIMIT
    if not names:
        engine.TIMEOUT *= 40
        rows = dict.fromkeys(mutant.row for mutant in MUTANTS.values())
        return pytest.main([*OPTIONS, *(test for row in rows for test in named_by(row))])
    for name in names:
        with tempfile.TemporaryFile() as output:
            code = in_fork(name, output)
            output.seek(0)
            print(json.dumps({"name": name, "code": code, "output": output.read().decode()[-4000:]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
