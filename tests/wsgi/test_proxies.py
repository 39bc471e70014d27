"""The address behind proxies: public where their number is trusted, and what the request itself says where it is not."""

from __future__ import annotations

import time
from typing import Any

import pytest
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from a2a_sync import A2AApp, Agent
from a2a_sync.wsgi.options import HTTPOptions
from a2a_sync.wsgi.proxies import TrustedProxies
from tests.wsgi import CARD, HOST, Answer, Peer, message

FORWARDED = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "public.example",
    "X-Forwarded-Prefix": "/x",
}


def app(**options: Any) -> A2AApp:
    agent = Agent("echo", description="d")
    agent.message(lambda message, context: message.text)
    return A2AApp(agent, **options)


def card(served: Any, headers: dict[str, str], path: str = CARD) -> Answer:
    return Peer(served).request("GET", path, headers=headers)


def address(answer: Answer) -> str:
    """The one address that every interface in the card has, in both of its forms, slashes at the end aside."""
    assert answer.status == 200, answer.body
    card = answer.json
    url: str = card["supportedInterfaces"][0]["url"]
    interfaces = [*card["supportedInterfaces"], *card.get("additionalInterfaces", ()), {"url": card.get("url", url)}]
    assert {interface["url"].rstrip("/") for interface in interfaces} == {url.rstrip("/")}
    return url


# -- without trust ------------------------------------------------------------------------------------------------------


def test_without_trusted_proxies_no_header_counts() -> None:
    assert address(card(app(), FORWARDED)) == f"http://{HOST}/"


@pytest.mark.parametrize("name", FORWARDED)
def test_without_trust_caches_need_not_look_at_what_changes_nothing(name: str) -> None:
    answer = card(app(), FORWARDED)
    assert name not in answer.headers["Vary"]
    assert answer.headers["ETag"] == card(app(), {}).headers["ETag"]


# -- with trust ---------------------------------------------------------------------------------------------------------


def test_one_trusted_proxy_says_what_the_public_address_is() -> None:
    assert address(card(app(http=HTTPOptions(trusted_proxies=1)), FORWARDED)) == "https://public.example/x/"


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("X-Forwarded-Proto", "http://public.example/x/"),
        ("X-Forwarded-Host", f"https://{HOST}/x/"),
        ("X-Forwarded-Prefix", "https://public.example/"),
    ],
)
def test_each_header_counts_for_itself(left_out: str, expected: str) -> None:
    headers = {name: value for name, value in FORWARDED.items() if name != left_out}
    assert address(card(app(http=HTTPOptions(trusted_proxies=1)), headers)) == expected


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("/x/", "/x/"), ("x", "/x/"), ("/x/y", "/x/y/"), ("/", "/"), ("", "/"), ("/caf\xc3\xa9", "/caf%C3%A9/")],
)
def test_a_prefix_is_joined_with_one_slash(prefix: str, expected: str) -> None:
    served = app(http=HTTPOptions(trusted_proxies=1))
    assert address(card(served, {"X-Forwarded-Prefix": prefix})) == f"http://{HOST}{expected}"


@pytest.mark.parametrize("hops", [1, 2])
def test_the_prefix_stands_before_the_path_that_the_app_is_mounted_at(hops: int) -> None:
    mounted = app(http=HTTPOptions(trusted_proxies=hops))
    served = DispatcherMiddleware(NotFound(), {"/agents/echo": mounted})
    headers = {name: ", ".join([value] * hops) for name, value in FORWARDED.items()}
    answer = card(served, headers, "/agents/echo" + CARD)
    assert address(answer) == "https://public.example/x/agents/echo/"


def test_what_a_client_made_up_is_not_the_value_of_the_last_proxy() -> None:
    forged = {name: f"evil, {value}" for name, value in FORWARDED.items()}
    assert address(card(app(http=HTTPOptions(trusted_proxies=1)), forged)) == "https://public.example/x/"


def test_of_two_proxies_the_first_knows_the_address() -> None:
    headers = {
        "X-Forwarded-Proto": "evil, https, http",
        "X-Forwarded-Host": "evil.example, public.example, inner.example",
        "X-Forwarded-Prefix": "/evil, /x, /y",
    }
    assert address(card(app(http=HTTPOptions(trusted_proxies=2)), headers)) == "https://public.example/x/"


