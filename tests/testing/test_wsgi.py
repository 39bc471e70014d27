"""The transport that calls a WSGI application: what any client of HTTP relies on."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from a2a_sync.testing import wsgi_session


def test_a_request_arrives_as_it_was_sent() -> None:
    seen: dict[str, Any] = {}

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        seen.update(environ, body=environ["wsgi.input"].read())
        start_response("201 Created", [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Is", "there")])
        return [b"one ", b"two"]

    with wsgi_session(app) as session:
        answer = session.post("http://agent.test:81/some/path?q=a%20b", data="text", headers={"X-Own": "mine"})
    assert (answer.status_code, answer.reason, answer.text) == (201, "Created", "one two")
    assert answer.headers["X-Is"] == "there"
    assert (seen["REQUEST_METHOD"], seen["PATH_INFO"], seen["QUERY_STRING"]) == ("POST", "/some/path", "q=a%20b")
    assert (seen["HTTP_HOST"], seen["HTTP_X_OWN"], seen["body"]) == ("agent.test:81", "mine", b"text")


def test_pieces_come_one_by_one_and_leaving_closes_the_application() -> None:
    produced: list[Any] = []

    class Body:
        def __iter__(self) -> Any:
            for number in range(3):
                produced.append(number)
                yield b"%d" % number

        def close(self) -> None:
            produced.append("closed")

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return Body()

    with wsgi_session(app) as session, session.get("http://agent.test/", stream=True) as answer:
        assert answer.raw.read1() == b"0"
        assert produced == [0]
    assert produced == [0, "closed"]


def test_only_the_prefixes_named_lead_to_the_application() -> None:
    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return [b"here"]

    with wsgi_session(app, "http://agent.test") as session:
        assert session.get("http://agent.test/").text == "here"
        with pytest.raises(requests.ConnectionError):
            session.get("http://127.0.0.1:9/")


def test_an_application_that_names_no_status_is_wrong() -> None:
    with wsgi_session(lambda environ, start_response: [b"x"]) as session, pytest.raises(AssertionError, match="status"):
        session.get("http://agent.test/")


def test_cookies_are_kept_in_the_session() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [("Set-Cookie", "user=ada; Path=/"), ("Set-Cookie", "theme=dark; Path=/")])
        return [environ.get("HTTP_COOKIE", "none").encode()]

    with wsgi_session(app) as session:
        assert session.get("http://agent.test/login").text == "none"
        assert session.get("http://agent.test/").text == "user=ada; theme=dark"
