"""Shared parts of the tests against other implementations: test classes, servers, records, and the page docs/interop.md."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.peers.client_tests", "tests.interopjs.server_tests")
