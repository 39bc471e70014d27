"""One scenario suite, several ways to the agent, in each version of the protocol that goes over a wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from wsgiref.validate import validator

import pytest

from a2a_sync import Client
from a2a_sync.testing import wsgi_session
from tests.live import gunicorn, gunicorn_gevent
from tests.scenarios.agent import make_app

MakeClient = Callable[[], Client]
#: Makes clients that speak the version and the binding given, or those they choose themselves.
MakeClientOf = Callable[..., Client]
#: A function that makes clients, the version and the binding that they speak.
Way = tuple[MakeClient, str, str]

WAYS = [
    pytest.param(("local-memory", "1.0", None), id="local-memory"),
    pytest.param(("local-sqlite", "1.0", None), id="local-sqlite"),
    pytest.param(("wsgi", "1.0", "JSONRPC"), id="wsgi-1.0"),
    pytest.param(("wsgi", "0.3", "JSONRPC"), id="wsgi-0.3"),
    pytest.param(("wsgi", "1.0", "HTTP+JSON"), id="wsgi-1.0-rest"),
    pytest.param(("wsgi", "0.3", "HTTP+JSON"), id="wsgi-0.3-rest"),
    pytest.param(("gunicorn", "1.0", "JSONRPC"), id="gunicorn-1.0", marks=pytest.mark.live),
    pytest.param(("gunicorn", "0.3", "JSONRPC"), id="gunicorn-0.3", marks=pytest.mark.live),
    pytest.param(("gunicorn", "1.0", "HTTP+JSON"), id="gunicorn-1.0-rest", marks=pytest.mark.live),
    pytest.param(("gunicorn", "0.3", "HTTP+JSON"), id="gunicorn-0.3-rest", marks=pytest.mark.live),
]


@contextmanager
def serving(place: str, folder: Path) -> Iterator[MakeClientOf]:
    """The scenario agent at some place, and a function that makes clients of it."""
    store = f"sqlite:///{folder / 'tasks.db'}"
    if place.startswith("gunicorn"):
        environment = {"SCENARIO_STORE": store}
        serve = gunicorn_gevent if place == "gunicorn-gevent" else partial(gunicorn, threads=24)
        with serve("tests.scenarios.agent:app", environment=environment) as server:
            yield lambda version, binding=None: Client(server.url, protocol_version=version, protocol_binding=binding)
        return
    app = make_app(store if place == "local-sqlite" else None)
    try:
        if place == "wsgi":
            # Every request and answer is checked against the WSGI specification.
            session = wsgi_session(validator(app))
            yield lambda version, binding=None: Client(
                "http://agent.test", session=session, protocol_version=version, protocol_binding=binding
            )
        else:
            yield lambda version, binding=None: Client(app)
    finally:
        app.close(timeout=0)


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """How the agent is reached, and in which version of the protocol over which binding."""
    place, version, binding = request.param
    with serving(place, tmp_path_factory.mktemp("scenario")) as make:
        yield lambda: make(version, binding), version, binding or ""


@pytest.fixture
def make_client(way: Way) -> MakeClient:
    """A function that makes clients of one agent, reached in the way the test is parametrised with."""
    return way[0]


@pytest.fixture
def version(way: Way) -> str:
    """The version of the protocol that `make_client`'s clients speak."""
    return way[1]


@pytest.fixture
def refers(way: Way) -> bool:
    """A message can name other tasks: the JSON that 0.3 has for HTTP+JSON has no word for them."""
    return way[1:] != ("0.3", "HTTP+JSON")


@pytest.fixture
def lists(way: Way) -> bool:
    """Tasks can be listed: 0.3 has that over HTTP+JSON only."""
    return way[1:] != ("0.3", "JSONRPC")


@pytest.fixture(scope="module", params=["wsgi", pytest.param("gunicorn", marks=pytest.mark.live)])
def make_client_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeClientOf]:
    """A function that makes clients of one agent in the version it is given."""
    with serving(request.param, tmp_path_factory.mktemp("versions")) as make:
        yield make
