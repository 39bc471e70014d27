"""One scenario suite, several ways to the agent, in each version of the protocol that goes over a wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.validate import validator

import pytest

from a2a_sync import Client
from a2a_sync.testing import wsgi_session
from tests.live import gunicorn
from tests.scenarios.agent import make_app

MakeClient = Callable[[], Client]
#: Makes clients that speak the version given, or the one they choose themselves.
MakeClientOf = Callable[[str | None], Client]

WAYS = [
    pytest.param(("local-memory", "1.0"), id="local-memory"),
    pytest.param(("local-sqlite", "1.0"), id="local-sqlite"),
    pytest.param(("wsgi", "1.0"), id="wsgi-1.0"),
    pytest.param(("wsgi", "0.3"), id="wsgi-0.3"),
    pytest.param(("gunicorn", "1.0"), id="gunicorn-1.0", marks=pytest.mark.live),
    pytest.param(("gunicorn", "0.3"), id="gunicorn-0.3", marks=pytest.mark.live),
]


@contextmanager
def serving(place: str, folder: Path) -> Iterator[MakeClientOf]:
    """The scenario agent at some place, and a function that makes clients of it."""
    store = f"sqlite:///{folder / 'tasks.db'}"
    if place == "gunicorn":
        with gunicorn("tests.scenarios.agent:app", threads=24, environment={"SCENARIO_STORE": store}) as server:
            yield lambda version: Client(server.url, version=version)
        return
    app = make_app(store if place == "local-sqlite" else None)
    try:
        if place == "wsgi":
            # Every request and answer is checked against the WSGI specification.
            session = wsgi_session(validator(app))
            yield lambda version: Client("http://agent.test", session=session, version=version)
        else:
            yield lambda version: Client(app)
    finally:
        app.close(timeout=0)


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MakeClientOf, str]]:
    """How the agent is reached, and in which version of the protocol."""
    place, version = request.param
    with serving(place, tmp_path_factory.mktemp("scenario")) as make:
        yield make, version


@pytest.fixture
def make_client(way: tuple[MakeClientOf, str]) -> MakeClient:
    """A function that makes clients of one agent, reached in the way the test is parametrised with."""
    make, version = way
    return lambda: make(version)


@pytest.fixture
def version(way: tuple[MakeClientOf, str]) -> str:
    """The version of the protocol that `make_client`'s clients speak."""
    return way[1]


@pytest.fixture(scope="module", params=["wsgi", pytest.param("gunicorn", marks=pytest.mark.live)])
def make_client_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeClientOf]:
    """A function that makes clients of one agent in the version it is given."""
    with serving(request.param, tmp_path_factory.mktemp("versions")) as make:
        yield make
