"""Several agents in one application: paths, cards, what they share and what they do not, coming and going."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from a2a_sync import (
    A2AApp,
    Agent,
    AgentCard,
    AgentError,
    AgentHost,
    Client,
    Limits,
    Message,
    Task,
    TaskNotFoundError,
    TaskState,
)
from a2a_sync.auth.schemes import BearerAuth
from a2a_sync.multiagent.host import LIST_PATH
from a2a_sync.operations import GET_TASK, SEND_MESSAGE, Call, CallContext, Principal
from a2a_sync.server.metrics import Metrics
from a2a_sync.testing import wsgi_session
from a2a_sync.types import GetTaskRequest, Role, SendMessageRequest, TextPart
from a2a_sync.wsgi.options import HTTPOptions
from a2a_sync.wsgi.process import Site
from tests.agents.many import named
from tests.engine import TIMEOUT, Background, Gate, eventually
from tests.engine.test_membership import lose, meet
from tests.live import LiveServer, gunicorn
from tests.stopwatch import Stopwatch

URL = "http://agents.test"
LIST = "/.well-known/agents"


@pytest.fixture
def make_host() -> Iterator[Callable[..., AgentHost]]:
    made: list[AgentHost] = []

    def make(*names: str, **options: Any) -> AgentHost:
        options.setdefault("limits", Limits(disconnect_check_interval=0.05))
        agents = {name: named(name) for name in names}
        made.append(AgentHost({**agents, **options.pop("agents", {})}, **options))
        return made[-1]

    yield make
    for host in made:
        host.close(0)


def get(app: Any, path: str, method: str = "GET", **options: Any) -> requests.Response:
    return wsgi_session(app).request(method, URL + path, timeout=TIMEOUT, **options)


def client_of(host: Any, path: str) -> Client:
    return Client(URL + path, session=wsgi_session(host))


def send(client: Client, text: str, **options: Any) -> Task:
    task = client.send(text, **options)
    assert isinstance(task, Task)
    return task


# -- paths, cards and the list ------------------------------------------------------------------------------------------


def test_a_path_without_an_agent_is_named_with_the_prefix_of_the_host():
    agent = Agent("one")
    agent.message(lambda message, context: "done")
    with AgentHost({"one": agent}) as host:
        session = wsgi_session(DispatcherMiddleware(NotFound(), {"/agents": host}))
        answer = session.get("http://agent.test/agents/two", timeout=60)
    assert answer.status_code == 404
    message = f"there is no agent at '/agents/two'; agents are listed at /agents{LIST_PATH}"
    assert answer.json()["error"]["message"] == message


def test_each_agent_answers_at_a_path_of_its_own(make_host):
    host = make_host("echo", "sum")
    for name in host:
        with client_of(host, f"/{name}") as client:
            assert send(client, "hi").text == f"{name}: hi"
            assert client.card().name == name
            assert client.card().supported_interfaces[0].url == f"{URL}/{name}/"


def test_the_list_holds_each_agent_with_the_card_of_its_path(make_host):
    host = make_host("echo", "sum")
    listed = get(host, LIST).json()["agents"]
    assert [(entry["name"], entry["url"]) for entry in listed] == [("echo", f"{URL}/echo/"), ("sum", f"{URL}/sum/")]
    for entry in listed:
        assert entry["card"] == get(host, f"/{entry['name']}/.well-known/agent-card.json").json()


def test_the_list_comes_in_the_version_that_the_caller_names(make_host):
    host = make_host("echo")
    for version in ("1.0", "0.3"):
        headers = {"A2A-Version": version}
        (entry,) = get(host, LIST, headers=headers).json()["agents"]
        assert entry["card"] == get(host, "/echo/.well-known/agent-card.json", headers=headers).json()
        assert ("protocolVersion" in entry["card"]) == (version == "0.3")


def test_the_list_is_not_sent_again_where_nothing_has_changed(make_host):
    host = make_host("echo")
    answer = get(host, LIST)
    assert (answer.headers["Cache-Control"], answer.headers["Vary"]) == ("no-cache", "A2A-Version, Host")
    known = {"If-None-Match": answer.headers["ETag"]}
    assert get(host, LIST, headers=known).status_code == 304
    host.add("sum", named("sum"))
    assert get(host, LIST, headers=known).status_code == 200


def test_an_empty_host_lists_nothing(make_host):
    assert get(make_host(), LIST).json() == {"agents": []}


@pytest.mark.parametrize(
    "path", ["/", "", "/missing", "/missing/", "/missing/.well-known/agent-card.json", "//echo", "/ECHO"]
)
def test_other_paths_get_the_path_of_the_list(make_host, path):
    answer = get(make_host("echo"), path)
    assert answer.status_code == 404
    assert LIST in answer.json()["error"]["message"]


def test_other_verbs_are_refused_where_they_mean_nothing(make_host):
    host = make_host("echo")
    assert get(host, LIST, "POST").status_code == 405
    assert get(host, LIST, "HEAD").content == b""
    assert get(host, "/healthz", "DELETE").headers["Allow"] == "GET, HEAD, OPTIONS"


def test_http_json_and_streams_work_below_a_path(make_host):
    host = make_host("echo")
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    answer = get(host, "/echo/message:send", "POST", json=body, headers={"A2A-Version": "1.0"})
    assert answer.json()["task"]["artifacts"][0]["parts"][0]["text"] == "echo: hi"
    with client_of(host, "/echo") as client, client.stream("hi") as stream:
        assert [type(event).__name__ for event in stream][-1] == "TaskStatusUpdateEvent"


def test_a_public_address_stands_in_all_cards(make_host):
    host = make_host("echo", url="https://public.example/agents/")
    (entry,) = get(host, LIST).json()["agents"]
    assert entry["url"] == "https://public.example/agents/echo/"
    assert entry["card"]["supportedInterfaces"][0]["url"] == "https://public.example/agents/echo/"


def test_prefixes_of_mounts_and_of_trusted_proxies_stand_before_the_names(make_host):
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "public.example", "X-Forwarded-Prefix": "/x"}
    for hops, address in ((1, "https://public.example/x/echo/"), (0, f"{URL}/echo/")):
        host = make_host("echo", http=HTTPOptions(trusted_proxies=hops))
        (entry,) = get(host, LIST, headers=headers).json()["agents"]
        card = get(host, "/echo/.well-known/agent-card.json", headers=headers)
        assert entry["url"] == address == card.json()["supportedInterfaces"][0]["url"]
        assert ("X-Forwarded-Prefix" in card.headers["Vary"]) == bool(hops)


def test_a_root_agent_answers_at_the_host_itself_too(make_host):
    host = make_host("echo", "sum", root="sum")
    for path, name in (("", "sum"), ("/sum", "sum"), ("/echo", "echo")):
        with client_of(host, path) as client:
            assert send(client, "hi").text == f"{name}: hi"
    assert get(host, LIST).status_code == 200
    assert get(host, "/nowhere").status_code == 404


def test_pages_of_other_sites_and_hosts_are_kept_out_of_all_of_it(make_host):
    host = make_host("echo", http=HTTPOptions(cors_origins=["https://app.example"], trusted_hosts=["agents.test"]))
    for path in (LIST, "/echo/.well-known/agent-card.json"):
        allowed = get(host, path, headers={"Origin": "https://app.example"})
        assert allowed.headers["Access-Control-Allow-Origin"] == "https://app.example"
        evil = wsgi_session(host).get("http://evil.example" + path, timeout=TIMEOUT)
        assert evil.status_code == 400
    assert wsgi_session(host).get("http://10.0.0.1/healthz", timeout=TIMEOUT).status_code == 200


# -- names and options --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "a b", ".well-known", "é", "healthz", "metrics", "x" * 101, "a%2f"])
def test_a_name_must_be_one_part_of_a_path(make_host, name):
    with pytest.raises(ValueError, match="cannot be the name"):
        make_host().add(name, named("x"))


def test_a_name_is_taken_once(make_host):
    host = make_host("echo")
    with pytest.raises(ValueError, match="remove it first"):
        host.add("echo", named("other"))
    assert host["echo"].agent_card().name == "echo"


def test_what_cannot_be_an_agent_takes_no_name(make_host):
    host = make_host()
    with pytest.raises(TypeError, match="has no execute"):
        host.add("x", object())
    host.add("x", named("x"))
    assert list(host) == ["x"]
    with pytest.raises(TypeError, match="mapping of names to agents, not a list"):
        AgentHost([named("x")])


def test_a_root_that_does_not_exist_is_refused(make_host):
    with pytest.raises(ValueError, match="root"):
        make_host("echo", root="sum")


def test_options_are_those_of_every_app_and_of_one(make_host):
    host = make_host(protocol_versions=("1.0",))
    host.add("echo", named("echo"), auth=BearerAuth({"secret": "ada"}))
    host.add("sum", named("sum"), card=AgentCard(name="other", description="d", version="1"))
    assert [one.protocol_version for one in host["sum"].agent_card(URL).supported_interfaces] == ["1.0", "1.0"]
    assert host["sum"].agent_card().name == "other"
    with client_of(host, "/sum") as client:
        assert send(client, "hi").text == "sum: hi"
    with client_of(host, "/echo") as client, pytest.raises(AgentError):
        client.send("hi")
    with client_of(host, "/echo") as client:
        assert send(client, "hi", headers={"Authorization": "Bearer secret"}).text == "echo: hi"


@pytest.mark.parametrize("option", ["store", "limits", "push", "metrics"])
def test_what_all_share_is_not_given_to_one(make_host, option):
    with pytest.raises(TypeError, match=f"share {option}"):
        make_host().add("x", named("x"), **{option: None})


def test_an_app_comes_with_all_its_own_settings(make_host, tmp_path: Path):
    own = A2AApp(named("own"), store=f"sqlite:///{tmp_path / 'own.db'}", protocol_versions=("1.0",))
    host = make_host("echo", agents={"own": own})
    assert host["own"] is own
    with client_of(host, "/own") as client:
        task = send(client, "hi")
        assert task.text == "own: hi"
    with Client(own) as client:
        assert client.get_task(task.id).text == "own: hi"
    with pytest.raises(TypeError, match="its own settings"):
        host.add("other", A2AApp(named("x")), versions=("1.0",))


# -- one store for all --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_an_agent_sees_nothing_of_the_tasks_of_another(make_host, store, tmp_path: Path):
    host = make_host("one", "two", store=None if store == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}")
    with Client(host["one"]) as one, Client(host["two"]) as two:
        task = send(one, "hi", context_id="c")
        assert one.get_task(task.id).text == "one: hi"
        for call in (two.get_task, two.cancel_task, lambda task_id: two.send("hi", task_id=task_id)):
            with pytest.raises(TaskNotFoundError):
                call(task.id)
        assert two.list_tasks().total_size == 0
        assert one.list_tasks().total_size == 1


def test_one_context_id_is_a_context_of_each_agent(make_host):
    agent = Agent("counting")

    @agent.message
    def count(message: Message, context: Any) -> str:
        context.state["n"] = context.state.get("n", 0) + 1
        return f"{context.state['n']} {len(context.conversation())}"

    host = make_host(agents={"one": agent, "two": agent})
    with Client(host["one"]) as one, Client(host["two"]) as two:
        said = [send(client, "x", context_id="c").text for client in (one, two, one)]
    assert said == ["1 1", "1 1", "2 3"]


def test_no_id_of_a_caller_leads_to_another_agent_or_caller(make_host):
    host = make_host("one", "two")

    def call(name: str, user: str | None, operation: Any, request: Any) -> Any:
        context = CallContext(principal=None if user is None else Principal(id=user))
        return host[name].endpoint()(Call(operation, request, context))

    message = Message(role=Role.USER, parts=(TextPart("hi"),))
    task = call("one", "ada", SEND_MESSAGE, SendMessageRequest(message=message))
    assert call("one", "ada", GET_TASK, GetTaskRequest(id=task.id)).id == task.id
    for name, user in (("two", "ada"), ("one", "bob"), ("one", None), ("two", "../one/ada"), ("two", "one/ada")):
        with pytest.raises(TaskNotFoundError):
            call(name, user, GET_TASK, GetTaskRequest(id=task.id))


def test_an_agent_may_call_another_one_of_its_host(make_host):
    host = make_host("two", limits=Limits(disconnect_check_interval=0.05, max_concurrent_runs=1))
    agent = Agent("calling")

    @agent.message
    def call(message: Message, context: Any) -> str:
        with Client(host["two"]) as client:
            return f"one, {send(client, message.text).text}"

    host.add("one", agent)
    with Client(host["one"]) as client:
        assert send(client, "hi").text == "one, two: hi"


def test_a_hundred_agents_share_their_threads(make_host):
    def threads() -> set[str]:
        return {thread.name for thread in threading.enumerate() if thread.name.startswith("a2a-")}

    before = threads()
    host = make_host(
        *[f"agent{n}" for n in range(100)], limits=Limits(disconnect_check_interval=0.05, max_concurrent_runs=4)
    )
    assert threads() <= before  # those of earlier tests may end meanwhile
    assert len(host) == len(get(host, LIST).json()["agents"]) == 100
    for name in host:
        with Client(host[name]) as client:
            assert send(client, "hi").text == f"{name}: hi"
    # Four at most for runs; one for the watchdog, one that sweeps.
    assert len(threads() - before) <= 6


def test_a_run_of_a_dead_worker_is_treated_as_its_agent_says(make_host, tmp_path: Path):
    def agents() -> dict[str, Agent]:
        made = {"again": Agent("again", on_worker_lost="retry"), "once": Agent("once")}
        for agent in made.values():

            @agent.message
            def answer(message: Message, context: Any) -> str:
                if context.attempt == 1:
                    context.sleep(60)
                return f"attempt {context.attempt}"

        return made

    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    first, second = (
        make_host(
            agents=agents(), store=store, limits=Limits(worker_heartbeat_interval=0.1, disconnect_check_interval=0.05)
        )
        for _ in range(2)
    )
    tasks = {}
    for name in first:
        with Client(first[name]) as client:
            tasks[name] = send(client, "go", return_immediately=True).id
    lose(first["once"])
    meet(second["once"])
    ends = {}
    for name, task_id in tasks.items():
        with Client(second[name]) as client:
            ends[name] = client.wait(task_id, timeout=2 * TIMEOUT).text
    assert ends == {"again": "attempt 2", "once": "worker lost"}


def test_a_lost_run_of_an_agent_that_is_gone_fails(make_host, tmp_path: Path):
    store, limits = (
        f"sqlite:///{tmp_path / 'tasks.db'}",
        Limits(worker_heartbeat_interval=0.1, disconnect_check_interval=0.05),
    )
    first = make_host(agents={"gone": named("gone", on_worker_lost="retry")}, store=store, limits=limits)
    second = make_host("other", store=store, limits=limits)
    with Client(first["gone"]) as client:
        task_id = send(client, "wait", return_immediately=True).id
    lose(first["gone"])
    meet(second["other"])
    second.add("gone", named("gone"))
    with Client(second["gone"]) as client:
        assert client.wait(task_id, timeout=2 * TIMEOUT).state is TaskState.FAILED


# -- coming and going ---------------------------------------------------------------------------------------------------


def gated(gate: Gate) -> Agent:
    agent = Agent("gated")

    @agent.message
    def answer(message: Message, context: Any) -> str:
        gate.block()
        return f"done, {'cancelled' if context.cancelled else 'in time'}"

    return agent


def test_agents_come_while_the_host_runs(make_host):
    host = make_host("one")
    assert get(host, "/two/").status_code == 404
    app = host.add("two", named("two"))
    assert host["two"] is app
    with client_of(host, "/two") as client:
        assert send(client, "hi").text == "two: hi"
    assert [entry["name"] for entry in get(host, LIST).json()["agents"]] == ["one", "two"]


def test_a_removed_agent_is_not_found_and_the_others_are(make_host):
    host = make_host("one", "two")
    host.remove("one")
    assert get(host, "/one/.well-known/agent-card.json").status_code == 404
    assert [entry["name"] for entry in get(host, LIST).json()["agents"]] == ["two"]
    assert "one" not in host
    with client_of(host, "/two") as client:
        assert send(client, "hi").text == "two: hi"
    with pytest.raises(KeyError):
        host.remove("one")


def test_the_runs_of_a_removed_agent_may_end(make_host):
    gate = Gate()
    host = make_host("other", agents={"gated": gated(gate)})
    with client_of(host, "/gated") as client:
        waiting = Background(lambda: send(client, "go"))
        gate.wait()
        removal = Background(lambda: host.remove("gated", timeout=TIMEOUT))
        eventually(lambda: "gated" not in host)
        assert get(host, "/gated/").status_code == 404
        with pytest.raises(ValueError, match="remove it first"):
            host.add("gated", named("new"))
        with client_of(host, "/other") as other:
            assert send(other, "hi").text == "other: hi"
        gate.open.set()
        assert waiting.result().text == "done, in time"
    removal.result()
    host.add("gated", named("new"))


def test_what_a_removed_agent_does_not_end_in_time_fails(make_host):
    gate = Gate()
    host = make_host("other", agents={"gated": gated(gate)})
    app = host["gated"]
    with client_of(host, "/gated") as client, client_of(host, "/other") as other:
        waiting = Background(lambda: send(client, "go"))
        untouched = send(other, "wait", return_immediately=True)
        gate.wait()
        host.remove("gated", timeout=0)
        assert (waiting.result().state, waiting.result().text) == (TaskState.FAILED, "agent removed")
        assert other.get_task(untouched.id).state is TaskState.WORKING
        assert host.running > 0
    gate.open.set()
    with Client(app) as late, pytest.raises(AgentError, match="no longer served"):
        late.send("hi")


def test_an_agent_that_comes_back_finds_its_tasks(make_host):
    host = make_host("one")
    with Client(host["one"]) as client:
        task_id = send(client, "hi").id
    host.remove("one")
    host.add("two", named("two"))
    host.add("one", named("again"))
    with Client(host["one"]) as client:
        assert client.get_task(task_id).text == "one: hi"
        assert send(client, "hi").text == "again: hi"
    with Client(host["two"]) as client, pytest.raises(TaskNotFoundError):
        client.get_task(task_id)


def test_an_agent_that_is_read_while_it_is_removed_blocks_no_other(make_host):
    host = make_host("one")
    host.add("own", A2AApp(named("own"), store="memory:"))

    class Apps(dict):
        def items(self):
            seen = list(super().items())
            if "own" in self:
                host.remove("own", timeout=0)
            return seen

    host._apps = Apps(host._apps)
    assert host.running == 0
    assert list(host) == ["one"]


def test_an_app_of_its_own_is_closed_when_it_is_removed(make_host):
    own = A2AApp(named("own"))
    host = make_host(agents={"own": own})
    host.remove("own", timeout=0)
    assert own.not_ready_reason() == "stopping"
    assert host.not_ready_reason() == ""


def test_agents_that_are_added_and_removed_disturb_no_other(make_host):
    host = make_host("stays")
    stop = threading.Event()
    errors: list[BaseException] = []

    def come_and_go(name: str) -> None:
        try:
            while not stop.is_set():
                host.add(name, named(name))
                with Client(host[name]) as client:
                    assert send(client, "hi").text == f"{name}: hi"
                host.remove(name)
        except BaseException as error:
            errors.append(error)

    movers = [threading.Thread(target=come_and_go, args=(f"m{n}",), daemon=True) for n in range(4)]
    for mover in movers:
        mover.start()
    with client_of(host, "/stays") as client:
        for _ in range(50):
            assert send(client, "hi").text == "stays: hi"
            assert get(host, LIST).status_code == 200
    stop.set()
    for mover in movers:
        mover.join(TIMEOUT)
        assert not mover.is_alive()
    assert errors == []


# -- the whole ----------------------------------------------------------------------------------------------------------


def test_a_host_is_a_site_as_an_app_is(make_host):
    assert isinstance(make_host("echo"), Site)
    assert isinstance(make_host("echo")["echo"], Site)


def test_a_host_is_ready_when_all_its_agents_are(make_host, tmp_path: Path):
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database" * 100)
    host = make_host("echo")
    assert get(host, "/readyz").json() == {"status": "ok"}
    host.add("broken", A2AApp(named("x"), store=f"sqlite:///{broken}"))
    assert (get(host, "/readyz").status_code, get(host, "/healthz").status_code) == (503, 200)
    assert get(host, "/echo/readyz").status_code == 200
    host.remove("broken", timeout=0)
    assert get(host, "/readyz").status_code == 200
    host.close(0)
    assert get(host, "/readyz").json() == {"status": "stopping"}


def test_one_page_counts_for_all_agents(make_host):
    pytest.importorskip("prometheus_client")
    host = make_host("one", "two", metrics=Metrics())
    for name in host:
        with Client(host[name]) as client:
            send(client, "hi")
    # A run is counted when it is left, which is after its answer.
    returned = 'a2a_runs_total{outcome="returned"} 2.0'
    page = eventually(lambda: returned in (page := get(host, "/metrics").text) and page, "two runs")
    assert 'a2a_calls_total{operation="SendMessage",outcome="ok"} 2.0' in page
    assert get(host, "/one/metrics").status_code == 404


def test_closing_ends_all_agents_in_the_time_of_one(make_host):
    own = A2AApp(named("own"), limits=Limits(disconnect_check_interval=0.05))
    host = make_host("one", "two", agents={"own": own})
    tasks = {}
    for name in host:
        with Client(host[name]) as client:
            tasks[name] = send(client, "wait", return_immediately=True).id
    eventually(lambda: host.running == 3)
    watch = Stopwatch()
    host.close(0.2)
    assert watch.within(TIMEOUT)
    for name, task_id in tasks.items():
        with Client(host[name]) as client:
            assert client.get_task(task_id).text == "server stopped"
    host.close(0.2)


def test_a_host_with_tasks_in_memory_is_of_one_process(make_host, tmp_path: Path):
    shared = make_host("echo", store=f"sqlite:///{tmp_path / 'tasks.db'}")
    assert make_host("echo").single_process
    assert not shared.single_process
    shared.add("own", A2AApp(named("own")))
    assert shared.single_process


# -- several workers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    pytest.importorskip("prometheus_client")
    counts = tmp_path / "counts"
    counts.mkdir()
    environment = {"MANY_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "PROMETHEUS_MULTIPROC_DIR": str(counts)}
    options = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn("tests.agents.many:host()", *options, threads=8, workers=3, environment=environment) as server:
        yield server


@pytest.mark.live
@pytest.mark.timeout(90)
def test_several_workers_serve_all_agents_as_one(server: LiveServer) -> None:
    for turn in range(4):
        for name in ("one", "two", "three"):
            # Each over a connection of its own, so that the kernel picks a worker.
            with Client(f"{server.url}/{name}") as sender:
                task = send(sender, "wait", return_immediately=True)
            with Client(f"{server.url}/{name}") as other:
                assert other.get_task(task.id).state is TaskState.WORKING
                assert other.cancel_task(task.id).state is TaskState.CANCELED
                assert send(other, "hi").text == f"{name}: hi"
                assert other.list_tasks().total_size == 2 * (turn + 1)
    assert requests.get(server.url + LIST, timeout=TIMEOUT).json()["agents"][2]["name"] == "three"
    assert requests.get(server.url + "/readyz", timeout=TIMEOUT).status_code == 200
    page = requests.get(server.url + "/metrics", timeout=TIMEOUT).text
    assert 'a2a_calls_total{operation="CancelTask",outcome="ok"} 12.0' in page


@pytest.mark.live
@pytest.mark.timeout(90)
def test_a_server_that_stops_ends_the_runs_of_all_agents(tmp_path: Path) -> None:
    environment = {"MANY_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    options = ("-c", "python:a2a_sync.gunicorn")
    target = "tests.agents.many:host()"
    with gunicorn(target, *options, threads=8, environment=environment) as server:
        tasks = {}
        for name in ("one", "two"):
            with Client(f"{server.url}/{name}") as client:
                tasks[name] = send(client, "wait", return_immediately=True).id
        assert server.terminate() == 0
    with gunicorn(target, *options, threads=8, environment=environment) as server:
        for name, task_id in tasks.items():
            with Client(f"{server.url}/{name}") as client:
                assert client.get_task(task_id).text == "server stopped"


@pytest.mark.slow
@pytest.mark.live
def test_several_workers_with_tasks_in_memory_are_refused() -> None:
    options = ("tests.agents.many:host()", "-c", "python:a2a_sync.gunicorn")
    refusal = pytest.raises(AssertionError, match="give the app a store that they share")
    with refusal, gunicorn(*options, workers=2, wait=TIMEOUT):
        pass
