"""The tests of runs, of the time at which tasks are stored and of idempotent sends once more, over PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine import Served
from tests.engine.test_run import *  # noqa: F403
from tests.engine.test_runs import *  # noqa: F403
from tests.engine.test_store_timeout import *  # noqa: F403
from tests.server.test_idempotency import *  # noqa: F403
from tests.services.conftest import serve  # noqa: F401 (in place of the fixture of these modules)

# A process that shares a store has a thread for its heartbeats, or it accepts no run.
del test_a_system_without_threads_fails_or_refuses_the_task_and_gives_the_place_back  # noqa: F821


@pytest.fixture
def serve_any(serve: Callable[..., Served]) -> Callable[..., Served]:  # noqa: F811
    return serve
