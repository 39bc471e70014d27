"""The tests of consoles of several processes once more, over PostgreSQL, and with messages over Redis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_sync import A2AApp
from tests.console.test_operate import *  # noqa: F403
from tests.console.test_operate import check_that_another_process_explains
from tests.services.brokers import redis_broker
from tests.services.conftest import store_url  # noqa: F401

redispubsub = pytest.importorskip("a2a_sync.stores.redispubsub", reason="needs the extra redis")


@pytest.mark.parametrize("key", [None, "a key of these tests"])
def test_a_process_is_asked_over_redis(make_app: Callable[..., A2AApp], tmp_path: Path, key: str | None) -> None:
    with redis_broker(tmp_path) as broker:
        runner, other = (make_app(pubsub=redispubsub.RedisPubSub(broker.url, key=key)) for _ in range(2))
        check_that_another_process_explains(runner, other)
        runner.close(1.0)
        other.close(1.0)
