from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Response

from a2a_sync import A2AApp, AgentHost, Limits
from a2a_sync.cli import main
from tests.cli.agents import INSIDER, Actor, Direct


@contextmanager
def served(
    app: A2AApp | AgentHost,
    wrap: Callable[[Any], Any] = lambda inner: inner,
    certificate: tuple[str, str] | None = None,
) -> Iterator[str]:
    """The app on a real socket of this process; `wrap` puts middleware around it, `certificate` TLS below it."""
    requests = logging.getLogger("werkzeug")
    level = requests.level
    requests.setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, wrap(app), threaded=True, ssl_context=certificate)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    finally:
        app.close(1.0)
        server.shutdown()
        thread.join(60)
        server.server_close()
        requests.setLevel(level)


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """An agent that does what it is asked, on a real socket."""
    with served(A2AApp(Actor(), extended_card=INSIDER)) as address:
        yield address


@pytest.fixture(scope="package")
def direct_url() -> Iterator[str]:
    """An agent that answers without tasks."""
    with served(A2AApp(Direct(), limits=Limits(direct_reply_timeout=60.0))) as address:
        yield address


@pytest.fixture(scope="package")
def plain_url() -> Iterator[str]:
    """An agent whose card says that it does not stream."""

    def without_streaming(inner: Any) -> Any:
        def app(environ: Any, start_response: Any) -> Any:
            if environ["REQUEST_METHOD"] != "GET":
                return inner(environ, start_response)
            card, _, _ = run_wsgi_app(inner, environ)
            return Response(b"".join(card).replace(b'"streaming":true', b'"streaming":false'))(environ, start_response)

        return app

    with served(A2AApp(Actor()), without_streaming) as address:
        yield address


@pytest.fixture
def run(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in an empty folder."""
    monkeypatch.chdir(str(tmp_path))
    for name in ("STORE", "AUTH", "PROFILE"):
        monkeypatch.delenv(f"A2A_SYNC_{name}", raising=False)
    # The folder is empty, so there is no file; that of the user is not read.
    monkeypatch.setenv("A2A_SYNC_CONFIG", "config.toml")

    def invoke(*arguments: str, input: bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(arguments), input=input)

    return invoke


@pytest.fixture(autouse=True)
def path_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands add the current folder to the path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
