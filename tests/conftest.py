"""Property tests give the same verdict at every run; ``--hypothesis-profile=default`` lets them look further."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from a2a_sync.concurrency.gevent import patched

#: The plugin of the package, also where it was installed without its entry point, and `--disorder`.
pytest_plugins = ["a2a_sync.testing.plugin", "tests.disorder"]

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

#: What is tested there exists in a patched process only: see `tests.gevent_suite`.
collect_ignore = [] if patched() else ["gevent"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What takes minutes is run only where it is asked for by name."""
    named = any("soak" in argument for argument in config.args)
    return True if collection_path.name == "soak" and not named else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, files that take long go first: none of them is left over at the end."""
    if hasattr(config, "workerinput"):
        long = {item.path for item in items if item.get_closest_marker("live") or item.get_closest_marker("timeout")}
        items.sort(key=lambda item: item.path not in long)
