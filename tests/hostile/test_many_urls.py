"""Many URLs through everything that judges one, against the connections that are made for them.

There are 100,000 of them, unless the environment variable ``A2A_TEST_URLS`` gives another count. ``make fuzz-urls`` takes a
million, which needs ten minutes.
"""

from __future__ import annotations

import os

import pytest

from tests.hostile.test_urls import differ

COUNT = int(os.environ.get("A2A_TEST_URLS", "100000")) // 10


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_judges_and_connections_agree_on_many_urls(seed: int) -> None:
    counts = differ(COUNT, seed=1000 + seed)

    assert counts["accepted"] > COUNT // 10
    assert counts["connected"] > COUNT // 10
