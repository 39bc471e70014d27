"""One suite of scenarios, run over several transports and in each protocol version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from wsgiref.validate import validator

import pytest

from a2a_sync import Client
from a2a_sync.testing import wsgi_session
from tests.live import gunicorn, gunicorn_gevent
from tests.scenarios.agent import make_app

MakeClient = Callable[[], Client]
#: Creates clients that speak the given version and binding, or the ones that the client selects.
MakeClientOf = Callable[..., Client]
#: A factory of clients, and the version and the binding that they speak.
Way = tuple[MakeClient, str, str]

#: gRPC does not work under gevent, whose run leaves out what is marked `live`.
GRPC = [
    pytest.mark.live,
    pytest.mark.skipif(find_spec("grpc") is None, reason="needs the extra grpc, which `make test` installs"),
]
WAYS = [
    pytest.param(("local-memory", "1.0", None), id="local-memory"),
    pytest.param(("local-sqlite", "1.0", None), id="local-sqlite"),
    pytest.param(("wsgi", "1.0", "JSONRPC"), id="wsgi-1.0"),
    pytest.param(("wsgi", "0.3", "JSONRPC"), id="wsgi-0.3"),
    pytest.param(("wsgi", "1.0", "HTTP+JSON"), id="wsgi-1.0-rest"),
    pytest.param(("wsgi", "0.3", "HTTP+JSON"), id="wsgi-0.3-rest"),
    pytest.param(("grpc", "1.0", "GRPC"), id="grpc-1.0", marks=GRPC),
    pytest.param(("grpc", "0.3", "GRPC"), id="grpc-0.3", marks=GRPC),
    pytest.param(("gunicorn", "1.0", "JSONRPC"), id="gunicorn-1.0", marks=pytest.mark.live),
    pytest.param(("gunicorn", "0.3", "JSONRPC"), id="gunicorn-0.3", marks=pytest.mark.live),
    pytest.param(("gunicorn", "1.0", "HTTP+JSON"), id="gunicorn-1.0-rest", marks=pytest.mark.live),
    pytest.param(("gunicorn", "0.3", "HTTP+JSON"), id="gunicorn-0.3-rest", marks=pytest.mark.live),
]


@contextmanager
def serving(transport: str, folder: Path) -> Iterator[MakeClientOf]:
    """Serve the scenario agent in one of several ways; yield a factory of clients for it."""
    store = f"sqlite:///{folder / 'tasks.db'}"
    if transport.startswith("gunicorn"):
        environment = {"SCENARIO_STORE": store}
        serve = gunicorn_gevent if transport == "gunicorn-gevent" else partial(gunicorn, threads=24)
        with serve("tests.scenarios.agent:app", environment=environment) as server:
            yield lambda version, binding=None: Client(server.url, protocol_version=version, protocol_binding=binding)
        return
    app = make_app(store if transport == "local-sqlite" else None)
    try:
        if transport == "grpc":
            from a2a_sync.grpc import GRPCServer

            with GRPCServer(app, "127.0.0.1:0"):
                card = app.agent_card("http://agent.test/")
                yield lambda version, binding=None: Client(card, protocol_version=version, protocol_binding=binding)
        elif transport == "wsgi":
            # The validator checks every request and response against the WSGI specification.
            session = wsgi_session(validator(app))
            yield lambda version, binding=None: Client(
                "http://agent.test", session=session, protocol_version=version, protocol_binding=binding
            )
        else:
            yield lambda version, binding=None: Client(app)
    finally:
        app.close(timeout=0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MakeClientOf]]:
    """`serving`, with one agent for all versions and bindings of a transport: starting a server takes a second."""
    with ExitStack() as stack:
        yield cache(lambda transport: stack.enter_context(serving(transport, tmp_path_factory.mktemp("scenario"))))


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, served: Callable[[str], MakeClientOf]) -> Way:
    """The transport to the agent, the protocol version and the binding."""
    transport, version, binding = request.param
    make = served(transport)
    return lambda: make(version, binding), version, binding or ""


@pytest.fixture
def make_client(way: Way) -> MakeClient:
    """A factory of clients of one agent, for the parametrised transport."""
    return way[0]


@pytest.fixture
def version(way: Way) -> str:
    """The protocol version of the clients."""
    return way[1]


@pytest.fixture
def supports_references(way: Way) -> bool:
    """Whether a message can refer to other tasks; the proto of 0.3 has no member for it."""
    return way[1:] not in (("0.3", "HTTP+JSON"), ("0.3", "GRPC"))


@pytest.fixture
def supports_lists(way: Way) -> bool:
    """Whether tasks can be listed; 0.3 supports that over HTTP+JSON only."""
    return way[1:] not in (("0.3", "JSONRPC"), ("0.3", "GRPC"))


@pytest.fixture
def supports_file_names(way: Way) -> bool:
    """Whether files have names; the proto of 0.3 has no member for it, which its JSON has in other bindings."""
    return way[1:] != ("0.3", "GRPC")


@pytest.fixture(scope="module", params=["wsgi", pytest.param("gunicorn", marks=pytest.mark.live)])
def make_client_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeClientOf]:
    """A factory of clients of one agent, for a given protocol version."""
    with serving(request.param, tmp_path_factory.mktemp("versions")) as make:
        yield make
