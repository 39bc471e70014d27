from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from werkzeug.serving import make_server

from a2a_sync import A2AApp
from a2a_sync.cli import main
from tests.cli.agents import Actor, Direct


def served(app: A2AApp) -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        app.close(1.0)
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """An agent that does what it is told, on a real socket."""
    yield from served(A2AApp(Actor()))


@pytest.fixture(scope="package")
def direct_url() -> Iterator[str]:
    """An agent that answers without tasks."""
    yield from served(A2AApp(Direct()))


@pytest.fixture
def run(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in an empty folder."""
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.delenv("A2A_SYNC_STORE", raising=False)

    def invoke(*arguments: str, input: bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(arguments), input=input)

    return invoke
