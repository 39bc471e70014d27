"""Many URLs: every function that parses one must agree with the connection that is made for it.

The default is 100,000 URLs; the environment variable ``A2A_TEST_URLS`` sets another count. ``make fuzz-urls`` runs a million in ten
minutes.
"""

from __future__ import annotations

import os

import pytest

from tests.hostile.test_urls import differ

COUNT = int(os.environ.get("A2A_TEST_URLS", "100000")) // 10


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_parsers_and_connections_agree_on_many_urls(seed: int) -> None:
    counts = differ(COUNT, seed=1000 + seed)

    assert counts["accepted"] > COUNT // 10
    assert counts["connected"] > COUNT // 10
