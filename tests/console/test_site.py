"""The console as requests: what is guarded, by what, and what the pages are made of. Chromium runs `tests/browser`."""

from __future__ import annotations

import base64
import gc
import json
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client as Browser
from werkzeug.test import TestResponse

from a2a_sync import A2AApp, Agent, AgentHost, Client, HTTPOptions, Limits, Message, RequestContext
from a2a_sync.auth import ApiKeyAuth, AuthRequest, BearerAuth, Principal
from a2a_sync.card import AgentCard, APIKeySecurityScheme
from a2a_sync.console import ConsoleOptions
from a2a_sync.console.sessions import KEY_VARIABLE, Sessions
from a2a_sync.limits import OwnerQuota
from a2a_sync.operations import Webhook
from a2a_sync.stores import MemoryStore, SQLiteStore
from a2a_sync.stores.base import Owner
from a2a_sync.testing.storecontract.making import MINE, begin, chunk, message
from a2a_sync.types import FilePart, Role, TaskPushNotificationConfig
from tests.engine import TIMEOUT, Background, Gate, eventually
from tests.live import ROOT

#: The packages of the extra are among those of the tests; without them nothing here can run.
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
)
KEY = "the key of these tests"  # of no other server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def make_agent(name: str = "echo") -> Agent:
    agent = Agent(name, description="Repeats")

    @agent.message
    def repeat(message: Message, context: RequestContext) -> Any:
        return context.choose("Which?", ["a", "b"]) if message.text == "ask" else f"You sent {message.text}"

    return agent


@pytest.fixture
def app() -> Iterator[A2AApp]:
    with A2AApp(make_agent(), console=True) as made:
        yield made


def logged_in(app: A2AApp | AgentHost, **form: str) -> Browser:
    browser = Browser(app)
    form = form or {"token": Sessions(KEY.encode()).token()}
    answer = browser.post("/console/login", data=form)
    assert answer.status_code == 303, answer.text
    return browser


def send(browser: Browser, text: str, agent: str = "agent") -> Any:
    parts = {"messageId": text[:256], "role": "ROLE_USER", "parts": [{"text": text}]}
    answer = browser.post(f"/console/a/{agent}/api/message:send", json={"message": parts})
    assert answer.status_code == 200, answer.text
    return answer.json["task"] if answer.json else None


# -- off ----------------------------------------------------------------------------------------------------------------


