"""Records the results of these tests for docs/interop.md."""

from __future__ import annotations

from tests.peers.record import pytest_runtest_makereport as pytest_runtest_makereport
