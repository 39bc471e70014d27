"""Fixtures for pytest. Their names begin with ``a2a_``; the library is loaded when a test requests one of them.

pytest loads this plugin automatically if the package is installed; ``-p no:a2a_sync.testing.plugin`` disables it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from a2a_sync.client import Client
    from a2a_sync.testing.fakeclock import FakeClock
    from a2a_sync.testing.servers import LiveServer

pytest.register_assert_rewrite("a2a_sync.testing.storecontract")


@pytest.fixture
def a2a_clock() -> Iterator[FakeClock]:
    """A `FakeClock`, which begins at the real time. Request it before the fixtures that create apps."""
    from a2a_sync.testing.fakeclock import FakeClock

    with FakeClock() as clock:
        yield clock


@pytest.fixture
def a2a_client() -> Iterator[Callable[..., Client]]:
    """A function that creates clients:

    ``a2a_client(agent)``, with the parameters of `client_of`. Closed after the test.
    """
    with ExitStack() as stack:

        def make(target: Any, over: str = "local", **options: Any) -> Client:
            from a2a_sync.testing.reaching import client_of

            return stack.enter_context(client_of(target, over, **options))

        yield make


@pytest.fixture
def a2a_wsgi_client(a2a_client: Callable[..., Client]) -> Callable[..., Client]:
    """``a2a_client(…, over="wsgi")``: the client writes and reads HTTP, without a socket."""

    def make(target: Any, **options: Any) -> Client:
        return a2a_client(target, "wsgi", **options)

    return make


@pytest.fixture
def a2a_gunicorn() -> Iterator[Callable[..., LiveServer]]:
    """A function that starts servers: ``a2a_gunicorn("module:app")``, with the parameters of `gunicorn_server`.

    They are stopped after the test.
    """
    with ExitStack() as stack:

        def start(target: str, *options: str, **more: Any) -> LiveServer:
            from a2a_sync.testing.servers import gunicorn_server

            return stack.enter_context(gunicorn_server(target, *options, **more))

        yield start
