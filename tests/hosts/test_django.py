"""The URL patterns within a Django project: users, middleware, database connections, prefixes."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections
from django.http import HttpResponse
from django.test import AsyncClient
from django.test import Client as Browser
from django.test.utils import override_settings
from django.urls import include, path, re_path

from a2a_sync import (
    A2AApp,
    Agent,
    AgentHost,
    Client,
    InputRequired,
    Limits,
    Message,
    RequestContext,
    Task,
    TaskNotFoundError,
)
from a2a_sync.integrations.django import urls
from a2a_sync.testing import wsgi_session
from tests.engine import eventually
from tests.hosts.sites import HostedAgent
from tests.wsgi import CARD, JSON_HEADERS, Answer, Peer, message, rpc

URL = "http://agent.test/agents/echo"
SESSIONS = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
PROJECT = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    *SESSIONS,
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]


@pytest.fixture(scope="module", autouse=True)
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A project with users, in a database file that all threads share."""
    settings.configure(
        SECRET_KEY="for tests only",
        ALLOWED_HOSTS=["agent.test"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(tmp_path_factory.mktemp("django") / "site.sqlite3"),
            }
        },
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        LOGIN_URL="/login",
        USE_TZ=True,
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    yield
    connections.close_all()


@pytest.fixture
def a2a() -> Iterator[A2AApp]:
    app = A2AApp(
        HostedAgent(), limits=Limits(disconnect_check_interval=0.05, max_body_bytes=20_000, max_open_streams=1)
    )
    yield app
    app.close(0)


MakeSite = Callable[..., Any]


@pytest.fixture
def make_site(a2a: A2AApp) -> Iterator[MakeSite]:
    """The WSGI application of a project with these patterns, settings as keywords."""
    with ExitStack() as stack:

        def make(*patterns: Any, principal: Any = None, **options: Any) -> Any:
            urlconf = ModuleType("urlconf")
            included = urls(a2a) if principal is None else urls(a2a, principal=principal)
            urlconf.urlpatterns = patterns or [path("agents/echo/", include(included))]  # type: ignore[attr-defined]
            stack.enter_context(override_settings(**{"MIDDLEWARE": PROJECT, **options}, ROOT_URLCONF=urlconf))
            return get_wsgi_application()

        yield make


def user_id(site: Any, **options: Any) -> str:
    answer = Peer(site).call("SendMessage", message("user"), path="/agents/echo/", **options)
    text: str = answer.result["task"]["artifacts"][0]["parts"][0]["text"]
    return text


