"""The tests of deliveries to webhooks once more, over PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine import Served
from tests.push.test_delivery import *  # noqa: F403
from tests.push.test_delivery import SWIFT, UNPOLLED
from tests.services.conftest import serve as serve_postgres  # noqa: F401


@pytest.fixture
def serve(serve_postgres: Callable[..., Served]) -> Callable[..., Served]:  # noqa: F811
    def make(handler: Any, **options: Any) -> Served:
        return serve_postgres(handler, **{"push": SWIFT, **UNPOLLED, **options})

    return make
