"""Real servers: what is seen of a script through them, and that they come, go and say why they did not come."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests

from a2a_sync.errors import StreamInterruptedError
from a2a_sync.testing import gunicorn_server, outline, socket_server
from tests.engine import TIMEOUT
from tests.live import ROOT, gunicorn, gunicorn_gevent

WHOLE = ["working", "one ", "two", "completed"]


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("serve", [gunicorn, gunicorn_gevent])
@pytest.mark.parametrize("target", ["app", "broken"])
def test_cuts_are_seen_through_gunicorn_as_without_it(serve: Any, target: str, a2a_client: Any) -> None:
    with serve(f"tests.testing.served:{target}") as server:
        stream = a2a_client(server.url, retry=None).stream("go")
        with pytest.raises(StreamInterruptedError):
            outline(stream)
        assert stream.text == "one "
        assert outline(a2a_client(server.url).stream("go")) == WHOLE


@pytest.mark.live
def test_a_server_that_does_not_come_up_says_why() -> None:
    with pytest.raises(AssertionError, match="no_such_module"), gunicorn_server("no_such_module:app", folder=ROOT):
        pass


def test_requests_to_a_socket_are_served_side_by_side_and_not_after_the_block() -> None:
    both = threading.Barrier(2)

    def app(environ: Any, start_response: Any) -> Any:
        both.wait(TIMEOUT)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"here"]

    answers: list[str] = []
    with socket_server(app) as url:
        get = lambda: answers.append(requests.get(url, timeout=TIMEOUT).text)  # noqa: E731
        callers = [threading.Thread(target=get, daemon=True) for _ in range(2)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(TIMEOUT)
    assert answers == ["here", "here"]
    with pytest.raises(requests.ConnectionError):
        requests.get(url, timeout=TIMEOUT)