def test_a_header_with_fewer_values_than_proxies_was_not_set_by_all_of_them() -> None:
    assert address(card(app(http=HTTPOptions(trusted_proxies=2)), FORWARDED)) == f"http://{HOST}/"


@pytest.mark.parametrize("scheme", ["ftp", "javascript", "HTTPS://", ""])
def test_a_scheme_that_is_none_of_the_web_is_ignored(scheme: str) -> None:
    answer = card(app(http=HTTPOptions(trusted_proxies=1)), {**FORWARDED, "X-Forwarded-Proto": scheme})
    assert address(answer) == "http://public.example/x/"


def test_ports_of_the_public_address_are_kept() -> None:
    answer = card(app(http=HTTPOptions(trusted_proxies=1)), {**FORWARDED, "X-Forwarded-Host": "public.example:8443"})
    assert address(answer) == "https://public.example:8443/x/"


def test_calls_answer_behind_proxies_as_without() -> None:
    peer = Peer(app(http=HTTPOptions(trusted_proxies=1)))
    answer = peer.call("SendMessage", message("hi"), headers=FORWARDED)
    assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "hi"}]


def test_a_number_of_proxies_is_not_negative() -> None:
    with pytest.raises(ValueError, match="trusted_proxies"):
        app(http=HTTPOptions(trusted_proxies=-1))


# -- hosts and caches ---------------------------------------------------------------------------------------------------


def test_a_trusted_proxy_cannot_bring_a_host_that_is_not_trusted() -> None:
    served = app(http=HTTPOptions(trusted_proxies=1, trusted_hosts=["public.example"]))
    assert address(card(served, FORWARDED)) == "https://public.example/x/"
    assert card(served, {**FORWARDED, "X-Forwarded-Host": "evil.example"}).status == 400


@pytest.mark.parametrize("hosts", [None, ["public.example"]])
def test_vary_lists_the_headers_of_the_address(hosts: list[str] | None) -> None:
    answer = card(app(http=HTTPOptions(trusted_proxies=1, trusted_hosts=hosts)), FORWARDED)
    varied = {name.strip() for name in answer.headers["Vary"].split(",")}
    # Also of trusted hosts: they may be requested with any port.
    assert {"Host", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix"} <= varied


def test_a_given_url_stands_over_everything_and_depends_on_no_header() -> None:
    served = app(http=HTTPOptions(trusted_proxies=1), url="https://fixed.example/a")
    answer = card(served, FORWARDED)
    assert address(answer) == "https://fixed.example/a/"
    assert answer.headers["Vary"] == "A2A-Version"


# -- what is below ------------------------------------------------------------------------------------------------------


def test_the_environ_below_names_the_client_and_keeps_no_trace_of_the_mount() -> None:
    seen: list[dict[str, Any]] = []

    def below(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.append(environ)
        start_response("204 No Content", [])
        return []

    Peer(TrustedProxies(below, 1)).request("GET", headers=FORWARDED, environ={"REMOTE_ADDR": "127.0.0.1"})
    (environ,) = seen
    assert environ["REMOTE_ADDR"] == "203.0.113.7"
    assert not [key for key in environ if key.startswith("a2a_sync.")]


def test_of_a_long_header_the_end_is_read_which_proxies_have_added() -> None:
    seen: list[dict[str, Any]] = []

    def below(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.append(environ)
        start_response("204 No Content", [])
        return []

    headers = {"X-Forwarded-For": "192.0.2.1, " * 10_000 + "203.0.113.7", "X-Forwarded-Host": "a" * 3_000}
    began = time.process_time()
    for _ in range(20):
        Peer(TrustedProxies(below, 1)).request("GET", headers=headers, environ={"REMOTE_ADDR": "127.0.0.1"})
    assert time.process_time() - began < 0.5
    assert seen[0]["REMOTE_ADDR"] == "203.0.113.7"
    assert seen[0]["HTTP_HOST"] != "a" * 3_000
