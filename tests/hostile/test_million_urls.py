"""A million URLs through everything that judges one, against the connections that are made for them."""

from __future__ import annotations

import pytest

from tests.hostile.test_urls import differ


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_judges_and_connections_agree_on_a_million_urls(seed: int) -> None:
    counts = differ(100_000, seed=1000 + seed)

    assert counts["accepted"] > 10_000
    assert counts["connected"] > 10_000
