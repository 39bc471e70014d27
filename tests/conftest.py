"""Property tests give the same verdict at every run; ``--hypothesis-profile=default`` lets them look further."""

from __future__ import annotations

import pytest
from hypothesis import settings

from a2a_sync.native import patched

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

#: What is tested there exists in a patched process only: see `tests.gevent_suite`.
collect_ignore = [] if patched() else ["gevent"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--heavy", action="store_true", help="run the tests that take minutes too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--heavy"):
        heavy = [item for item in items if item.get_closest_marker("heavy")]
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]
