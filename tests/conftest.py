"""Property tests give the same verdict at every run. `make test` tries 10 examples, `make check` 100 (profile `deep`)."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from a2a_sync.concurrency.gevent import patched

#: The package's plugin, named for runs where its entry point is not installed, and `--disorder`.
pytest_plugins = ["a2a_sync.testing.plugin", "tests.disorder"]

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=10,
    # It limits the time in which examples are made, which depends on what else the machine does.
    suppress_health_check=(HealthCheck.too_slow,),
)
settings.register_profile("deep", settings.get_profile("repeatable"), max_examples=100)
settings.load_profile("repeatable")

#: These tests need a patched process: see `tests.gevent_suite`.
collect_ignore = [] if patched() else ["gevent"]


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """The URL of an empty store that processes can share; tests in `tests/services` get one of PostgreSQL."""
    return f"sqlite:///{tmp_path / 'tasks.db'}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Soak tests take minutes and run only if named on the command line."""
    named = any("soak" in argument for argument in config.args)
    return True if collection_path.name == "soak" and not named else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under pytest-xdist, schedule modules with long tests first, so that none of them is left for the end."""
    if hasattr(config, "workerinput"):
        long = {item.path for item in items if item.get_closest_marker("live") or item.get_closest_marker("timeout")}
        items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """Modules and test items live until the end: exclude them from every later garbage collection."""
    gc.collect()
    gc.freeze()