def test_without_console_there_is_no_route_and_nothing_is_imported() -> None:
    code = (
        "import sys; from a2a_sync import A2AApp, Agent; from a2a_sync.testing import wsgi_session\n"
        "app = A2AApp(Agent('x', description='x'))\n"
        "status = wsgi_session(app).get('http://localhost/console/').status_code\n"
        "print(status, [name for name in sys.modules if name.startswith(('a2a_sync.console', 'jinja2', 'nh3', 'markdown_it'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "404 []\n"


def test_with_console_the_packages_are_imported_when_they_are_used() -> None:
    code = (
        "import sys; from a2a_sync import A2AApp, Agent; from a2a_sync.testing import wsgi_session\n"
        "app = A2AApp(Agent('x', description='x'), console=True)\n"
        "loaded = lambda: [name for name in ('jinja2', 'nh3', 'markdown_it') if name in sys.modules]\n"
        "before = loaded(); wsgi_session(app).get('http://localhost/console/login')\n"
        "from a2a_sync.console.markup import render_markdown; render_markdown('x'); print(before, loaded())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[] ['jinja2', 'nh3', 'markdown_it']\n"


def test_a_missing_package_is_named_when_the_app_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_sync.console.site.find_spec", lambda name: None if name == "nh3" else object())
    with pytest.raises(ImportError, match=r"console= needs nh3: pip install 'a2a-sync\[console\]'"):
        A2AApp(make_agent(), console=True)


def test_console_takes_no_other_type() -> None:
    with pytest.raises(TypeError, match="console takes True, False or ConsoleOptions"):
        A2AApp(make_agent(), console="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="operator takes a function"):
        ConsoleOptions(operator="root")  # type: ignore[arg-type]


# -- what guards it -------------------------------------------------------------------------------------------------------

PATHS = [
    "/console/",
    "/console/tasks",
    "/console/tasks?agent=agent",
    "/console/a/agent/",
    "/console/a/agent/t/x",
    "/console/a/agent/t/x/file",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_browser_without_a_session_has_to_log_in(app: A2AApp, path: str) -> None:
    answer = Browser(app).get(path)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console/login")


def test_calls_without_a_session_are_refused(app: A2AApp) -> None:
    assert Browser(app).post("/console/a/agent/api/message:send", json={}).status_code == 401


@pytest.mark.parametrize("view", ["events", "log", "tree", "frames"])
def test_scripts_without_a_session_get_a_status_and_not_the_login_page(app: A2AApp, view: str) -> None:
    assert Browser(app).get(f"/console/a/agent/t/x/{view}").status_code == 401


@pytest.mark.parametrize("path", ["/console/login", "/console/a/agent/", "/console/tasks", "/console/x", "/console"])
def test_every_page_has_the_policy(app: A2AApp, path: str) -> None:
    answer = logged_in(app).get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "trusted-types 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=", answer.text)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
    ],
)
@pytest.mark.parametrize("path", ["login", "logout", "a/agent/api/message:send", "a/agent/api/tasks/x:cancel"])
def test_pages_of_other_sites_change_nothing(app: A2AApp, headers: dict[str, str], path: str) -> None:
    browser = logged_in(app)
    assert browser.post(f"/console/{path}", headers=headers, data={"token": "x"}).status_code == 403


def test_allowed_origins_of_the_agent_are_none_of_the_console() -> None:
    with A2AApp(make_agent(), console=True, http=HTTPOptions(cors_origins=["*"])) as app:
        browser = logged_in(app)
        answer = browser.get("/console/tasks", headers={"Origin": "http://other.test"})
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert browser.post("/console/logout", headers={"Origin": "http://other.test"}).status_code == 403


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("agents.test", True),
        ("public.test", True),
        ("evil.test", False),
        ("127.0.0.1.evil.test", False),
        ("10.0.0.1", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_only_this_machine_and_trusted_hosts_may_be_named(host: str, served: bool) -> None:
    http = HTTPOptions(trusted_hosts=["agents.test", "localhost", "127.0.0.1", "[::1]"])
    with A2AApp(make_agent(), console=True, http=http, url="https://public.test") as app:
        answer = Browser(app).get("/console/login", environ_overrides={"HTTP_HOST": host})
        assert answer.status_code == (200 if served else 400)


def test_the_cookie_is_for_the_console_alone_and_out_of_reach_of_scripts(app: A2AApp) -> None:
    answer = Browser(app).post("/console/login", data={"token": Sessions(KEY.encode()).token()})
    cookie = answer.headers["Set-Cookie"]
    for part in ("HttpOnly", "SameSite=Strict", "Path=/console"):
        assert part in cookie
    assert "Secure" not in cookie
    secure = Browser(app).post(
        "/console/login", data={"token": Sessions(KEY.encode()).token()}, base_url="https://localhost"
    )
    assert "Secure" in secure.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "other", ["a2a_console_@=x", 'a2a_console_session_="\\', "a2a_console_(=", "expires=1", "a2a_console_session_=x"]
)
def test_cookies_of_other_programs_of_the_host_change_nothing(app: A2AApp, other: str) -> None:
    # A cookie whose name is malformed was an error of the server.
    own = f"a2a_console_session_={Sessions(KEY.encode()).cookie()}"
    for cookies in (f"{own}; {other}", f"{other.replace('session', 'auth')}; {own}"):
        assert Browser(app, use_cookies=False).get("/console/tasks", headers={"Cookie": cookies}).status_code == 200
    assert Browser(app, use_cookies=False).get("/console/tasks", headers={"Cookie": other}).status_code == 303


@pytest.mark.parametrize(
    "host",
    ["evil@localhost", "localhost:80\x1b7", "evil\\@localhost", "localhost/evil", "localhost?", "localhost evil"],
)
def test_a_host_that_is_no_host_is_refused(app: A2AApp, host: str) -> None:
    assert Browser(app).get("/console/login", environ_overrides={"HTTP_HOST": host}).status_code == 400


def test_a_token_is_accepted_once(app: A2AApp) -> None:
    token = Sessions(KEY.encode()).token()
    assert Browser(app).post("/console/login", data={"token": token}).status_code == 303
    assert Browser(app).post("/console/login", data={"token": token}).status_code == 401


def test_the_login_page_prints_a_link_to_standard_error_only(app: A2AApp, capsys: pytest.CaptureFixture[str]) -> None:
    answer = Browser(app).get("/console/login")
    printed = capsys.readouterr().err
    link = re.fullmatch(r"Console: http://localhost/console/login#(\S+)\n", printed)
    assert link
    assert link[1] not in answer.text
    Browser(app).get("/console/login")
    assert capsys.readouterr().err == ""
    assert (
        Browser(app).post("/console/login", data={"token": f"http://localhost/console/login#{link[1]}"}).status_code
        == 303
    )


@pytest.mark.parametrize(
    ("address", "host", "printed"),
    [
        ("127.0.0.1", "localhost:8000", "http://127.0.0.1:8000/"),
        ("127.0.0.1", "127.0.0.1:8000", "http://127.0.0.1:8000/"),
        # Another user of the machine listens there, and asks for a link.
        ("127.0.0.1", "localhost:9999", "http://127.0.0.1:8000/"),
        ("127.0.0.1", "127.66.6.6:8000", "http://127.0.0.1:8000/"),
        ("127.0.0.1", "[::1]:8000", "http://127.0.0.1:8000/"),
        ("127.0.0.1", "agents.example:8000", "http://agents.example:8000/"),
        ("127.0.0.1", "agents.example", "http://agents.example/"),
        ("127.0.0.1", "agents.example:9999", "log in with the token "),
        # Only a part of the loopback addresses are those of a server at all addresses of a kind.
        ("0.0.0.0", "localhost:8000", "http://127.0.0.1:8000/"),
        ("0.0.0.0", "[::1]:8000", "http://127.0.0.1:8000/"),
        ("::", "127.66.6.6:8000", "http://[::1]:8000/"),
        ("0.0.0.0", "localhost:9999", "log in with the token "),
        # A server in a container, or behind a proxy of this machine at the port of http, to which only root can listen.
        ("0.0.0.0", "localhost", "http://localhost/"),
        ("192.0.2.1", "localhost:8000", "log in with the token "),
        ("192.0.2.1", "agents.example:8000", "http://agents.example:8000/"),
    ],
)
def test_no_printed_link_leads_to_another_program(
    capsys: pytest.CaptureFixture[str], address: str, host: str, printed: str
) -> None:
    server = {"HTTP_HOST": host, "SERVER_NAME": address, "SERVER_PORT": "8000"}
    with A2AApp(make_agent(), console=True, http=HTTPOptions(trusted_hosts=["agents.example"])) as app:
        assert Browser(app).get("/console/login", environ_overrides=server).status_code == 200
        line = capsys.readouterr().err
        assert line.startswith(f"Console: {printed}")
        token = re.split("[# ]", line.strip())[-1]
        assert Browser(app).post("/console/login", data={"token": token}).status_code == 303


def test_the_printed_link_has_no_character_that_a_terminal_obeys(
    app: A2AApp, capsys: pytest.CaptureFixture[str]
) -> None:
    Browser(app).get("/console/login", environ_overrides={"HTTP_HOST": "localhost:80", "SCRIPT_NAME": "/\x1b]0;x"})
    printed = capsys.readouterr().err
    assert printed.startswith("Console: ")
    assert printed.rstrip("\n").isprintable()


def test_several_processes_need_a_key_that_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    with A2AApp(make_agent(), console=True) as app:
        answer = Browser(app).get("/console/login", environ_overrides={"wsgi.multiprocess": True})
        assert (answer.status_code, KEY_VARIABLE in answer.text) == (503, True)


def test_agents_see_nothing_of_the_session() -> None:
    seen: list[Any] = []
    with A2AApp(make_agent(), console=True, auth=lambda request: seen.append(dict(request.headers)) or "ada") as app:
        browser = Browser(app)
        browser.set_cookie("a2a_console_session_", "x", path="/console")
        browser.set_cookie("other", "y")
        send(browser, "hi")
    assert seen[-1]["cookie"] == "other=y"


# -- auth= --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def secured() -> Iterator[A2AApp]:
    people = {"a-token": Principal(id="ada"), "b-token": Principal(id="bob"), "r-token": Principal(id="root")}
    options = ConsoleOptions(operator=lambda principal: principal.id == "root")
    with A2AApp(make_agent(), auth=BearerAuth(people), console=options, store=MemoryStore()) as made:
        yield made


def as_person(app: A2AApp | AgentHost, token: str) -> Browser:
    return logged_in(app, scheme="bearer", secret=token)


def test_with_auth_a_login_token_is_of_no_use(secured: A2AApp) -> None:
    answer = Browser(secured).post("/console/login", data={"token": Sessions(KEY.encode()).token()})
    assert answer.status_code == 401
    browser = Browser(secured)
    browser.set_cookie("a2a_console_session_", Sessions(KEY.encode()).cookie(), path="/console")
    assert browser.get("/console/tasks").status_code == 303


def test_callers_see_their_own_tasks_and_operators_all(secured: A2AApp) -> None:
    task = send(as_person(secured, "a-token"), "secret of ada")["id"]
    page = f"/console/a/agent/t/{task}"
    assert "secret of ada" in as_person(secured, "a-token").get(page).text
    bob = as_person(secured, "b-token")
    for path in (
        page,
        f"{page}?owner=ada",
        f"{page}/log?owner=ada",
        f"{page}/tree?owner=ada",
        f"{page}/events?owner=ada",
    ):
        answer = bob.get(path)
        assert (answer.status_code, "secret" in answer.text) == (404, False), path
    assert task[-6:] not in bob.get("/console/tasks?owner=ada").text
    root = as_person(secured, "r-token")
    assert root.get(page).status_code == 404
    answer = root.get(f"{page}?owner=ada")
    assert "secret of ada" in answer.text
    assert 'id="composer"' not in answer.text
    assert task[-6:] in root.get("/console/tasks?owner=ada").text
    assert "No task matches" in root.get("/console/tasks?owner=bob").text


@pytest.mark.parametrize("view", ["", "/tree", "/log"])
def test_pages_of_tasks_have_their_share_of_the_threads_and_of_the_bytes_of_large_tasks(
    view: str, secured: A2AApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = as_person(secured, "a-token")
    task = send(browser, "x" * 1_500_000)["id"]
    budget = secured.service.engine.responses
    admitted: list[str] = []
    reserved: list[int] = []
    admit, reserving = budget.admit, budget.reserving
    monkeypatch.setattr(budget, "admit", lambda owner: (admitted.append(owner), admit(owner)))

    def counted(size: int, owner: str, **options: bool) -> Any:
        reserved.append(size)
        return reserving(size, owner, **options)

    monkeypatch.setattr(budget, "reserving", counted)
    assert browser.get(f"/console/a/agent/t/{task}{view}").status_code == 200
    assert set(admitted) == {"ada"}
    # The check of the caller's right reads the task too, and the log is read in pages.
    assert len(reserved) == (1 if view == "/log" else 2)
    assert (budget._owners, budget._reserved, budget._taken, budget._places.taken) == ({}, {}, 0, 0)
    monkeypatch.setattr(budget._places, "total", 0)
    assert browser.get(f"/console/a/agent/t/{task}{view}").status_code == 503


def test_one_page_of_a_task_is_made_at_a_time_for_each_viewer(secured: A2AApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under gevent twelve connections that read a page of tables kept another caller's sends waiting for seconds."""
    from a2a_sync.console import pages

    gate, read, held = Gate(), pages.read_record, iter([True])
    tasks = {token: send(as_person(secured, token), "hello")["id"] for token in ("a-token", "b-token")}

    def read_slowly(*arguments: Any) -> Any:
        if next(held, False):
            gate.block()
        return read(*arguments)

    monkeypatch.setattr(pages, "read_record", read_slowly)
    monkeypatch.setattr(pages, "_TURN_TIMEOUT", 0.05)

    def status(token: str, view: str = "") -> int:
        return as_person(secured, token).get(f"/console/a/agent/t/{tasks[token]}{view}").status_code

    first = Background(lambda: status("a-token"))
    gate.wait()
    assert [status("a-token", view) for view in ("", "/tree", "/log", "/events")] == [503, 503, 503, 200]
    assert status("b-token") == 200
    gate.open.set()
    assert first.result() == 200
    assert status("a-token", "/tree") == 200


def test_the_cookie_holds_the_credential_which_is_checked_at_every_request(secured: A2AApp) -> None:
    browser = as_person(secured, "a-token")
    assert browser.get("/console/tasks").status_code == 200
    assert Browser(secured).get("/console/tasks", headers={"Authorization": "Bearer a-token"}).status_code == 200
    for text in ("authorization:Bearer wrong", "x-forwarded-for:1.2.3.4", "authorization:Basic YTpi", "", "\nx"):
        other = Browser(secured)
        other.set_cookie("a2a_console_auth_", base64.urlsafe_b64encode(text.encode()).decode(), path="/console")
        assert other.get("/console/tasks").status_code == 303
    browser.post("/console/logout")
    assert browser.get("/console/tasks").status_code == 303


@pytest.mark.parametrize("secret", ["wrong", "", "a-token\r\nX-Key: y", "ü", "x" * 5000])
def test_wrong_credentials_are_refused(secured: A2AApp, secret: str) -> None:
    answer = Browser(secured).post("/console/login", data={"scheme": "bearer", "secret": secret})
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers


# -- pages --------------------------------------------------------------------------------------------------------------


def test_a_task_is_shown_with_its_log_and_the_same_numbers_everywhere(app: A2AApp) -> None:
    browser = logged_in(app)
    task = send(browser, "hello")
    page = browser.get(f"/console/a/agent/t/{task['id']}")
    assert page.status_code == 200
    assert page.text.count("You sent hello") >= 1
    tree = browser.get(f"/console/a/agent/t/{task['id']}/tree").json
    log = browser.get(f"/console/a/agent/t/{task['id']}/log").json
    assert tree is not None
    assert log is not None
    assert [row["n"] for row in log["rows"]] == list(range(1, tree["version"] + 1))
    assert (log["ended"], tree["terminal"]) == (True, True)
    assert "You sent hello" in json.dumps(tree["tree"])


def frames(answer: TestResponse) -> list[tuple[int, Any]]:
    with answer:
        blocks = [block for block in answer.text.split("\n\n") if block.startswith("id: ")]
    return [(int(block.split("\n")[0][4:]), json.loads(block.split("data: ")[1])) for block in blocks]


@pytest.mark.slow
def test_the_page_of_very_many_messages_and_artifacts_takes_time_in_proportion() -> None:
    """Each message was compared with each artifact: 100,000 of both, as of a hostile agent, took minutes for each page."""
    from a2a_sync.console.record import read_record

    store, count = MemoryStore(), 20_000
    run = begin(store, task_id="t")
    store.append(run.token, [message("t", f"m{number}", role=Role.AGENT) for number in range(count)])
    store.append(run.token, [chunk("t", f"a{number}", artifact_id=f"a{number}") for number in range(count)])
    begun = time.thread_time()
    record = read_record(store, MINE, "t", lambda size: None)
    assert len(record.turns) == 2 * count + 1
    assert time.thread_time() - begun < 5


@pytest.mark.parametrize("view", ["", "/tree"])
def test_a_page_does_not_stay_in_memory_until_a_garbage_collection(tmp_path: Path, view: str) -> None:
    # Macros and their context refer to each other: each page of a task of 9.8 MB left 75 MB.
    with A2AApp(make_agent(), console=True, store=SQLiteStore(tmp_path / "tasks.db")) as app:
        browser, length = logged_in(app), 2_000_000
        url = f"/console/a/agent/t/{send(browser, 'x' * length)['id']}{view}"
        assert browser.get(url).status_code == 200  # which fills caches
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            assert browser.get(url).status_code == 200
            assert tracemalloc.get_traced_memory()[0] < length
        finally:
            tracemalloc.stop()
            gc.enable()


@pytest.mark.parametrize("view", ["", "/tree"])
def test_the_page_of_very_many_tables_takes_time_in_proportion_to_its_message(view: str) -> None:
    """A message of 5 MB with a table in each of 400 parts was 2.4 million cells: the page took half a minute."""
    agent = make_agent()
    agent.input_modes = ["*/*"]
    lines = b",".join([b"a"] * 30) + b"\n"
    table = FilePart(raw=lines * 200, media_type="text/csv")
    with A2AApp(agent, console=True) as app, Client(app) as client:
        task = client.send(Message(role=Role.USER, parts=(table,) * 400))
        browser = logged_in(app)
        begun = time.thread_time()
        page = browser.get(f"/console/a/agent/t/{task.id}{view}")
        assert page.status_code == 200
        assert len(page.data) < 15_000_000
        assert time.thread_time() - begun < 5


def test_the_time_line_has_an_axis_of_numbers_and_one_of_time() -> None:
    begun = threading.Event()

    @(agent := Agent("slow", description="x")).message
    def wait(message: Message, context: RequestContext) -> str:
        begun.wait(0.05)
        return "done"

    with A2AApp(agent, console=True) as app:
        browser = logged_in(app)
        page = browser.get(f"/console/a/agent/t/{send(browser, 'x')['id']}").text
    by_number, by_time = re.findall(r'class="band[^>]*>.*?</svg>', page, re.DOTALL)
    assert len(re.findall('class="tick"', by_number)) == len(re.findall('class="tick"', by_time)) > 3
    length = re.search(r"<span>working <b>(\d+) ms</b>", page)
    assert length
    assert int(length[1]) >= 50
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3} UTC", page)


def test_the_stream_has_every_entry_after_a_number_messages_included(app: A2AApp) -> None:
    browser = logged_in(app)
    task = send(browser, "hello")["id"]
    whole = frames(browser.get(f"/console/a/agent/t/{task}/events"))
    assert [number for number, _ in whole] == [row["n"] for _, row in whole] == list(range(1, len(whole) + 1))
    assert whole[0][1]["kind"] == "message"
    assert frames(browser.get(f"/console/a/agent/t/{task}/events?after=2")) == whole[2:]
    assert app.open_streams == 0


def test_an_entry_that_is_added_while_a_page_is_made_is_left_to_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, more = Agent("counting", description="Counts"), threading.Semaphore(1)

    @agent.message
    def count(message: Message, context: RequestContext) -> Iterator[str]:
        for number in range(3):
            more.acquire(timeout=TIMEOUT)
            yield f"{number} "

    with A2AApp(agent, console=True) as app, Client(app) as client:
        browser = logged_in(app)
        task_id = client.send("go", return_immediately=True).task.id
        eventually(lambda: client.get_task(task_id).artifacts, "the first number")
        from a2a_sync.console import pages, record

        def read(*arguments: Any) -> record.Record:
            made = record.read_record(*arguments)
            more.release()
            eventually(lambda: app.store.head(Owner(), task_id).version > made.version, "another entry")
            return made

        monkeypatch.setattr(pages, "read_record", read)
        page = browser.get(f"/console/a/agent/t/{task_id}").text
        more.release(2)
    version = int(re.search(r'data-version="(\d+)"', page)[1])  # type: ignore[index]
    rows = [int(text) for text in re.findall(r'<tr><td class="number">(\d+)</td>', page)]
    assert rows == list(range(1, version + 1))
    assert 'data-follows="1"' in page


def test_a_long_log_comes_in_pages() -> None:
    @(agent := Agent("long", description="x")).message
    def write(message: Message, context: RequestContext) -> Iterator[str]:
        for number in range(450):
            yield f"{number} "

    with A2AApp(agent, console=True) as app:
        browser = logged_in(app)
        page = f"/console/a/agent/t/{send(browser, 'x')['id']}"
        first = browser.get(page).text
        assert first.count('<td class="number">') == 2 * 200
        assert "?after=200" in first
        log: list[int] = []
        while True:
            answer: Any = browser.get(f"{page}/log?after={log[-1] if log else 0}").json
            log += [row["n"] for row in answer["rows"]]
            if answer["ended"]:
                break
        assert log == list(range(1, len(log) + 1))
        assert len(log) > 450


def test_lists_are_filtered_and_paged(app: A2AApp) -> None:
    browser = logged_in(app)
    made = [send(browser, f"m{number}") for number in range(60)] + [send(browser, "ask")]
    first = browser.get("/console/tasks").text
    assert first.count("/console/a/agent/t/") == 50
    older = re.search(r'href="(\?[^"]*before=[^"]*)">Older', first)
    assert older
    second = browser.get(f"/console/tasks{older[1].replace('&amp;', '&')}").text
    assert second.count("/console/a/agent/t/") == 11
    assert browser.get("/console/tasks?state=input-required").text.count("/console/a/agent/t/") == 1
    assert browser.get(f"/console/tasks?context={made[7]['contextId']}").text.count("/console/a/agent/t/") == 1
    assert browser.get("/console/tasks?period=hour").text.count("/console/a/agent/t/") == 50
    for odd in ("state=nope", "before=x", "before=99999999999999999999999", "period=x", "agent=none"):
        assert browser.get(f"/console/tasks?{odd}").status_code in (200, 303)


def test_files_are_sent_to_agents_and_shown() -> None:
    @(agent := Agent("files", description="x")).message
    def reply(message: Message, context: RequestContext) -> Any:
        return [message.files[0]]

    with A2AApp(agent, console=True) as app:
        browser = logged_in(app)
        part = {"raw": base64.b64encode(b"hello").decode(), "filename": "a/b.txt", "mediaType": "text/plain"}
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [part]}
        task = browser.post("/console/a/agent/api/message:send", json={"message": message}).json["task"]["id"]
        page = browser.get(f"/console/a/agent/t/{task}").text
        links = re.findall(r'href="([^"]*/file\?[^"]*)"', page)
        assert len(links) == 2
        for link in links:
            answer = browser.get(link.replace("&amp;", "&"))
            assert (answer.status_code, answer.data) == (200, b"hello")
            assert answer.headers["Content-Disposition"] == 'attachment; filename="a_b.txt"'
            assert "sandbox" in answer.headers["Content-Security-Policy"]
            # As players ask, to go to a place in a file.
            part_of = browser.get(link.replace("&amp;", "&"), headers={"Range": "bytes=1-3"})
            assert (part_of.status_code, part_of.data) == (206, b"ell")
            assert part_of.headers["Content-Range"] == "bytes 1-3/5"
            assert "sandbox" in part_of.headers["Content-Security-Policy"]
            assert browser.get(link.replace("&amp;", "&"), headers={"Range": "bytes=9-"}).status_code == 416
        assert browser.get(f"/console/a/agent/t/{task}/file?of=artifact&id=x&part=9").status_code == 404


def test_a_stopped_webhook_is_shown_with_its_reason_and_enabled_again() -> None:
    with A2AApp(make_agent(), console=True, push=True) as app:
        browser = logged_in(app)
        task = send(browser, "ask")["id"]
        webhooks = app.store.webhooks
        assert webhooks is not None
        config = TaskPushNotificationConfig(url="https://hooks.example.com/x", id="h", task_id=task)
        webhooks.put(Owner(), Webhook(config, "1.0"), most=10)
        (stored,) = webhooks.of_task(Owner(), task)
        claimed = webhooks.claim(stored, "test")
        assert claimed is not None
        webhooks.settle(replace(claimed, disabled="refused with 410 <b>"), release=True)
        page = browser.get(f"/console/a/agent/t/{task}")
        assert "refused with 410 &lt;b&gt;" in page.text
        path = re.search(r'action="([^"]*/enable)"', page.text)
        assert path
        assert browser.post(path[1], headers={"Origin": "http://evil.test"}, data={"hook": "h"}).status_code == 403
        assert Browser(app).post(path[1], data={"hook": "h"}).status_code == 401
        assert browser.post(path[1], data={"hook": "other"}).status_code == 404
        assert webhooks.of_task(Owner(), task)[0].disabled
        assert browser.post(path[1], data={"hook": "h"}).status_code == 303
        assert not webhooks.of_task(Owner(), task)[0].disabled


def test_only_operators_see_what_a_failed_delivery_met_in_the_network() -> None:
    people = {"a-token": Principal(id="ada"), "r-token": Principal(id="root")}
    options = ConsoleOptions(operator=lambda principal: principal.id == "root")
    with A2AApp(make_agent(), auth=BearerAuth(people), console=options, push=True) as app:
        task = send(as_person(app, "a-token"), "ask")["id"]
        webhooks, owner = app.store.webhooks, Owner(id="ada")
        assert webhooks is not None
        webhooks.put(
            owner, Webhook(TaskPushNotificationConfig(url="https://x.test", id="h", task_id=task), "1.0"), most=1
        )
        held = webhooks.claim(webhooks.of_task(owner, task)[0], "test")
        assert held is not None
        error = "no answer: could not connect: Connection refused"
        webhooks.settle(replace(held, tries=1, error=error, error_ms=1), release=True)
        own, root = as_person(app, "a-token").get(f"/console/a/agent/t/{task}").text, as_person(app, "r-token")
        assert ("<dd>no answer, " in own, "could not connect" in own) == (True, False)
        for page in (f"/console/a/agent/t/{task}?owner=ada", "/console/operate"):
            assert error in root.get(page).text


def test_operators_see_the_server_and_other_callers_do_not(secured: A2AApp) -> None:
    send(as_person(secured, "a-token"), "hello")
    send(as_person(secured, "b-token"), "ask")
    page = as_person(secured, "r-token").get("/console/operate")
    assert page.status_code == 200
    assert re.search(r"Tasks kept</dt><dd>2<", page.text)
    assert ">2 made in the last 30 minutes<" in page.text
    assert ">Operate</a>" in page.text
    other = as_person(secured, "a-token")
    assert other.get("/console/operate").status_code == 403
    assert ">Operate</a>" not in other.get("/console/tasks").text


def test_the_processes_and_runs_of_a_shared_store_are_listed(tmp_path: Path) -> None:
    released = threading.Event()

    @(agent := Agent("slow", description="x")).message
    def wait(message: Message, context: RequestContext) -> str:
        released.wait(30)
        return "done"

    with AgentHost({"slow": agent}, store=f"sqlite:///{tmp_path / 'tasks.db'}", console=True) as host:
        browser = logged_in(host)
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
        task = browser.post(
            "/console/a/slow/api/message:send", json={**body, "configuration": {"returnImmediately": True}}
        ).json["task"]["id"]
        page = browser.get("/console/operate").text
        released.set()
        assert f"/console/a/slow/t/{task}?owner=" in page
        assert "(this one)" in page
        assert re.search(r"Processes</dt><dd>1<", page)


def test_pages_beyond_their_share_of_the_streams_are_refused() -> None:
    with A2AApp(make_agent(), console=True, limits=Limits(max_open_streams=4)) as app:
        browser = logged_in(app)
        path = f"/console/a/agent/t/{send(browser, 'ask')['id']}/events"
        with browser.get(path) as first:
            assert first.status_code == 200
            refused = browser.get(path)
            assert refused.status_code == 503
        assert app.open_streams == 0
        with browser.get(path) as again:
            assert again.status_code == 200
        assert app.open_streams == 0


@pytest.mark.parametrize(("quota", "share"), [(None, 4), (OwnerQuota(max_open_streams=2), 2)])
def test_one_caller_leaves_streams_of_pages_to_the_next(quota: OwnerQuota | None, share: int) -> None:
    options: dict[str, Any] = {"limits": Limits(max_open_streams=32), "owner_quota": quota}
    auth = BearerAuth({"a-token": "ada", "b-token": "bob"})
    with A2AApp(make_agent(), console=True, auth=auth, **options) as app, ExitStack() as opened:

        def open_streams(token: str, number: int) -> list[int]:
            browser = as_person(app, token)
            path = f"/console/a/agent/t/{send(browser, 'ask')['id']}/events"
            return [opened.enter_context(browser.get(path)).status_code for _ in range(number)]

        assert open_streams("a-token", 8) == [200] * share + [503] * (8 - share)
        assert open_streams("b-token", 1) == [200]


@pytest.mark.parametrize("path", ["login", "a/agent/t/x/enable"])
def test_a_form_that_is_too_large_is_refused(app: A2AApp, path: str) -> None:
    browser = logged_in(app)
    browser.post("/console/a/agent/api/message:send", json={})
    answer = browser.post(f"/console/{path}", data={"token": "x" * 100_000})
    assert answer.status_code in (404, 413)


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("scheme=bearer&secret=z" + "&a" * 99, FORM),
        (
            '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 101 + "--x--",
            "multipart/form-data; boundary=x",
        ),
    ],
    ids=["urlencoded", "multipart"],
)
def test_a_form_with_many_fields_is_refused_before_it_is_parsed(
    body: str, content_type: str, secured: A2AApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("werkzeug.formparser.parse_qsl", None)
    answer = Browser(secured).post("/console/login", data=body, content_type=content_type)
    assert answer.status_code == 413


def test_a_form_for_logging_in_is_smaller_than_others(secured: A2AApp) -> None:
    body = f"scheme=bearer&secret={'z' * 20_000}"
    assert Browser(secured).post("/console/login", data=body, content_type=FORM).status_code == 413
    assert Browser(secured).post("/console/login", data=body[:16_000], content_type=FORM).status_code == 401


def test_a_form_of_a_hundred_fields_is_read(secured: A2AApp) -> None:
    body = "scheme=bearer&secret=a-token" + "&a" * 98
    assert Browser(secured).post("/console/login", data=body, content_type=FORM).status_code == 303


@pytest.mark.parametrize("path", ["login", "", "tasks", "a/agent/api/tasks"])
def test_a_page_with_a_long_query_is_refused(app: A2AApp, path: str) -> None:
    answer = logged_in(app).get(f"/console/{path}", query_string="&a" * 1000)
    assert (answer.status_code, "more than 1,000 values" in answer.text) == (400, True)


def test_calls_work_whatever_the_app_serves_to_others() -> None:
    with A2AApp(make_agent(), console=True, protocol_versions=["0.3"], protocol_bindings=["JSONRPC"]) as app:
        assert send(logged_in(app), "hi")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_below_a_prefix_all_links_are_right(app: A2AApp) -> None:
    browser = Browser(app)
    options = {"environ_overrides": {"SCRIPT_NAME": "/agents/x"}}
    answer = browser.post("/console/login", data={"token": Sessions(KEY.encode()).token()}, **options)
    assert answer.headers["Location"] == "/agents/x/console/"
    assert "Path=/agents/x/console" in answer.headers["Set-Cookie"]
    page = browser.get("/console/login", **options).text
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
    assert links
    assert all(link.startswith("/agents/x/console/") for link in links)


def test_scripts_and_styles_are_served_for_ever_under_their_digest(app: A2AApp) -> None:
    page = Browser(app).get("/console/login").text
    (style,) = re.findall(r'href="(/console/static/\w+/console.css)"', page)
    answer = Browser(app).get(style)
    assert (answer.status_code, answer.mimetype) == (200, "text/css")
    assert "immutable" in answer.headers["Cache-Control"]
    assert Browser(app).get("/console/static/x/console.css").status_code == 404
    assert Browser(app).get(style.replace("console.css", "..%2fpages.py")).status_code == 404


# -- hosts --------------------------------------------------------------------------------------------------------------


def test_a_host_has_one_console_for_its_agents() -> None:
    with AgentHost({"one": make_agent("one"), "two": make_agent("two")}, console=True) as host:
        browser = logged_in(host)
        task = send(browser, "hello", agent="two")["id"]
        assert "You sent hello" in browser.get(f"/console/a/two/t/{task}").text
        assert browser.get(f"/console/a/one/t/{task}").status_code == 404
        assert task[-6:] in browser.get("/console/tasks?agent=two").text
        assert task[-6:] not in browser.get("/console/tasks?agent=one").text
        host.remove("two")
        assert browser.get("/console/a/two/").status_code == 404
        with pytest.raises(ValueError, match="cannot be the name of an agent"):
            host.add("console", make_agent())


def test_an_agent_with_auth_is_hidden_from_the_holder_of_a_link() -> None:
    secured = A2AApp(make_agent("private"), auth=BearerAuth({"t": "ada"}))
    with AgentHost({"open": make_agent("open"), "private": secured}, console=True) as host:
        browser = logged_in(host)
        assert "private" not in browser.get("/console/a/open/").text
        assert browser.get("/console/a/private/").headers["Location"] == "/console/login"
        assert browser.post("/console/a/private/api/message:send", json={}).status_code == 401


@pytest.mark.parametrize(("path", "most"), [("", 1), ("login", 1), ("tasks", 1), ("no-page", 1), ("a/a7/no-page", 2)])
def test_credentials_are_checked_once_for_all_agents_with_the_same_auth(path: str, most: int) -> None:
    checked: list[str] = []

    def verify(token: str) -> None:
        checked.append(token)

    auth = BearerAuth(verify)
    with AgentHost({f"a{number}": make_agent() for number in range(20)}, auth=auth, console=True) as host:
        cookie = "a2a_console_auth_=" + base64.urlsafe_b64encode(b"authorization:Bearer c").decode()
        Browser(host, use_cookies=False).get(f"/console/{path}", headers={"Authorization": "Bearer x"})
        assert 0 < len(checked) <= most
        checked.clear()
        # Those of a cookie that are refused, and then the request's own.
        Browser(host, use_cookies=False).get(
            f"/console/{path}", headers={"Cookie": cookie, "Authorization": "Bearer x"}
        )
        assert checked == ["c", "x"] * (len(checked) // 2)
        assert len(checked) <= 2 * most


def test_a_login_is_checked_once_for_all_agents_with_the_same_auth() -> None:
    checked: list[str] = []

    def verify(token: str) -> None:
        checked.append(token)

    auth = BearerAuth(verify)
    with AgentHost({f"a{number}": make_agent() for number in range(20)}, auth=auth, console=True) as host:
        assert Browser(host).post("/console/login", data={"scheme": "bearer", "secret": "s"}).status_code == 401
    assert checked == ["s"]


def test_each_agent_knows_the_callers_of_its_own_auth_only() -> None:
    tokens = [BearerAuth({"t": "ada"}), BearerAuth({"u": "bob"}), BearerAuth({"t": "eve"})]
    apps = {f"a{number}": A2AApp(make_agent(f"agent {number}"), auth=auth) for number, auth in enumerate(tokens)}
    with AgentHost(apps, console=True) as host:
        page = as_person(host, "t").get("/console/a/a2/")
        assert [f"agent {number}" in page.text for number in range(3)] == [True, False, True]
        assert as_person(host, "u").get("/console/").headers["Location"] == "/console/a/a1/"


def test_a_cookie_sets_the_headers_only_that_the_card_of_an_agent_names() -> None:
    seen: list[set[str]] = []

    def refuse(request: AuthRequest) -> None:
        seen.append(set(request.headers))

    auth = ApiKeyAuth({"k": "ada"}, header="X-Key") | refuse
    plain = AgentCard(name="plain", description="d", version="1")
    other = APIKeySecurityScheme(location="header", name="X-Other")
    cards = {"plain": plain, "named": replace(plain, security_schemes={"other": other})}
    apps = {name: A2AApp(make_agent(), card=card, auth=auth) for name, card in cards.items()}
    cookie = "a2a_console_auth_=" + base64.urlsafe_b64encode(b"x-other:o").decode()
    with AgentHost(apps, console=True) as host:
        Browser(host, use_cookies=False).get("/console/login", headers={"Cookie": cookie})
    assert ["x-other" in headers for headers in seen] == [False, True, False]


def test_a_request_with_very_many_cookies_counts_as_one_without(app: A2AApp) -> None:
    own = f"a2a_console_session_={Sessions(KEY.encode()).cookie()}"
    for others, status in ((199, 200), (200, 303), (50_000, 303)):
        cookies = {"Cookie": own + ";" * others}
        assert Browser(app, use_cookies=False).get("/console/tasks", headers=cookies).status_code == status


# -- the agent's own address --------------------------------------------------------------------------------------------


def test_a_browser_gets_a_page_at_the_agents_address_and_programs_what_they_got() -> None:
    with A2AApp(make_agent(), console=False) as app:
        browser = Browser(app)
        page = browser.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        assert (page.status_code, page.mimetype) == (200, "text/html")
        assert "Repeats" in page.text
        assert "/console" not in page.text
        assert "unsafe" not in page.headers["Content-Security-Policy"]
        style = browser.get("/?style.css", headers={"Accept": "text/css,*/*;q=0.1"})
        assert (style.status_code, style.mimetype) == (200, "text/css")
        for accept in ("*/*", "application/json", "", "text/event-stream"):
            answer = browser.get("/", headers={"Accept": accept})
            assert (answer.status_code, answer.headers["Allow"]) == (405, "POST, OPTIONS")
        assert browser.post("/", headers={"Accept": "text/html"}).status_code != 405
        assert Client(app).send("x").text == "You sent x"


def test_the_page_at_the_address_names_the_console_where_it_is_on(app: A2AApp) -> None:
    with AgentHost({"one": make_agent("one")}, console=True) as host:
        for made, path in ((app, "/"), (host, "/one/")):
            page = Browser(made).get(path, headers={"Accept": "text/html"})
            assert 'href="/console/"' in page.text


def test_the_templates_and_scripts_are_part_of_the_package() -> None:
    listed = Path(ROOT, "setup.cfg").read_text()
    for folder in ("templates", "static"):
        assert f"console/{folder}/*" in listed
