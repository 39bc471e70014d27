"""Runs the suite against this library and writes the page: ``python -m tests.conformance``."""

from __future__ import annotations

import logging
import sys
import traceback

from tests.conformance.ours import Ours
from tests.conformance.page import PAGE, render
from tests.conformance.sections import SECTIONS
from tests.conformance.suite import FAILURES


def main() -> int:
    """Run all checks; write the page if none fails. Return the exit code."""
    # Discard the log: the agents of the suite fail on purpose.
    logging.getLogger().addHandler(logging.NullHandler())
    failed = 0
    with Ours() as system:
        for section in SECTIONS:
            for line, way in section.cases():
                assert line.check is not None
                try:
                    line.check(system.subject(way))
                except FAILURES:
                    failed += 1
                    print(f"{line.number} ({way}) failed:", file=sys.stderr)
                    traceback.print_exc()
    if not failed:
        PAGE.write_text(render())
    print(f"{sum(len([*section.cases()]) for section in SECTIONS)} checks, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
