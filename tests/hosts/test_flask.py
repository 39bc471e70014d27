"""The blueprint within Flask's request cycle: logins, hooks, tokens, prefixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, Response, abort, g, redirect, request, session
from flask_wtf.csrf import CSRFProtect
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from a2a_sync import A2AApp, Agent, AgentHost, Client, Limits, TaskNotFoundError
from a2a_sync.integrations.flask import blueprint
from a2a_sync.operations import Principal
from a2a_sync.testing import wsgi_session
from tests.hosts.sites import HostedAgent
from tests.wsgi import CARD, Answer, Peer, message, rpc

URL = "http://agent.test/agents/echo"
MakeSite = Callable[..., Flask]


@pytest.fixture
def a2a() -> Iterator[A2AApp]:
    with A2AApp(
        HostedAgent(), limits=Limits(disconnect_check_interval=0.05, max_body_bytes=20_000, max_open_streams=1)
    ) as app:
        yield app
        app.close(0)


@pytest.fixture
def make_site(a2a: A2AApp) -> MakeSite:
    """A site with the agent at a prefix, and the blueprint to hang hooks on."""

    def make(prefix: str | None = "/agents/echo", hook: Any = None, **options: Any) -> Flask:
        site = Flask("site")
        site.config.update(SECRET_KEY="for tests only", WTF_CSRF_ENABLED=True)
        agents = blueprint(a2a, **options)
        if hook is not None:
            agents.before_request(hook)
        site.register_blueprint(agents, url_prefix=prefix)
        site.add_url_rule("/login/<name>", "login", log_in)
        return site

    return make


def log_in(name: str) -> str:
    session["user"] = name
    return "welcome"


def calls(site: Any) -> Peer:
    return Peer(site)


def user_id(site: Any, **options: Any) -> str:
    answer = calls(site).call("SendMessage", message("user"), path="/agents/echo/", **options)
    text: str = answer.result["task"]["artifacts"][0]["parts"][0]["text"]
    return text


# -- the caller ----------------------------------------------------------------------------------------------------------


def login_required() -> Any:
    if "user" not in session:
        return redirect("/login")
    g.checked = True
    return None


def cookie(site: Flask, user: str) -> str:
    """The cookie of a user who has logged in."""
    answer = site.test_client().get(f"/login/{user}")
    return answer.headers["Set-Cookie"].partition(";")[0]


def test_the_agent_sees_the_user_whose_login_the_blueprint_requires(make_site: MakeSite) -> None:
    site = make_site(hook=login_required, principal=lambda: g.checked and session["user"])
    refused = calls(site).call("SendMessage", message("user"), path="/agents/echo/")
    assert (refused.status, refused.headers["Location"]) == (302, "/login")
    assert user_id(site, headers={"Cookie": cookie(site, "ada")}) == "ada"


def test_users_do_not_see_each_others_tasks(make_site: MakeSite) -> None:
    site = make_site(principal=lambda: Principal(id=request.headers["X-User"], claims={"team": "a"}))
    clients = {name: Client(URL, headers={"X-User": name}, session=wsgi_session(site)) for name in ("ada", "grace")}
    task = clients["ada"].send("wait", return_immediately=True)
    assert [found.id for found in clients["ada"].list_tasks().tasks] == [task.id]  # type: ignore[union-attr]
    assert clients["grace"].list_tasks().tasks == ()
    with pytest.raises(TaskNotFoundError):
        clients["grace"].cancel_task(task.id)  # type: ignore[union-attr]


@pytest.mark.parametrize("anonymous", [None, ""])
def test_an_anonymous_caller_has_no_user(anonymous: str | None, make_site: MakeSite) -> None:
    assert user_id(make_site(principal=lambda: anonymous)) == "anonymous"
    assert user_id(make_site()) == "anonymous"


def test_a_client_cannot_name_itself_in_a_header(make_site: MakeSite) -> None:
    site = make_site()
    assert user_id(site, headers={"a2a_sync.principal": "ada", "A2A-Sync-Principal": "ada"}) == "anonymous"


# -- browsers -----------------------------------------------------------------------------------------------------------


def test_pages_of_other_sites_cannot_use_their_visitors_login(make_site: MakeSite) -> None:
    called = []
    site = make_site(principal=lambda: called.append(1) or "ada")
    headers = {"Cookie": "session=x", "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    answer = calls(site).call("SendMessage", message("user"), path="/agents/echo/", headers=headers)
    assert answer.status == 403
    assert not called
    assert user_id(site, headers={**headers, "Sec-Fetch-Site": "same-origin"}) == "ada"


def test_the_refusal_is_the_hosts_own_page(make_site: MakeSite) -> None:
    site = make_site()
    site.register_error_handler(403, lambda error: ("<h1>not you</h1>", 403))
    answer = calls(site).post(b"{}", {"Cookie": "a=b", "Origin": "https://evil.example"}, "/agents/echo/")
    assert (answer.status, answer.body) == (403, b"<h1>not you</h1>")


def test_a_site_with_csrf_tokens_exempts_the_blueprint(a2a: A2AApp) -> None:
    site = Flask("site")
    site.config["SECRET_KEY"] = "for tests only"
    protect = CSRFProtect(site)
    agents = blueprint(a2a)
    site.register_blueprint(agents, url_prefix="/agents/echo")
    assert calls(site).call("SendMessage", message("user"), path="/agents/echo/").status == 400
    protect.exempt(agents)
    assert user_id(site) == "anonymous"


# -- paths --------------------------------------------------------------------------------------------------------------


def address(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    url: str = answer.json["supportedInterfaces"][0]["url"]
    return url


@pytest.mark.parametrize("end", ["", "/"])
def test_the_prefix_answers_with_and_without_its_slash_and_never_by_a_redirect(end: str, make_site: MakeSite) -> None:
    answer = calls(make_site()).call("ListTasks", path="/agents/echo" + end)
    assert answer.result["tasks"] == []


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
def test_the_card_names_the_prefix(path: str, make_site: MakeSite) -> None:
    assert address(calls(make_site()).request("GET", "/agents/echo" + path)) == "http://agent.test/agents/echo/"


def test_prefixes_add_up(make_site: MakeSite) -> None:
    below = DispatcherMiddleware(Flask("above"), {"/eu": make_site("/agents/café")})
    found = address(calls(below).request("GET", "/eu/agents/caf%C3%A9" + CARD))
    assert found == "http://agent.test/eu/agents/caf%C3%A9/"


def test_a_prefix_may_have_parts_that_vary(make_site: MakeSite) -> None:
    site = make_site("/<team>/echo", principal=lambda: (request.view_args or {})["team"])
    assert address(calls(site).request("GET", "/red/echo" + CARD)) == "http://agent.test/red/echo/"
    answer = calls(site).call("SendMessage", message("user"), path="/red/echo/")
    assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "red"}]


def test_without_a_prefix_it_is_the_whole_site(make_site: MakeSite) -> None:
    site = make_site(None)
    assert address(calls(site).request("GET", CARD)) == "http://agent.test/"
    assert calls(site).call("ListTasks").result["tasks"] == []


def test_siblings_of_the_prefix_are_the_hosts(make_site: MakeSite) -> None:
    site = make_site()
    site.add_url_rule("/agents/echo2", "other", lambda: "other")
    assert calls(site).request("GET", "/agents/echo2").body == b"other"
    assert calls(site).request("GET", "/agents").status == 404


def test_two_agents_live_side_by_side_under_names_of_their_own(a2a: A2AApp) -> None:
    site = Flask("site")
    site.register_blueprint(blueprint(a2a, name="one"), url_prefix="/one")
    site.register_blueprint(blueprint(a2a, name="two"), url_prefix="/two")
    assert address(calls(site).request("GET", "/one" + CARD)) == "http://agent.test/one/"
    assert address(calls(site).request("GET", "/two" + CARD)) == "http://agent.test/two/"


@pytest.mark.parametrize(("method", "status"), [("GET", 405), ("OPTIONS", 204), ("PUT", 405)])
def test_other_methods_are_answered_by_the_agent_and_not_by_flask(
    method: str, status: int, make_site: MakeSite
) -> None:
    answer = calls(make_site()).request(method, "/agents/echo/")
    assert (answer.status, answer.headers["Allow"]) == (status, "POST, OPTIONS")


def test_a_path_without_anything_gets_the_path_of_the_card(make_site: MakeSite) -> None:
    answer = calls(make_site()).request("GET", "/agents/echo/nothing")
    assert answer.status == 404
    assert CARD in answer.json["error"]["message"]


# -- the request cycle --------------------------------------------------------------------------------------------------


def test_hooks_of_the_host_see_the_answer(make_site: MakeSite) -> None:
    site = make_site()

    @site.after_request
    def named(response: Response) -> Response:
        response.headers["X-Served-By"] = "site"
        return response

    assert calls(site).call("ListTasks", path="/agents/echo/").headers["X-Served-By"] == "site"


def test_a_hook_may_read_the_body_before(make_site: MakeSite) -> None:
    seen = []
    site = make_site(hook=lambda: seen.append(request.get_json()["method"]))
    assert user_id(site) == "anonymous"
    assert seen == ["SendMessage"]


def test_a_body_that_a_hook_has_read_is_held_to_the_limit(make_site: MakeSite) -> None:
    def read() -> None:
        request.get_data()

    site = make_site(hook=read)
    body = rpc("SendMessage", message("x" * 20_000))
    chunked = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    assert calls(site).post(body, path="/agents/echo/").status == 413
    # Werkzeug reads such a body to its end at once, which the validator does not know.
    assert Peer(site, valid=False).post(body, path="/agents/echo/", environ=chunked).status == 413


def test_a_hook_may_refuse(make_site: MakeSite) -> None:
    site = make_site(hook=lambda: abort(401))
    assert calls(site).call("ListTasks", path="/agents/echo/").status == 401


def test_a_stream_is_passed_on_as_it_comes_and_ends_with_its_client(a2a: A2AApp, make_site: MakeSite) -> None:
    client = Client(URL, session=wsgi_session(make_site()))
    tasks = []
    # One stream may be open at once: the second finds the place that the first has left.
    for _ in range(2):
        with client.stream("wait") as stream:
            next(iter(stream))
            assert stream.task is not None
            tasks.append(stream.task.id)
    assert {client.cancel_task(task).state for task in tasks} == {"canceled"}


def test_a_host_of_several_agents_lives_in_the_blueprint_with_its_logins() -> None:
    agent = Agent("user")
    agent.message(lambda message, context: context.user.id)
    site = Flask("site")
    with AgentHost({"echo": HostedAgent(), "user": agent}) as host:
        site.register_blueprint(blueprint(host, principal=lambda: "ada"), url_prefix="/agents")
        with Client("http://agent.test/agents/user", session=wsgi_session(site)) as client:
            assert client.send("hi").text == "ada"
            assert client.card().supported_interfaces[0].url == "http://agent.test/agents/user/"
        listed = wsgi_session(site).get("http://agent.test/agents/.well-known/agents", timeout=60).json()["agents"]
    assert [entry["url"] for entry in listed] == [f"http://agent.test/agents/{name}/" for name in ("echo", "user")]
