"""These tests need Node and the packages of `package.json`: see `make interop`."""

from __future__ import annotations

from tests.interopjs.node import HERE
from tests.peers.record import pytest_runtest_makereport as pytest_runtest_makereport

if not (HERE / "node_modules").is_dir():
    collect_ignore_glob = ["test_*.py"]
