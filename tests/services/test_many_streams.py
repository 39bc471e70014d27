"""Thousands of streams at once over PostgreSQL."""

from __future__ import annotations

import pytest

from tests.faults.test_many_streams import cut_at_once

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def test_ten_thousand_streams_that_are_cut_at_once_leave_space_for_others(store_url: str) -> None:
    cut_at_once(store_url)
