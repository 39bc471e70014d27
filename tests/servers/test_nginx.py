"""Behind nginx: events are not buffered, disconnects are detected, idle streams stay open, and URLs are the public ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from a2a_sync import Client, Task, TaskNotFoundError, TaskState
from tests.engine import eventually
from tests.hosts.host import Host
from tests.hosts.sites import PREFIX, THREADS
from tests.live import HOST, ROOT, LiveServer, free_port, gunicorn, uvicorn
from tests.pages import read
from tests.servers.nginx import OPENSSL, make_certificate, needs_nginx, nginx, nginx_with
from tests.stopwatch import Stopwatch
from tests.wsgi import CARD, JSON_HEADERS, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.nginx, needs_nginx(OPENSSL), pytest.mark.timeout(60)]

OLD_CARD = "/.well-known/agent.json"
FORWARDED = """
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header X-Forwarded-Prefix /x;
"""
#: The protocol between nginx and the server: HTTP/1.0 by default, HTTP/1.1 in newer configurations.
UPSTREAMS = {"http/1.0": "", "http/1.1": 'proxy_http_version 1.1; proxy_set_header Connection "";'}

# -- streams ------------------------------------------------------------------------------------------------------------


@contextmanager
def proxied(folder: Path, directives: str, stream_keepalive_interval: float = 15) -> Iterator[Host]:
    """An agent under gunicorn behind nginx with these directives and the Host header, and defaults otherwise."""
    directives += "proxy_set_header Host $http_host;"
    with ExitStack() as stack:
        site, environment = "tests.hosts.sites.flask_site:application", {"HEARTBEAT": str(stream_keepalive_interval)}
        server = stack.enter_context(gunicorn(site, threads=THREADS, environment=environment))
        proxy = stack.enter_context(nginx(folder, f"location / {{ proxy_pass {server.url}; {directives} }}"))
        host = Host("nginx", proxy, PREFIX)
        with host.client() as client:
            # No call bypasses the proxy.
            assert client.card().supported_interfaces[0].url == host.url + "/"
        yield host
        host.cancel_everything()


@pytest.fixture(scope="module", params=UPSTREAMS.values(), ids=UPSTREAMS.keys())
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with proxied(tmp_path_factory.mktemp("nginx"), request.param) as made:
        yield made


def begin(host: Host, timeout: float = 10) -> requests.Response:
    """Start a stream and return the response; the test reads its body."""
    return requests.post(
        host.url + "/",
        rpc("SendStreamingMessage", message("wait")),
        headers={**JSON_HEADERS, "X-User": "ada"},
        stream=True,
        timeout=timeout,
    )


def test_events_are_not_buffered(host: Host) -> None:
    with host.client() as client, client.stream("wait") as stream:
        for _ in stream:
            if stream.task is not None and stream.task.status.message is not None:
                client.cancel_task(stream.task.id)
        assert stream.state == "canceled"


def test_without_the_header_nginx_buffers_events(tmp_path: Path) -> None:
    ignoring = proxied(tmp_path, "proxy_ignore_headers X-Accel-Buffering;")
    with ignoring as host, pytest.raises(requests.exceptions.ReadTimeout):
        begin(host, timeout=1.5)


def test_disconnects_behind_nginx_release_the_threads_within_two_seconds(host: Host) -> None:
    with host.streams("wait"):
        assert not host.answers(0.3)
    watch = Stopwatch()
    with host.streams("wait"):
        assert watch.within(2.0)


def test_a_disconnected_blocking_send_releases_its_thread(host: Host) -> None:
    with host.client() as client:
        before = client.list_tasks().total_size
        with host.send("SendMessage", "wait"):
            eventually(lambda: client.list_tasks().total_size > before, "the task")
        watch = Stopwatch()
        with host.streams("wait"):
            assert watch.within(2.0)


def lines(answer: requests.Response) -> Iterator[str]:
    return (line for line in answer.iter_lines(chunk_size=1, decode_unicode=True) if line)


#: nginx closes an idle upstream connection after this time, in seconds.
READ_TIMEOUT = 1


def test_keepalive_comments_keep_an_idle_stream_open(tmp_path: Path) -> None:
    with (
        proxied(tmp_path, f"proxy_read_timeout {READ_TIMEOUT}s;", stream_keepalive_interval=0.5) as host,
        begin(host) as answer,
    ):
        began = time.monotonic()
        stream = lines(answer)
        heartbeats = 0
        while time.monotonic() - began < 3.5 * READ_TIMEOUT:
            heartbeats += next(stream).startswith(":")
        assert heartbeats >= 3
        with host.client() as client:
            (task,) = client.list_tasks(status=TaskState.WORKING).tasks
            client.cancel_task(task.id)
        assert "TASK_STATE_CANCELED" in "".join(stream)


def test_nginx_closes_a_stream_with_too_few_keepalive_comments(tmp_path: Path) -> None:
    with (
        proxied(tmp_path, f"proxy_read_timeout {READ_TIMEOUT}s;", stream_keepalive_interval=15) as host,
        begin(host) as answer,
    ):
        watch = Stopwatch()
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            list(lines(answer))
        assert watch.within(5 * READ_TIMEOUT)


def test_the_client_resumes_a_stream_that_nginx_closed(tmp_path: Path) -> None:
    with (
        proxied(tmp_path, f"proxy_read_timeout {READ_TIMEOUT}s;", stream_keepalive_interval=15) as host,
        host.client() as client,
    ):
        with client.stream("wait 2.5") as stream:
            list(stream)
        assert stream.state == "completed"


# -- addresses ----------------------------------------------------------------------------------------------------------

SITES: dict[str, tuple[Callable[..., AbstractContextManager[LiveServer]], str]] = {
    "django urls": (gunicorn, "django_site:application"),
    "django dispatcher": (gunicorn, "django_site:dispatched"),
    "django on asgi": (uvicorn, "django_site:asgi"),
    "flask": (gunicorn, "flask_site:application"),
    "pyramid": (gunicorn, "pyramid_site:application"),
    "starlette": (uvicorn, "asgi_site:starlette"),
}


@dataclass
class Site:
    """An agent at ``/agents/echo`` behind nginx, which terminates TLS and removes the prefix ``/x``."""

    proxy: LiveServer
    server: LiveServer
    certificate: Path

    @property
    def url(self) -> str:
        return f"{self.proxy.url}/x{PREFIX}"

    def session(self) -> requests.Session:
        session = requests.Session()
        session.verify = str(self.certificate)
        session.trust_env = False  # a CA bundle of the environment would take precedence
        return session

    def card(self, path: str = CARD, **headers: str) -> Any:
        with self.session() as session:
            answer = session.get(self.url + path, headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text
            return answer.json()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@contextmanager
def behind_tls(
    folder: Path, certificate: Path, name: str, trusted: int, *options: str, directives: str = FORWARDED
) -> Iterator[Site]:
    serve, target = SITES[name]
    environment = {"TRUSTED_PROXIES": str(trusted)}
    with serve(f"tests.hosts.sites.{target}", *options, environment=environment) as server:
        location = f"location /x/ {{ proxy_pass {server.url}/; {directives} }}"
        with nginx(folder, location, certificate=certificate) as proxy:
            yield Site(proxy, server, certificate)


@pytest.fixture(scope="module", params=SITES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Site]:
    with behind_tls(tmp_path_factory.mktemp("site"), certificate, request.param, 1) as made:
        yield made


def addresses(document: Any) -> set[str]:
    """Every URL in a card with a trailing slash, except for extension URIs, which are not addresses."""
    if isinstance(document, dict):
        return {url for name, value in document.items() if name != "extensions" for url in addresses(value)}
    if isinstance(document, list):
        return {url for value in document for url in addresses(value)}
    return {document.rstrip("/") + "/"} if isinstance(document, str) and "://" in document else set()


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@pytest.mark.parametrize("version", [None, "1.0", "0.3"])
def test_every_form_of_the_card_has_public_urls(version: str | None, path: str, site: Site) -> None:
    headers = {"A2A-Version": version} if version else {}
    card = site.card(path, **headers)
    assert addresses(card) == {site.url + "/"}
    assert ("url" in card) is (version != "1.0")
    assert ("supportedInterfaces" in card) is (version != "0.3")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_every_url_of_the_card_can_be_called(version: str, site: Site) -> None:
    (address,) = addresses(site.card(CARD, **{"A2A-Version": version}))
    with site.session() as session, Client(address, session=session, protocol_version=version) as client:
        task = client.send("echo hi")
        assert isinstance(task, Task)
        assert task.text == "echo: hi"
        with client.stream("count 2") as stream:
            list(stream)
        assert stream.state == "completed"


@pytest.mark.parametrize("name", ["django urls", "flask"])
def test_forwarded_headers_are_ignored_without_trusted_proxies(name: str, certificate: Path, tmp_path: Path) -> None:
    # gunicorn itself trusts proxies on the same machine.
    with behind_tls(tmp_path, certificate, name, 0, "--forwarded-allow-ips", "192.0.2.1") as site:
        for path in (CARD, OLD_CARD):
            assert addresses(site.card(path)) == {f"{site.server.url}{PREFIX}/"}


def test_gunicorn_itself_trusts_the_scheme_of_a_local_proxy(certificate: Path, tmp_path: Path) -> None:
    with behind_tls(tmp_path, certificate, "flask", 0) as site:
        assert addresses(site.card()) == {f"{site.server.url.replace('http:', 'https:')}{PREFIX}/"}


def test_forwarded_headers_of_a_client_are_not_trusted(certificate: Path, tmp_path: Path) -> None:
    # nginx sets three of these headers, and appends its value to the client's in the fourth.
    with behind_tls(tmp_path, certificate, "django urls", 1) as site:
        forged = {
            "X-Forwarded-Host": "evil.example",
            "X-Forwarded-Proto": "ftp",
            "X-Forwarded-Prefix": "/evil",
            "X-Forwarded-For": "192.0.2.9",
            "Script-Name": "/evil",
            "X_Forwarded_Host": "evil.example",
        }
        assert addresses(site.card(**forged)) == {site.url + "/"}


# -- the documentation --------------------------------------------------------------------------------------------------


def test_the_configuration_in_the_documentation_publishes_an_agent(certificate: Path, tmp_path: Path) -> None:
    (shown,) = [block.text for block in read(ROOT / "docs" / "howto" / "proxies.md") if block.language == "nginx"]
    port = free_port()
    environment = {"TRUSTED_PROXIES": "1"}
    with gunicorn("tests.hosts.sites.flask_site:application", environment=environment) as server:
        here = {
            "listen 443": f"listen {HOST}:{port}",
            "/etc/ssl/agents.pem": str(certificate),
            "/etc/ssl/agents.key": str(certificate),
            "http://127.0.0.1:8000": server.url,
        }
        for there, mine in here.items():
            assert there in shown
            shown = shown.replace(there, mine)
        with nginx_with(tmp_path, shown, port) as proxy:
            proxy.url = f"https://localhost:{port}"
            site = Site(proxy, server, certificate)
            assert addresses(site.card()) == {site.url + "/"}
            with site.session() as session, Client(site.url, session=session) as client:
                assert client.send("echo hi").text == "echo: hi"


# -- caches -------------------------------------------------------------------------------------------------------------


def test_a_cache_that_stores_what_no_header_forbids_keeps_the_tasks_of_callers_apart(tmp_path: Path) -> None:
    port = free_port()
    caching = f"proxy_cache_path {tmp_path}/cache keys_zone=all:1m;"
    with gunicorn("tests.hosts.sites.flask_site:application", threads=THREADS) as server:
        directives = "proxy_set_header Host $http_host; proxy_cache all; proxy_cache_valid any 1m;"
        location = f"location / {{ proxy_pass {server.url}; {directives} }}"
        with nginx_with(tmp_path, f"{caching} server {{ listen {HOST}:{port}; {location} }}", port) as proxy:
            host = Host("nginx", proxy, PREFIX)
            with Client(host.url, protocol_binding="HTTP+JSON", headers={"X-User": "ada"}) as ada:
                task = ada.send("echo a secret").task
                assert [one.id for one in ada.list_tasks().tasks] == [task.id]
                assert ada.get_task(task.id).text == "echo: a secret"
            with Client(host.url, protocol_binding="HTTP+JSON", headers={"X-User": "bob"}) as bob:
                assert bob.list_tasks().tasks == ()
                with pytest.raises(TaskNotFoundError):
                    bob.get_task(task.id)
