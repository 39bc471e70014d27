"""Health, readiness and metrics: what a server's keeper asks for."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
import requests
from werkzeug.test import Client as Browser

from a2a_sync import (
    A2AApp,
    Agent,
    AgentHost,
    Client,
    Limits,
    Message,
    RequestContext,
    SQLiteStore,
    Task,
    TaskNotFoundError,
)
from a2a_sync.errors import AgentError, error_from_wire
from a2a_sync.server.metrics import Metrics
from a2a_sync.testing import wsgi_session
from a2a_sync.testing.storecontract.making import begin, done
from tests.live import gunicorn


def make_agent() -> Agent:
    agent = Agent("busy", description="Works")

    @agent.message
    def work(message: Message, context: RequestContext) -> str:
        if message.text == "wait":
            context.sleep(60)
        if message.text == "fail":
            raise ValueError("no")
        return "done"

    return agent


def get(app: A2AApp, path: str, method: str = "GET") -> requests.Response:
    return wsgi_session(app).request(method, "http://agent.test" + path, timeout=60)


def test_a_process_that_answers_is_healthy_and_one_that_can_work_is_ready() -> None:
    with A2AApp(make_agent()) as app:
        assert (get(app, "/healthz").status_code, get(app, "/healthz").json()) == (200, {"status": "ok"})
        assert get(app, "/readyz").status_code == 200
        assert get(app, "/readyz", "HEAD").status_code == 200
        assert get(app, "/readyz", "POST").status_code == 405
        assert get(app, "/readyz").headers["Cache-Control"] == "no-store"


def test_a_closing_app_is_alive_and_not_ready() -> None:
    app = A2AApp(make_agent())
    app.close(timeout=0)
    assert get(app, "/healthz").status_code == 200
    assert (get(app, "/readyz").status_code, get(app, "/readyz").json()) == (503, {"status": "stopping"})


def test_an_app_whose_store_cannot_be_read_is_not_ready_and_says_nothing_of_the_inside(tmp_path: Path) -> None:
    broken = tmp_path / "tasks.db"
    broken.write_bytes(b"this is no database" * 100)
    with A2AApp(make_agent(), store=SQLiteStore(broken)) as app:
        answer = get(app, "/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "the store cannot be read"})


def test_without_metrics_there_is_no_page_of_them() -> None:
    with A2AApp(make_agent()) as app:
        assert get(app, "/metrics").status_code == 404


def samples(app: A2AApp) -> dict[str, float]:
    text = get(app, "/metrics").text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_calls_are_counted_by_operation_and_outcome() -> None:
    with A2AApp(make_agent(), metrics=Metrics()) as app:
        client = Client(app)
        client.send("hello")
        client.send("fail")
        with pytest.raises(TaskNotFoundError):
            client.get_task("no-such-task")
        found = samples(app)
    assert found['a2a_calls_total{operation="SendMessage",outcome="ok"}'] == 2
    assert found['a2a_calls_total{operation="GetTask",outcome="TASK_NOT_FOUND"}'] == 1
    assert found['a2a_call_seconds_count{operation="SendMessage"}'] == 2
    assert found['a2a_runs_total{outcome="returned"}'] == 1
    assert found['a2a_runs_total{outcome="raised"}'] == 1


def test_reasons_that_another_agent_invents_are_no_labels() -> None:
    # Each of them was a series, which a process keeps for ever: an agent elsewhere chose its length, and how many there were.
    numbers = itertools.count()

    class Gateway(Agent):
        name = "gateway"
        description = "Asks another agent"
        direct = True

        def handle_message(self, message: Message, context: RequestContext) -> str:
            raise error_from_wire(reason=f"INVENTED_{next(numbers)}", code=-32077, message="no")

    with A2AApp(Gateway(), metrics=Metrics()) as app, Client(app) as client:
        for number in range(3):
            with pytest.raises(AgentError) as raised:
                client.send("hello")
            assert raised.value.reason == f"INVENTED_{number}"
        found = {name: value for name, value in samples(app).items() if name.startswith("a2a_calls_total")}
    assert found == {'a2a_calls_total{operation="SendMessage",outcome="INTERNAL_ERROR"}': 3}


def test_a_run_that_never_looks_whether_it_was_cancelled_is_shown_as_lingering() -> None:
    release, begun = threading.Event(), threading.Event()
    agent = Agent("deaf", description="Does not listen")

    @agent.message
    def work(message: Message, context: RequestContext) -> str:
        begun.set()
        release.wait(60)
        return "too late"

    with A2AApp(agent, metrics=Metrics(), limits=Limits(disconnect_check_interval=0.05)) as app:
        client = Client(app)
        task = client.send("go", return_immediately=True)
        assert isinstance(task, Task)
        assert begun.wait(60)
        assert (samples(app)["a2a_runs_active"], samples(app)["a2a_runs_lingering"]) == (1, 0)
        client.cancel_task(task.id)
        assert samples(app)["a2a_runs_lingering"] == 1
        release.set()
        pause = threading.Event()
        for _ in range(500):
            if samples(app)["a2a_runs_lingering"] == 0:
                break
            pause.wait(0.01)
        assert samples(app)['a2a_runs_total{outcome="cancelled"}'] == 1
        assert client.get_task(task.id).state == "canceled"


def test_open_streams_are_shown() -> None:
    with A2AApp(make_agent(), metrics=Metrics(), limits=Limits(disconnect_check_interval=0.05)) as app:
        with Client("http://agent.test", session=wsgi_session(app)) as client, client.stream("wait") as stream:
            next(iter(stream))
            assert samples(app)["a2a_streams_open"] == 1
            assert stream.task is not None
            client.cancel_task(stream.task.id)
        assert samples(app)["a2a_streams_open"] == 0


def test_the_store_is_shown_and_what_waits_in_it(tmp_path: Path) -> None:
    with (
        closing(SQLiteStore(tmp_path / "tasks.db")) as store,
        A2AApp(make_agent(), store=store, metrics=Metrics()) as app,
    ):
        begin(store), done(store)
        store.workers.beat(60)
        found = samples(app)
    assert (found["a2a_store_up"], found["a2a_runs_queued"]) == (1, 0)
    assert {state: found[f'a2a_store_tasks{{state="{state}"}}'] for state in ("submitted", "working")} == {
        "submitted": 0,
        "working": 1,
    }
    assert [found[f'a2a_store_workers{{state="{state}"}}'] for state in ("alive", "late", "lost")] == [1, 0, 0]
    assert found["a2a_store_heartbeat_seconds"] < 60
    assert found["a2a_outbox_entries"] == found['a2a_outbox_webhooks{state="stopped"}'] == 0


def test_a_store_that_hangs_delays_no_page_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    metered = Metrics()
    with A2AApp(make_agent(), metrics=metered) as app:
        assert samples(app)["a2a_store_up"] == 1
        assert app.store.inspection is not None
        monkeypatch.setattr(app.store.inspection, "run_counts", lambda: release.wait(60) and 1 / 0)
        metered._store._reading._due = 0.0
        assert [samples(app)["a2a_store_up"] for _ in range(3)] == [0, 0, 0]
        release.set()


def test_a_missing_package_is_named_when_metrics_are_made() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from a2a_sync.server.metrics import Metrics\n"
        "try: Metrics()\n"
        "except ImportError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "a2a-sync[prometheus]" in out


@pytest.mark.live
@pytest.mark.timeout(60)
def test_the_counts_of_several_workers_add_up(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(folder), "METERED_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    with gunicorn("tests.agents.metered:app", workers=2, threads=4, environment=environment) as server:
        for _ in range(20):
            with Client(server.url) as client:
                client.send("hello")
        page = requests.get(server.url + "/metrics", timeout=60).text
    total = sum(
        float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith("a2a_calls_total") and 'outcome="ok"' in line
    )
    assert total == 20


LONG = {
    "a query": {"QUERY_STRING": "&a" * 1000},
    "If-None-Match": {"HTTP_IF_NONE_MATCH": "a," * 1000},
    "If-Match": {"HTTP_IF_MATCH": "a," * 1000},
}


@pytest.mark.parametrize("path", ["/", "/tasks", "/message:send", "/.well-known/agent-card.json", "/healthz"])
@pytest.mark.parametrize("name", LONG)
def test_a_long_list_in_a_head_is_refused_before_it_is_read(name: str, path: str) -> None:
    for method in ("GET", "POST"):
        with A2AApp(make_agent()) as app:
            answer = Browser(app, use_cookies=False).open(path, method=method, environ_overrides=LONG[name])
            assert (answer.status_code, "more than 1,000 values" in answer.text) == (400, True)


@pytest.mark.parametrize("name", LONG)
def test_a_host_of_agents_refuses_a_long_list_too(name: str) -> None:
    with AgentHost({"busy": make_agent()}) as host:
        for path in ("/.well-known/agents", "/busy/.well-known/agent-card.json"):
            answer = Browser(host, use_cookies=False).get(path, environ_overrides=LONG[name])
            assert (answer.status_code, "more than 1,000 values" in answer.text) == (400, True)


def test_lists_of_a_thousand_values_are_read() -> None:
    overrides = {name: value[:-2] for one in LONG.values() for name, value in one.items()}
    with A2AApp(make_agent()) as app:
        assert Browser(app, use_cookies=False).get("/healthz", environ_overrides=overrides).status_code == 200
