"""These tests need the official SDK of protocol 0.3, which conflicts with the newest one: see `make interop`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from tests.peers.record import pytest_runtest_makereport as pytest_runtest_makereport

try:
    _release = version("a2a-sdk")
except PackageNotFoundError:
    _release = ""
if not _release.startswith("0.3."):
    collect_ignore_glob = ["test_*.py"]
