"""A console for agents elsewhere: their tasks here, credentials, cancel, frames. Chromium runs `tests/browser`."""

from __future__ import annotations

import base64
import html
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from werkzeug.serving import make_server
from werkzeug.test import Client as Browser

from a2a_sync import A2AApp, Agent, AgentSkill, Client, Failed, InputRequired, Limits, Message, RequestContext, Retry
from a2a_sync.auth import ApiKeyAuth, BasicAuth, BearerAuth
from a2a_sync.card import (
    AgentCapabilities,
    AgentCard,
    AgentCardSignature,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
)
from a2a_sync.client import Frame
from a2a_sync.console.cardview import signature_state
from a2a_sync.console.frames import LINK, FrameLog, frame_row
from a2a_sync.console.sessions import KEY_VARIABLE, Sessions
from a2a_sync.errors import TaskNotCancelableError
from a2a_sync.types import Role, Task, TaskState, TaskStatus, TextPart
from tests.certificates import Authority
from tests.console.payloads import leading_to
from tests.engine import TIMEOUT, eventually

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
    ),
]
KEY = "the key of these tests"  # of no other server


class Remote(Agent):
    """The agent elsewhere. A run of "wait" goes on until the test sets `go`."""

    name = "remote"
    description = "Elsewhere"
    skills = [AgentSkill(id="talk", name="Talk", description="Talks", tags=["talk"])]

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.asked = threading.Event()
        self.ends_before_cancel = False

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        if message.text == "size":
            return f"A {context.choose('Which size?', ['small', 'large'])} one"
        if message.text == "more":
            return InputRequired("More of what?")
        if message.text == "fail":
            return Failed("there is no more")
        if message.text.startswith("wait"):
            return self._wait(context)
        return f"You sent {message.text}, and {len(message.files)} files"

    def _wait(self, context: RequestContext) -> Iterator[str]:
        yield "one "
        while not self.go.wait(0.02):
            context.check_cancelled()
        yield "two"

    def handle_cancel(self, context: RequestContext) -> None:
        if self.ends_before_cancel:
            self.go.set()
            task_id = context.task_id
            eventually(lambda: self.endpoint_state(task_id).terminal, "the end of the run")
            raise TaskNotCancelableError("it is completed")

    def endpoint_state(self, task_id: str) -> TaskState:
        """The state of a task of this agent."""
        return self.states(task_id)

    states: Callable[[str], TaskState]


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves apps on loopback ports; returns their addresses."""
    servers = []

    def begin(app: A2AApp) -> str:
        server = make_server("127.0.0.1", 0, app, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append((server, app))
        return f"http://127.0.0.1:{server.server_port}"

    yield begin
    for server, app in servers:
        server.shutdown()
        app.close(1.0)
        server.server_close()


class Console:
    """A console for one agent, and a browser that has logged in."""

    def __init__(self, url: str, **options: Any) -> None:
        from a2a_sync.console.remotesite import RemoteConsole

        self.site = RemoteConsole([url], options)
        (self.name,) = self.site.agents
        self.app = self.site.agents[self.name]
        self.local = Client(self.app, timeout=TIMEOUT)
        self.browser = Browser(self.site)
        answer = self.browser.post("/console/login", data={"token": Sessions(KEY.encode()).token()})
        assert answer.status_code == 303, answer.text

    def page(self, path: str = "", status: int = 200) -> str:
        answer = self.browser.get(f"/console/a/{self.name}/{path}")
        assert answer.status_code == status, answer.text
        return answer.text

    def send(self, text: str, **members: Any) -> Any:
        message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], **members}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        answer = self.browser.post(f"/console/a/{self.name}/api/message:send", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json["task"]["id"] if answer.json else ""

    def wait(self, task_id: str, state: TaskState) -> Any:
        return eventually(
            lambda: (task := self.local.get_task(task_id)).state is state and task, f"the state {state} of {task_id}"
        )


@pytest.fixture
def remote() -> Remote:
    return Remote()


@pytest.fixture
def open_console(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., str], remote: Remote) -> Iterator[Any]:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    opened = []

    def begin(options: dict[str, Any] | None = None, **app_options: Any) -> Console:
        app = A2AApp(remote, **app_options)
        remote.states = lambda task_id: Client(app).get_task(task_id).state
        console = Console(serve(app), **(options or {}))
        opened.append(console)
        return console

    yield begin
    for console in opened:
        console.site.close(1.0)


def test_a_task_of_the_agent_is_repeated_here_with_its_ids(open_console: Any) -> None:
    console = open_console()
    task = console.wait(console.send("hello"), TaskState.COMPLETED)
    assert "You sent hello, and 0 files" in console.page(f"t/{task.id}")
    (ids,) = task.metadata.values()
    assert set(ids) == {"task", "context"}
    assert ids["task"] in console.page(f"t/{task.id}")
    assert console.browser.get("/").headers["Location"].endswith("/console/")


def test_questions_choices_and_files_reach_the_agent_and_its_answers_the_page(open_console: Any) -> None:
    console = open_console()
    task_id = console.send("size")
    console.wait(task_id, TaskState.INPUT_REQUIRED)
    assert 'data-answer="large"' in console.page(f"t/{task_id}")
    assert console.send("large", taskId=task_id) == task_id
    assert console.wait(task_id, TaskState.COMPLETED).artifacts[0].text == "A large one"
    parts = [{"text": "see"}, {"raw": "aGVsbG8=", "filename": "a.txt", "mediaType": "text/plain"}]
    task_id = console.send("with a file", parts=parts)
    assert "and 1 files" in console.wait(task_id, TaskState.COMPLETED).artifacts[0].text


def test_a_failed_task_and_an_agent_that_is_gone_say_why(open_console: Any) -> None:
    console = open_console()
    task = console.wait(console.send("fail"), TaskState.FAILED)
    assert "there is no more" in console.page(f"t/{task.id}")
    unreachable = Console("http://127.0.0.1:9/")
    assert "The card cannot be read" in unreachable.page()
    task = unreachable.wait(unreachable.send("hello"), TaskState.FAILED)
    assert "could not connect" in unreachable.page(f"t/{task.id}")
    unreachable.site.close(1.0)


def test_a_connection_that_stays_lost_is_noted_and_then_ends_the_task_here(
    monkeypatch: pytest.MonkeyPatch, remote: Remote
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    # Each stream is cut, and the agent is gone when it is to be resumed.
    with A2AApp(remote, limits=Limits(max_stream_age=0.3)) as app:
        server = make_server("127.0.0.1", 0, app, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        retry = Retry(max_elapsed=1.5, initial_backoff=0.05)
        console = Console(f"http://127.0.0.1:{server.server_port}", retry=retry)
        task_id = console.send("wait")
        eventually(lambda: console.local.get_task(task_id).artifacts, "the first piece")
        server.shutdown()
        server.server_close()
        task = console.wait(task_id, TaskState.FAILED)
        remote.go.set()
    assert task.metadata[LINK] == "could not connect: Connection refused"
    page = console.page(f"t/{task_id}")
    assert "could not be resumed within 1.5 seconds (could not connect: Connection refused)" in page
    assert "The task may continue at the agent: open it from the tasks that the agent lists." in page
    assert "trying again" not in page
    console.site.close(1.0)


def test_a_cancel_reaches_the_agent(open_console: Any, remote: Remote) -> None:
    console = open_console()
    task_id = console.send("wait")
    ids = eventually(lambda: next(iter(console.local.get_task(task_id).metadata.values()), None), "the ids")
    assert console.local.cancel_task(task_id).state is TaskState.CANCELED
    eventually(lambda: remote.states(ids["task"]) is TaskState.CANCELED, "the cancel at the agent")


def test_many_cancels_are_answered_with_success_whichever_side_writes_the_end_first(open_console: Any) -> None:
    console = open_console()
    for _ in range(15):
        task_id = console.send("wait")
        eventually(lambda task_id=task_id: console.local.get_task(task_id).artifacts, "the first piece")
        assert console.local.cancel_task(task_id).state is TaskState.CANCELED


def test_a_cancel_of_a_task_that_has_ended_at_the_agent_is_refused_with_its_state(
    open_console: Any, remote: Remote
) -> None:
    remote.ends_before_cancel = True
    console = open_console()
    task_id = console.send("wait")
    eventually(lambda: console.local.get_task(task_id).artifacts, "the first piece")
    answer = console.browser.post(f"/console/a/{console.name}/api/tasks/{task_id}:cancel", json={})
    assert answer.status_code == 409 or answer.status_code == 400, answer.text
    assert "it is completed" in answer.text
    assert "canceled" not in answer.text.replace("cannot be canceled", "")
    assert console.wait(task_id, TaskState.COMPLETED).artifacts[0].text == "one two"


AUTHS = {
    "bearer": (BearerAuth({"the-token": "ada"}), {"scheme": "bearer", "secret": "the-token"}),
    "key": (ApiKeyAuth({"the-key": "ada"}, header="X-Key"), {"scheme": "apiKey", "secret": "the-key"}),
    "basic": (BasicAuth({"ada": "s3cret-word"}), {"scheme": "basic", "user": "ada", "secret": "s3cret-word"}),
}


@pytest.mark.parametrize("kind", AUTHS)
def test_credentials_are_asked_for_when_they_are_required_and_the_message_is_sent_then(
    open_console: Any, kind: str
) -> None:
    auth, form = AUTHS[kind]
    console = open_console(auth=auth)
    task_id = console.send("hello")
    console.wait(task_id, TaskState.AUTH_REQUIRED)
    assert f'name="scheme" value="{form["scheme"]}"' in console.page(f"t/{task_id}")
    wrong = {**form, "secret": "wrong", "task": task_id}
    assert console.browser.post(f"/console/a/{console.name}/credentials", data=wrong).status_code == 303
    console.wait(task_id, TaskState.AUTH_REQUIRED)
    eventually(lambda: 'name="scheme"' in console.page(f"t/{task_id}"), "the form")
    right = {**form, "task": task_id}
    assert console.browser.post(f"/console/a/{console.name}/credentials", data=right).status_code == 303
    task = console.wait(task_id, TaskState.COMPLETED)
    assert task.artifacts[0].text == "You sent hello, and 0 files"
    frames = console.browser.get(f"/console/a/{console.name}/t/{task_id}/frames").text
    assert "SendStreamingMessage" in frames
    assert form["secret"] not in frames
    assert form["secret"] not in console.page(f"t/{task_id}")


def test_credentials_of_another_scheme_or_with_line_breaks_are_refused(open_console: Any) -> None:
    console = open_console(auth=AUTHS["bearer"][0])
    for form in ({"scheme": "other", "secret": "x"}, {"scheme": "bearer", "secret": "a\nb"}, {"scheme": "bearer"}):
        answer = console.browser.post(f"/console/a/{console.name}/credentials", data=form)
        assert answer.status_code == 400
        assert "These credentials cannot be used" in answer.text


def test_the_password_in_an_address_is_on_no_page(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., str], remote: Remote
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    app = A2AApp(remote, auth=BasicAuth({"ada": "word-of-ada"}))
    remote.states = lambda task_id: Client(app, auth=("ada", "word-of-ada")).get_task(task_id).state
    console = Console(serve(app).replace("//", "//ada:word-of-ada@"))
    task_id = console.send("hello")
    console.wait(task_id, TaskState.COMPLETED)
    assert all("word-of-ada" not in console.page(path) for path in ("", f"t/{task_id}", f"t/{task_id}/frames"))
    console.site.close(1.0)


def test_frames_are_those_on_the_wire_in_order(open_console: Any) -> None:
    console = open_console()
    task = console.wait(console.send("hello"), TaskState.COMPLETED)
    address = f"/console/a/{console.name}/t/{task.id}/frames"
    frames = console.browser.get(address).json["frames"]
    assert [frame["n"] for frame in frames] == list(range(1, len(frames) + 1))
    assert frames[0]["sent"]
    assert '"method": "SendStreamingMessage"' in frames[0]["json"]
    assert frames[0]["headers"]["A2A-Version"] == "1.0"
    assert not frames[-1]["sent"]
    assert "TASK_STATE_COMPLETED" in frames[-1]["json"]
    assert console.browser.get(f"{address}?after=2").json["frames"] == frames[2:]


def test_credentials_are_named_for_requests_to_the_origin_of_the_agent_only(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., str]
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    elsewhere = serve(A2AApp(Remote()))
    home = serve(leading_to(elsewhere, A2AApp(Remote(), auth=BearerAuth({"the-token": "ada"}))))
    console = Console(home, auth="the-token")
    task = console.wait(console.send("hello"), TaskState.COMPLETED)
    page = console.page(f"t/{task.id}")
    commands, frames = (
        json.loads(html.unescape(re.findall(f"data-{name}='(.*?)'", page)[0])) for name in ("commands", "frames")
    )
    listed = json.loads(console.page(f"t/{task.id}/frames"))["frames"]
    assert commands["read"]["url"].startswith(elsewhere)
    assert commands["credentials"]
    assert not commands["at_home"]
    assert listed == frames
    assert [(frame["url"].startswith(elsewhere), frame["at_home"]) for frame in frames] == [(True, False)] * len(frames)
    console.site.close(1.0)


def test_a_frame_whose_url_no_client_sends_has_no_credentials() -> None:
    log = FrameLog()
    for url in ("http://agent.test/tasks/" + "x" * 20_000, "http://a@agent.test/", "http://[/"):
        log.add("odd", Frame(True, "GET", url, {}, b""))
    rows = [frame_row(one, "http://agent.test/") for one in log.of_task("odd")]
    assert [row["at_home"] for row in rows] == [False] * 3


def test_a_page_shows_the_newest_frames_whatever_an_agent_has_sent() -> None:
    log, head = FrameLog(), Frame(False, "POST", "http://agent.test/", {}, b"{}")
    for _ in range(3000):
        log.add("many", head)
    assert [one.number for one in log.of_task("many")] == list(range(2801, 3001))
    assert [one.number for one in log.of_task("many", 2998)] == [2999, 3000]
    for _ in range(200):
        log.add("large", head._replace(body=b"[" * 20_000))
    rows = [frame_row(one, "http://agent.test/") for one in log.of_task("large")]
    assert [row["n"] for row in rows] == list(range(149, 201))
    assert sum(len(row["json"]) for row in rows) < 1_100_000
    assert log.of_task("other") == []


def test_tasks_that_the_agent_lists_are_opened_here(open_console: Any, remote: Remote) -> None:
    console = open_console()
    with Client(console.site.agents[console.name].remote.url) as other:
        done, running = other.send("before").task, other.send("wait", return_immediately=True).task
        page = console.browser.get(f"/console/tasks?agent={console.name}&at=agent").text
        assert done.id in page
        assert running.id in page
        answer = console.browser.post(f"/console/a/{console.name}/open", data={"id": done.id})
        here = answer.headers["Location"].rpartition("/")[2]
        assert "You sent before" in console.wait(here, TaskState.COMPLETED).artifacts[0].text
        answer = console.browser.post(f"/console/a/{console.name}/open", data={"id": running.id})
        here = answer.headers["Location"].rpartition("/")[2]
        eventually(lambda: console.local.get_task(here).artifacts, "the first piece")
        remote.go.set()
        assert console.wait(here, TaskState.COMPLETED).artifacts[0].text == "one two"


def list_of(tasks: list[dict[str, Any]]) -> A2AApp:
    """An agent that answers each call with a list of these tasks."""
    app = A2AApp(Remote())

    def respond(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "application/json")])
        if environ["REQUEST_METHOD"] == "GET":
            return [json.dumps(app.agent_card(f"http://{environ['HTTP_HOST']}/").to_dict()).encode()]
        asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        page = {"tasks": tasks, "nextPageToken": "", "pageSize": 50, "totalSize": len(tasks)}
        return [json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": page}).encode()]

    app.wsgi_app = respond  # type: ignore[method-assign]
    return app


def test_of_a_list_that_is_longer_than_a_page_its_beginning_is_shown(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., str]
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    tasks = [{"id": f"task-{number}", "status": {"state": "TASK_STATE_WORKING"}} for number in range(300)]
    tasks[1]["id"] = "x" * 2000
    console = Console(serve(list_of(tasks)))
    page = console.browser.get(f"/console/tasks?agent={console.name}&at=agent").text
    assert page.count('name="id"') == 49
    assert 'value="task-49"' in page
    assert "task-50" not in page
    assert "250 of them are not shown" in page
    assert "x" * 100 not in page
    console.site.close(1.0)


def test_a_list_of_many_megabytes_is_not_read(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., str]) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    tasks = [{"id": "x" * 5_000_000, "status": {"state": "TASK_STATE_WORKING"}}]
    console = Console(serve(list_of(tasks)))
    page = console.browser.get(f"/console/tasks?agent={console.name}&at=agent").text
    assert "The agent lists no tasks: the answer is larger than 4194304 bytes" in page
    assert console.app.remote.client._max_response_bytes == console.app.limits.max_task_bytes
    console.site.close(1.0)


@pytest.fixture
def page_of(monkeypatch: pytest.MonkeyPatch, open_console: Any) -> Callable[[AgentCard], str]:
    """The page of an agent that has a card."""
    console = open_console()

    def read(card: AgentCard) -> str:
        monkeypatch.setattr(console.app.remote.client, "card", lambda **_: card)
        return console.page()

    return read


MANY = range(1000)
CARD = AgentCard(name="n", description="d", version="1")


def test_the_page_of_a_card_shows_the_beginning_of_each_list(page_of: Callable[[AgentCard], str]) -> None:
    texts = [f"text {number}" for number in MANY]
    skills = [AgentSkill(id=str(number), name="", description="", tags=texts, examples=texts) for number in MANY]
    interfaces = [
        AgentInterface(url=f"http://host-{number}.test/", protocol_binding="JSONRPC", protocol_version="1.0")
        for number in MANY
    ]
    extensions = tuple(AgentExtension(uri=f"urn:extension:{number}") for number in MANY)
    card = replace(
        CARD,
        skills=skills,
        supported_interfaces=interfaces,
        default_input_modes=[f"in/{number}" for number in MANY],
        default_output_modes=[f"out/{number}" for number in MANY],
        capabilities=AgentCapabilities(extensions=extensions),
        security_schemes={f"scheme-{number}": HTTPAuthSecurityScheme(scheme="bearer") for number in MANY},
    )
    page = page_of(card)
    shown = page[: page.index("Card as JSON")]
    assert "the card breaks 2000 rules" in shown
    assert "… 1900 more" in shown
    assert shown.count('<article class="card skill">') == 200
    assert "… 800 more" in shown
    assert shown.count("… 950 more") == 200 * 2 + 6
    for begin in ("http://host-", "urn:extension:", "in/", "out/", "<dd>scheme-"):
        assert f"{begin}49" in shown
        assert f"{begin}50" not in shown
    assert shown.count('name="scheme"') == 50
    assert len(page) < 3_000_000


@pytest.mark.parametrize(
    "card",
    [
        replace(CARD, name="'" * 3_000_000),
        replace(CARD, description="'" * 3_000_000),
        replace(CARD, default_input_modes=["'" * 3_000_000]),
        replace(CARD, documentation_url="http://" + "'" * 3_000_000),
        replace(CARD, provider=AgentProvider(organization="'" * 1_500_000, url="http://" + "'" * 1_500_000)),
        replace(CARD, security_schemes={"'" * 3_000_000: HTTPAuthSecurityScheme(scheme="bearer")}),
        replace(CARD, security_schemes={"k": APIKeySecurityScheme(location="header", name="'" * 3_000_000)}),
        replace(
            CARD,
            capabilities=AgentCapabilities(
                extensions=(
                    AgentExtension(uri="u", params={"x": [reduce(lambda one, _: [one], MANY[:80], 7)] * 20_000}),
                )
            ),
        ),
    ],
    ids=["name", "description", "modes", "documentation", "provider", "scheme", "key", "nested"],
)
def test_the_page_of_a_card_with_long_texts_is_bounded(page_of: Callable[[AgentCard], str], card: AgentCard) -> None:
    assert len(page_of(card)) < 8_000_000


def test_a_task_with_very_many_messages_of_its_user_is_opened_in_proportion() -> None:
    """Each message was compared with all others: 100,000 of them, as of a hostile agent, held a thread for half an hour."""
    from a2a_sync.console.remote import _Mirror

    emitted: list[Any] = []
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING))
    context: Any = SimpleNamespace(task=task, task_id="t", context_id="c", emit=emitted.append)
    mirror = _Mirror(context, lambda task_id: task)
    history = tuple(Message(role=Role.USER, parts=(TextPart(str(number)),)) for number in range(5_000))
    begun = time.thread_time()
    mirror.take(replace(task, history=history), opened=True)
    assert sum(isinstance(one, Message) for one in emitted) == 4_999
    assert time.thread_time() - begun < 2


def test_operate_is_for_apps_only(open_console: Any) -> None:
    console = open_console()
    assert "Operate" not in console.page()
    assert console.browser.get("/console/operate").status_code == 403


def test_the_same_host_twice_has_two_names(serve: Callable[..., str]) -> None:
    from a2a_sync.console.remotesite import RemoteConsole

    site = RemoteConsole(["http://one.example/a", "http://one.example/A"], {})
    assert list(site.agents) == ["one-example-a", "one-example-a-2"]
    site.close(1.0)


@pytest.mark.parametrize("header", [b"[" * 30_000, b"\xff", b"{}", b"7", b""])
def test_a_signature_whose_header_cannot_be_read_is_shown_as_such(header: bytes) -> None:
    protected = base64.urlsafe_b64encode(header).decode().rstrip("=")
    signature = AgentCardSignature(protected=protected, signature="x")
    card = AgentCard(name="signed", description="d", version="1", signatures=(signature,))
    assert signature_state(card, None)[0].startswith("signed with an unreadable header")


def test_an_agent_beside_another_does_not_see_its_credentials(serve: Callable[..., str]) -> None:
    from a2a_sync.console.remotesite import RemoteConsole

    seen: dict[str, list[str]] = {"good": [], "other": []}

    def recording(name: str, app: A2AApp) -> A2AApp:
        inner = app.wsgi_app

        def record(environ: Any, start_response: Any) -> Any:
            seen[name] += [environ.get("HTTP_AUTHORIZATION", ""), environ.get("HTTP_X_SECRET", "")]
            return inner(environ, start_response)

        app.wsgi_app = record  # type: ignore[method-assign]
        return app

    good = serve(recording("good", A2AApp(Remote(), auth=BearerAuth({"s3cret": "ada"}))))
    other = serve(recording("other", A2AApp(Remote())))
    console = RemoteConsole([f"{good}/", f"{good}/again", other], {"auth": "s3cret", "headers": {"X-Secret": "s3cret"}})
    try:
        for app in console.agents.values():
            with Client(app, timeout=TIMEOUT) as client:
                client.send("hello")
        assert "Bearer s3cret" in seen["good"]
        assert set(seen["other"]) == {""}
        assert [app.remote.has_credentials for app in console.agents.values()] == [True, True, False]
    finally:
        for app in console.agents.values():
            app.close(1.0)


def test_an_agent_beside_another_is_offered_no_certificate(serve: Callable[..., str], tmp_path: Path) -> None:
    from a2a_sync.console.remotesite import RemoteConsole

    authority = Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
    tls.load_cert_chain(*authority.issue("127.0.0.1"))
    tls.verify_mode = ssl.CERT_REQUIRED
    options = {"verify": authority.ca, "cert": tuple(authority.issue("ada"))}
    plain = serve(A2AApp(Remote()))
    server = make_server("127.0.0.1", 0, A2AApp(Remote()), threaded=True, ssl_context=tls)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    strict = f"https://127.0.0.1:{server.server_port}"
    try:
        for urls, reachable in (([strict, plain], [True, True]), ([plain, strict], [True, False])):
            console = RemoteConsole(urls, options)
            apps = list(console.agents.values())
            for app in apps:
                app.remote.card()
                app.close(1.0)
            assert [app.remote.reachable for app in apps] == reachable
    finally:
        server.shutdown()
        thread.join(TIMEOUT)
        server.server_close()


def test_an_agent_that_answers_slowly_delays_its_own_pages_only(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., str]
) -> None:
    from a2a_sync.console.remotesite import RemoteConsole

    monkeypatch.setenv(KEY_VARIABLE, KEY)
    site = RemoteConsole([serve(A2AApp(Remote())), serve(A2AApp(Remote()))], {})
    try:
        browser = Browser(site)
        browser.post("/console/login", data={"token": Sessions(KEY.encode()).token()})
        one, other = site.agents
        assert browser.get(f"/console/a/{one}/").text.count("remote <small>") == 2
        asked = []
        slow = site.agents[other].remote
        card = slow.card()
        monkeypatch.setattr(slow.client, "card", lambda **_: asked.append(card) or card)

        assert browser.get(f"/console/a/{one}/").text.count("remote <small>") == 2
        assert not asked
        browser.get(f"/console/a/{other}/")
        assert asked
    finally:
        site.close(1.0)
