"""What these tests see is told to the page about other implementations."""

from __future__ import annotations

from tests.peers.record import pytest_runtest_makereport as pytest_runtest_makereport
