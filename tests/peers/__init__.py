"""What the tests against other implementations share: what is said, what our agent is, and the page about it all."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.peers.conversations", "tests.interopjs.their_client")
