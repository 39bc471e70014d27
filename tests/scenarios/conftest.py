"""One scenario suite, several ways to the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from wsgiref.validate import validator

import pytest

from a2a_sync import Client
from a2a_sync.testing import wsgi_session
from tests.live import gunicorn
from tests.scenarios.agent import make_app

MakeClient = Callable[[], Client]

WAYS = [
    "local-memory",
    "local-sqlite",
    "wsgi",
    pytest.param("gunicorn", marks=pytest.mark.live),
]


@pytest.fixture(scope="module", params=WAYS)
def make_client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeClient]:
    """A function that makes clients of one agent, reached in the way the test is parametrised with."""
    store = f"sqlite:///{tmp_path_factory.mktemp('scenario') / 'tasks.db'}"
    with ExitStack() as stack:
        match request.param:
            case "gunicorn":
                environment = {"SCENARIO_STORE": store}
                server = stack.enter_context(gunicorn("tests.scenarios.agent:app", threads=24, environment=environment))
                yield lambda: Client(server.url)
            case "wsgi":
                app = make_app()
                stack.callback(app.close, timeout=0)
                # Every request and answer is checked against the WSGI specification.
                session = wsgi_session(validator(app))
                yield lambda: Client("http://agent.test", session=session)
            case _:
                app = make_app(store if request.param == "local-sqlite" else None)
                stack.callback(app.close, timeout=0)
                yield lambda: Client(app)
