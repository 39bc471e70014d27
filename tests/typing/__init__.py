"""Tests with type checkers."""

from tests.live import ROOT

#: Options of mypy. They are the same in all tests, so that its cache is valid for all and the library is analysed once.
MYPY = (
    "--config-file=",
    "--strict",
    "--follow-imports=silent",
    "--ignore-missing-imports",
    f"--cache-dir={ROOT}/.mypy_cache/tests",
)