def address(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    url: str = answer.json["supportedInterfaces"][0]["url"]
    return url


# -- the caller ----------------------------------------------------------------------------------------------------------


def login(name: str) -> tuple[Any, str]:
    """A user, and the cookie of a session that was opened with a password."""
    from django.contrib.auth.models import User

    user, _ = User.objects.get_or_create(username=name)
    browser = Browser()
    browser.force_login(user)
    return user, f"sessionid={browser.cookies['sessionid'].value}"


def test_the_agent_sees_the_logged_in_user(make_site: MakeSite) -> None:
    user, cookie = login("ada")
    assert user_id(make_site(), headers={"Cookie": cookie}) == str(user.pk)


def test_what_django_knows_of_the_user_comes_with_it(make_site: MakeSite, a2a: A2AApp) -> None:
    _, cookie = login("ada")
    seen: list[Any] = []
    site = make_site()
    a2a.wsgi_app = note_principal(a2a.wsgi_app, seen)  # type: ignore[method-assign]
    user_id(site, headers={"Cookie": cookie})
    assert seen[0].claims == {"username": "ada"}


def note_principal(inner: Any, seen: list[Any]) -> Any:
    def noting(environ: dict[str, Any], start_response: Any) -> Any:
        seen.append(environ["a2a_sync.principal"])
        # Middleware may be a generator, which has named no status when it returns.
        yield from inner(environ, start_response)

    return noting


def test_users_do_not_see_each_others_tasks(make_site: MakeSite) -> None:
    site = make_site()
    ada, grace = (
        Client(URL, headers={"Cookie": login(name)[1]}, session=wsgi_session(site)) for name in ("ada", "grace")
    )
    task = ada.send("wait", return_immediately=True)
    assert isinstance(task, Task)
    assert [found.id for found in ada.list_tasks().tasks] == [task.id]
    assert grace.list_tasks().tasks == ()
    with pytest.raises(TaskNotFoundError):
        grace.cancel_task(task.id)


@pytest.mark.parametrize("middleware", [PROJECT, []])
def test_an_anonymous_caller_has_no_user(middleware: list[str], make_site: MakeSite) -> None:
    assert user_id(make_site(MIDDLEWARE=middleware)) == "anonymous"


def test_a_site_that_requires_login_requires_it_here_too(make_site: MakeSite) -> None:
    required = [*PROJECT, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    site = make_site(MIDDLEWARE=required)
    refused = Peer(site).call("SendMessage", message("user"), path="/agents/echo/")
    assert (refused.status, refused.headers["Location"].partition("?")[0]) == (302, "/login")
    user, cookie = login("ada")
    assert user_id(site, headers={"Cookie": cookie}) == str(user.pk)


def test_a_project_may_set_the_caller_itself(make_site: MakeSite) -> None:
    site = make_site(principal=lambda request: request.headers["X-Api-Key"].partition(":")[0])
    assert user_id(site, headers={"X-Api-Key": "ada:secret"}) == "ada"


# -- browsers -----------------------------------------------------------------------------------------------------------


def test_programs_need_no_csrf_token_and_pages_of_other_sites_cannot_use_a_login(make_site: MakeSite) -> None:
    user, cookie = login("ada")
    site = make_site()
    headers = {"Cookie": cookie, "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    assert Peer(site).call("SendMessage", message("user"), path="/agents/echo/", headers=headers).status == 403
    assert user_id(site, headers={**headers, "Sec-Fetch-Site": "same-origin"}) == str(user.pk)


# -- bodies and answers -------------------------------------------------------------------------------------------------


class ReadsBodies:
    """A middleware that looks at each body first, as ones that log or sign do."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.body  # noqa: B018
        return self.get_response(request)


READS = f"{__name__}.{ReadsBodies.__name__}"


@pytest.mark.parametrize("middleware", [[], [READS]])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_arrive_whole_whichever_middleware_read_them_before(
    chunked: bool, middleware: list[str], make_site: MakeSite
) -> None:
    site = make_site(MIDDLEWARE=[*PROJECT, *middleware])
    body = rpc("SendMessage", message("echo " + "x" * 5000))
    environ = {"wsgi.input_terminated": True, "CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked"}
    # Django reads a body without a size, which the validator does not know.
    answer = Peer(site, valid=False).post(body, path="/agents/echo/", environ=environ if chunked else {})
    assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "echo: " + "x" * 5000}]


@pytest.mark.parametrize("middleware", [[], [READS]])
def test_too_large_a_body_is_refused_by_the_agents_own_limit(middleware: list[str], make_site: MakeSite) -> None:
    site = make_site(MIDDLEWARE=middleware)
    answer = Peer(site, valid=False).post(rpc("SendMessage", message("x" * 20_000)), path="/agents/echo/")
    assert answer.status == 413


def test_answers_are_compressed_and_streams_are_not(make_site: MakeSite) -> None:
    peer = Peer(make_site())
    headers = {**JSON_HEADERS, "Accept-Encoding": "gzip"}
    whole = peer.post(rpc("SendMessage", message("echo " + "x" * 2000)), headers, "/agents/echo/")
    assert whole.headers["Content-Encoding"] == "gzip"
    assert b"TASK_STATE_COMPLETED" in gzip.decompress(whole.body)
    with peer.open("POST", "/agents/echo/", rpc("SendStreamingMessage", message("count 3")), headers) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.headers["Content-Encoding"] == "identity"
        assert next(stream.events())["task"]


def test_answers_keep_their_own_headers_and_get_those_of_the_project(make_site: MakeSite) -> None:
    answer = Peer(make_site()).request("GET", "/agents/echo" + CARD)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"].endswith("max-age=300")
    assert "A2A-Version" in answer.headers["Vary"]
    assert answer.headers["X-Frame-Options"] == "DENY"
    again = Peer(make_site()).request("GET", "/agents/echo" + CARD, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(("method", "status"), [("GET", 405), ("OPTIONS", 204), ("DELETE", 405)])
def test_other_methods_are_answered_by_the_agent(method: str, status: int, make_site: MakeSite) -> None:
    answer = Peer(make_site()).request(method, "/agents/echo/")
    assert (answer.status, answer.headers["Allow"]) == (status, "POST, OPTIONS")


def test_a_stream_ends_with_its_client(make_site: MakeSite) -> None:
    client = Client(URL, session=wsgi_session(make_site()))
    tasks = []
    # One stream may be open at once: the second finds the place that the first has left.
    for _ in range(2):
        with client.stream("wait") as stream:
            next(iter(stream))
            assert stream.task is not None
            tasks.append(stream.task.id)
    assert {client.cancel_task(task).state for task in tasks} == {"canceled"}


# -- the database -------------------------------------------------------------------------------------------------------


def count_users() -> int:
    from django.contrib.auth.models import User

    return User.objects.count()


def test_the_view_is_in_no_transaction_even_where_requests_are(
    make_site: MakeSite, a2a: A2AApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    within: dict[str, bool] = {}

    def note(request: Any) -> None:
        within[request.path] = connection.in_atomic_block

    def other(request: Any) -> HttpResponse:
        note(request)
        return HttpResponse("other")

    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    site = make_site(path("other", other), path("agents/echo/", include(urls(a2a, principal=note))))
    assert user_id(site) == "anonymous"
    assert Peer(site).request("GET", "/other").body == b"other"
    assert within == {"/agents/echo/": False, "/other": True}


def test_a_stream_does_not_hold_the_connection_of_its_request(make_site: MakeSite) -> None:
    site = make_site(principal=lambda request: str(count_users()))
    body = rpc("SendStreamingMessage", message("wait"))
    with Peer(site).open("POST", "/agents/echo/", body, JSON_HEADERS) as stream:
        assert next(stream.events())["task"]
        assert connection.connection is None


@pytest.mark.parametrize("kind", ["plain", "generator", "failing", "direct", "cancel handler"])
def test_each_run_closes_the_connections_that_it_has_opened(kind: str) -> None:
    used: list[Any] = []

    def count() -> str:
        used.append(connections["default"])
        return f"{count_users()} users"

    class Counts(Agent):
        description = "Counts users"
        direct = kind == "direct"

        def handle_message(self, message: Message, context: RequestContext) -> Any:
            if kind == "cancel handler":
                return InputRequired("Which users?")
            if kind == "generator":
                return (count() for _ in range(2))
            if kind == "failing":
                raise ValueError(count())
            return count()

        def handle_cancel(self, context: RequestContext) -> None:
            count()

    with A2AApp(Counts()) as app, Client(app) as client:
        task = client.send("How many?")
        if kind == "cancel handler":
            assert isinstance(task, Task)
            client.cancel_task(task.id)
        # The thread that used the connection closes it after the task has ended.
        eventually(lambda: used and all(wrapper.connection is None for wrapper in used), "the connection is closed")


# -- paths --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agent-card.json", "agent.json"])
def test_the_card_names_the_prefix(name: str, make_site: MakeSite) -> None:
    answer = Peer(make_site()).request("GET", "/agents/echo/.well-known/" + name)
    assert address(answer) == "http://agent.test/agents/echo/"


def test_prefixes_add_up(make_site: MakeSite, a2a: A2AApp) -> None:
    site = make_site(path("café/", include(urls(a2a))))
    answer = Peer(site).request("GET", "/caf%C3%A9" + CARD, environ={"SCRIPT_NAME": "/eu"})
    assert address(answer) == "http://agent.test/eu/caf%C3%A9/"


def test_a_project_may_force_its_prefix(make_site: MakeSite) -> None:
    answer = Peer(make_site(FORCE_SCRIPT_NAME="/x")).request("GET", "/agents/echo" + CARD)
    assert address(answer) == "http://agent.test/x/agents/echo/"


def test_a_prefix_may_have_parts_that_vary(make_site: MakeSite, a2a: A2AApp) -> None:
    site = make_site(path("<slug:team>/echo/", include(urls(a2a))))
    assert address(Peer(site).request("GET", "/red/echo" + CARD)) == "http://agent.test/red/echo/"


@pytest.mark.parametrize("end", ["", "/"])
def test_a_prefix_can_answer_without_its_slash_and_leave_its_siblings_alone(
    end: str, make_site: MakeSite, a2a: A2AApp
) -> None:
    site = make_site(re_path(r"^agents/echo(?:/|$)", include(urls(a2a))))
    peer = Peer(site)
    assert peer.call("ListTasks", path="/agents/echo" + end).result["tasks"] == []
    assert address(peer.request("GET", "/agents/echo" + CARD)) == "http://agent.test/agents/echo/"
    assert peer.request("GET", "/agents/echo2/").status == 404


def test_a_path_without_anything_gets_the_path_of_the_card(make_site: MakeSite) -> None:
    answer = Peer(make_site()).request("GET", "/agents/echo/nothing")
    assert answer.status == 404
    assert CARD in answer.json["error"]["message"]


# -- hosts and proxies --------------------------------------------------------------------------------------------------


FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "public.example"}


def test_a_host_that_the_project_does_not_allow_is_refused(make_site: MakeSite) -> None:
    assert Peer(make_site(MIDDLEWARE=[])).request("GET", "/agents/echo" + CARD, headers={"Host": "evil"}).status == 400


def test_headers_of_proxies_mean_nothing_to_a_project_that_does_not_trust_them(make_site: MakeSite) -> None:
    answer = Peer(make_site()).request("GET", "/agents/echo" + CARD, headers=FORWARDED)
    assert address(answer) == "http://agent.test/agents/echo/"


def test_what_a_project_believes_of_its_proxy_is_in_the_card(make_site: MakeSite) -> None:
    site = make_site(
        SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
        USE_X_FORWARDED_HOST=True,
        ALLOWED_HOSTS=["public.example"],
    )
    answer = Peer(site).request("GET", "/agents/echo" + CARD, headers=FORWARDED)
    assert address(answer) == "https://public.example/agents/echo/"


# -- asgi ---------------------------------------------------------------------------------------------------------------


def test_under_asgi_the_view_says_what_to_use_instead(make_site: MakeSite) -> None:
    make_site(MIDDLEWARE=[])
    with pytest.raises(ImproperlyConfigured, match=r"a2a_sync\.integrations\.asgi\.Dispatcher"):
        asyncio.run(AsyncClient(headers={"host": "agent.test"}).get("/agents/echo" + CARD))


def test_a_host_of_several_agents_lives_in_the_patterns(make_site: MakeSite) -> None:
    with AgentHost({"echo": HostedAgent(), "other": HostedAgent()}) as host:
        site = make_site(path("agents/", include(urls(host))))
        for name in host:
            with Client(f"http://agent.test/agents/{name}", session=wsgi_session(site)) as client:
                assert client.send("hi").text
                assert client.card().supported_interfaces[0].url == f"http://agent.test/agents/{name}/"
        listed = wsgi_session(site).get("http://agent.test/agents/.well-known/agents", timeout=60).json()["agents"]
        assert [entry["url"] for entry in listed] == [f"http://agent.test/agents/{name}/" for name in host]
