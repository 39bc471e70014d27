"""Which web pages may call: found out by what their browsers say, refused, or allowed by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, HTTPOptions
from a2a_sync.auth import ApiKeyAuth
from a2a_sync.wsgi.origins import Origins
from tests.wsgi import CARD, HOST, Peer, message, rpc

PAGE = "https://page.example"


def environ(**more: Any) -> dict[str, Any]:
    return {"REQUEST_METHOD": "POST", "HTTP_HOST": "site.example", **more}


@contextmanager
def served(**options: Any) -> Iterator[Peer]:
    agent = Agent("echo")
    agent.message(lambda message, context: message.text)
    with A2AApp(agent, **options) as app:
        yield Peer(app)


# -- found out ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HTTP_COOKIE": "sessionid=1"},
        {"HTTP_SEC_FETCH_MODE": "cors"},
        {"HTTP_SEC_FETCH_SITE": "same-origin", "HTTP_ORIGIN": "https://site.example"},
        {"HTTP_SEC_FETCH_SITE": "none"},
        {"HTTP_ORIGIN": "https://site.example"},
        # Behind a proxy that names another host, the browser's own word counts.
        {"HTTP_SEC_FETCH_SITE": "same-origin", "HTTP_ORIGIN": "https://public.example"},
    ],
)
def test_programs_and_pages_of_the_site_itself_are_welcome(headers: dict[str, str]) -> None:
    assert not Origins().refuse(environ(**headers))


FOREIGN = [
    {"HTTP_SEC_FETCH_SITE": "cross-site"},
    {"HTTP_SEC_FETCH_SITE": "cross-site", "HTTP_COOKIE": "sessionid=1"},
    {"HTTP_SEC_FETCH_SITE": "same-site"},
    {"HTTP_SEC_FETCH_SITE": "", "HTTP_ORIGIN": "https://site.example"},
    {"HTTP_ORIGIN": "https://evil.example"},
    {"HTTP_ORIGIN": "https://site.example.evil.example"},
    {"HTTP_ORIGIN": "https://site.example:8443"},
    {"HTTP_ORIGIN": "null"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_of_other_sites_are_found_out(headers: dict[str, str]) -> None:
    assert Origins().refuse(environ(**headers))
    assert Origins([PAGE]).refuse(environ(**headers))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_looking_is_free(method: str) -> None:
    assert not Origins().refuse(environ(REQUEST_METHOD=method, HTTP_SEC_FETCH_SITE="cross-site"))


@pytest.mark.parametrize(
    "allowed", [[PAGE], [PAGE + "/"], ["HTTPS://Page.Example"], ["*"], ["https://other.example", PAGE]]
)
def test_pages_of_allowed_origins_are_welcome(allowed: list[str]) -> None:
    assert not Origins(allowed).refuse(environ(HTTP_SEC_FETCH_SITE="cross-site", HTTP_ORIGIN=PAGE))


def test_an_allowed_origin_is_one_scheme_host_and_port() -> None:
    for origin in ("http://page.example", "https://page.example:8443", "https://sub.page.example", "null", ""):
        assert Origins([PAGE]).refuse(environ(HTTP_SEC_FETCH_SITE="cross-site", HTTP_ORIGIN=origin))


@pytest.mark.parametrize(
    "origin", ["page.example", "https://page.example/path", "https://u@page.example", "", "https://"]
)
def test_what_is_no_origin_is_refused_at_once(origin: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        A2AApp(Agent("x"), http=HTTPOptions(cors_origins=[origin]))


def test_one_string_is_no_list_of_origins() -> None:
    with pytest.raises(TypeError, match="cors_origins takes a list"):
        A2AApp(Agent("x"), http=HTTPOptions(cors_origins=PAGE))


# -- refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["application/json", ""])
def test_no_page_makes_its_visitors_browser_call_an_agent(content_type: str) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": PAGE, "Content-Type": content_type, "A2A-Version": "1.0"}
    with served() as peer:
        over_rpc = peer.request("POST", "/", rpc("SendMessage", message()), headers)
        over_http = peer.request("POST", "/message:send", b"{}", headers)
        tasks = peer.call("ListTasks", {}).result["tasks"]

    assert (over_rpc.status, over_http.status, tasks) == (403, 403, [])
    assert "another site" in over_rpc.json["error"]["message"]


def test_without_cors_no_page_may_read_anything() -> None:
    with served() as peer:
        answers = [peer.request(method, CARD, headers={"Origin": PAGE}) for method in ("GET", "OPTIONS")]

    assert not [name for answer in answers for name, _ in answer.headers if name.startswith("Access-Control")]


# -- allowed ------------------------------------------------------------------------------------------------------------


def test_a_browser_asks_first_and_gets_what_its_page_may_send() -> None:
    asking = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, a2a-version",
    }
    with served(http=HTTPOptions(cors_origins=[PAGE]), auth=ApiKeyAuth({"k": "ada"}, header="X-Key")) as peer:
        for path in ("/", "/tasks/x:cancel", CARD):
            allowed = peer.request("OPTIONS", path, headers=asking)
            assert (allowed.status, allowed.headers["Access-Control-Allow-Origin"]) == (204, PAGE)
            assert allowed.headers["Access-Control-Allow-Headers"] == "authorization, content-type, a2a-version"
            assert allowed.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE"
            assert "Access-Control-Allow-Credentials" not in allowed.headers
        other = peer.request("OPTIONS", "/", headers={**asking, "Origin": "https://evil.example"})

    assert "Access-Control-Allow-Origin" not in other.headers
    assert other.headers["Vary"] == "Origin"


def test_an_allowed_page_calls_and_reads_the_answer_also_a_refusal() -> None:
    headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
    with served(http=HTTPOptions(cors_origins=[PAGE]), auth=ApiKeyAuth({"k": "ada"}, header="X-Key")) as peer:
        refused = peer.call("SendMessage", message(), headers=headers)
        answered = peer.call("SendMessage", message(), headers={**headers, "X-Key": "k"})
        with peer.stream("SendStreamingMessage", message(), headers={**headers, "X-Key": "k"}) as stream:
            list(stream.events())
        card = peer.request("GET", CARD, headers=headers)

    assert (refused.status, answered.status, card.status) == (401, 200, 200)
    for answer in (refused, answered, stream, card):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert "WWW-Authenticate" in answer.headers["Access-Control-Expose-Headers"]
    assert card.headers.getlist("Vary") == ["A2A-Version, Host, Origin"]


def test_shared_caches_get_vary() -> None:
    with served(http=HTTPOptions(cors_origins=[PAGE])) as peer:
        assert peer.request("GET", CARD).headers.getlist("Vary") == ["A2A-Version, Host, Origin"]


def test_headers_that_are_none_are_not_repeated() -> None:
    asking = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x: y"}
    with served(http=HTTPOptions(cors_origins=["*"])) as peer:
        assert peer.request("OPTIONS", "/", headers=asking).headers["Access-Control-Allow-Headers"] == ""


# -- hosts --------------------------------------------------------------------------------------------------------------


def test_a_host_that_is_not_trusted_gets_nothing_but_the_pages_for_health() -> None:
    with served(http=HTTPOptions(trusted_hosts=["agents.example"])) as peer:
        for method, path in (("POST", "/"), ("GET", CARD), ("GET", "/tasks"), ("OPTIONS", "/")):
            refused = peer.request(method, path, rpc("ListTasks", {}) if method == "POST" else b"")
            assert (refused.status, refused.json["error"]["message"]) == (400, "this host is not served here")
        assert [peer.request("GET", path).status for path in ("/healthz", "/readyz")] == [200, 200]
        served_here = peer.call(
            "ListTasks", {}, headers={"Host": "agents.example"}, environ={"HTTP_HOST": "agents.example"}
        )

    assert served_here.result["tasks"] == []


def test_without_trusted_hosts_every_name_is_served() -> None:
    with served() as peer:
        assert peer.call("ListTasks", {}, environ={"HTTP_HOST": f"other.{HOST}"}).result["tasks"] == []
