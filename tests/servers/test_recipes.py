"""The recipes of docs/howto/deploy.md: their commands are run as processes, and proxies pass streams with their files."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from a2a_sync import Client
from a2a_sync.card import validate_card
from tests.live import HOST, ROOT, LiveServer, free_port, live_server
from tests.servers.nginx import needs_nginx, nginx

yaml = pytest.importorskip("yaml", reason="needs PyYAML, which `make test` installs")

FILES = ROOT / "examples" / "deploy"
pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]
#: Seconds in which the settings of gunicorn drain.
GRACEFUL = 30


def docker_command() -> list[str]:
    found = re.search(r"^CMD (\[.+\])$", (FILES / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    return list(json.loads(found[1]))


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(FILES / "agent.service")
    return parser


def kubernetes() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())}


@contextmanager
def served(command: list[str], folder: Path, **environment: str) -> Iterator[LiveServer]:
    """The command of a recipe, with another port and store."""
    shutil.copy(FILES / "service.py", folder)
    assert Path(command[0]).name == "gunicorn"
    port = free_port()
    words = [re.sub(r"^[\d.]+:8000$", f"{HOST}:{port}", word) for word in command[1:]]
    assert f"{HOST}:{port}" in words
    values = {
        "STORE": f"sqlite:///{folder}/tasks.db",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        **environment,
    }
    program = [sys.executable, "-m", "gunicorn", *words, "--no-control-socket"]
    with live_server(program, f"http://{HOST}:{port}", environment=values, folder=folder) as server:
        yield server


@pytest.mark.parametrize("recipe", ["docker", "systemd"])
def test_the_command_of_a_recipe_serves_the_agent_and_its_probes(recipe: str, tmp_path: Path) -> None:
    command = docker_command() if recipe == "docker" else shlex.split(unit()["Service"]["ExecStart"])
    container = kubernetes()["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    with served(command, tmp_path) as server, Client(server.url) as client:
        assert client.send("hi").text == "hi"
        validate_card(client.card())
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert requests.get(server.url + path, timeout=30).status_code == 200
    assert (tmp_path / "tasks.db").exists()


def test_every_recipe_waits_longer_than_the_server_drains() -> None:
    pod = kubernetes()["StatefulSet"]["spec"]["template"]["spec"]
    pause = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    compose = yaml.safe_load((FILES / "compose.yaml").read_text())["services"]["agent"]
    waits = {
        "kubernetes": pod["terminationGracePeriodSeconds"] - pause,
        "compose": int(compose["stop_grace_period"].removesuffix("s")),
        "systemd": int(unit()["Service"]["TimeoutStopSec"]),
    }
    assert all(seconds > GRACEFUL for seconds in waits.values()), waits


def test_kubernetes_needs_no_sticky_sessions_and_its_names_fit() -> None:
    objects = kubernetes()
    pods, service, ingress = objects["StatefulSet"]["spec"], objects["Service"]["spec"], objects["Ingress"]["spec"]
    assert service["sessionAffinity"] == "None"
    assert service["selector"] == pods["selector"]["matchLabels"] == pods["template"]["metadata"]["labels"]
    backend = ingress["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend["name"] == objects["Service"]["metadata"]["name"]
    assert backend["port"]["number"] == service["ports"][0]["port"]
    container = pods["template"]["spec"]["containers"][0]
    assert service["ports"][0]["targetPort"] == container["ports"][0]["containerPort"] == 8000
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["metadata"]["name"] for one in pods["volumeClaimTemplates"]}


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    assert {"Unit", "Service", "Install"} == set(unit().sections())
    if not (program := shutil.which("systemd-analyze")):
        return  # no skip: containers have no systemd, and the command of the unit is run above
    # The program of the recipe is not on this machine, and its user neither.
    text = (FILES / "agent.service").read_text().replace("/srv/agent/.venv/bin/gunicorn", sys.executable)
    copy = tmp_path / "agent.service"
    copy.write_text(text)
    done = subprocess.run([program, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if "agent.service" in line and "not found" not in line]
    assert complaints == []


@needs_nginx()
@pytest.mark.nginx
def test_nginx_passes_streams_with_the_file_of_the_recipe(tmp_path: Path) -> None:
    found = re.search(r"location / \{.*?\n    \}", (FILES / "nginx.conf").read_text(), re.DOTALL)
    assert found
    with served(docker_command(), tmp_path, TRUSTED_PROXIES="1") as server:
        location = found[0].replace("http://127.0.0.1:8000", server.url)
        with nginx(tmp_path, location) as proxy, Client(proxy.url) as client:
            assert client.card().supported_interfaces[0].url.startswith(proxy.url)
            stream = client.stream("through nginx")
            assert len(list(stream)) > 1
            assert stream.text == "through nginx"


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed (on Debian: apt-get install caddy)")
def test_caddy_passes_streams_with_the_file_of_the_recipe(tmp_path: Path) -> None:
    program = shutil.which("caddy")
    assert program
    with served(docker_command(), tmp_path, TRUSTED_PROXIES="1") as server:
        port = free_port()
        environment = {
            "SITE": f"http://{HOST}:{port}",
            "UPSTREAM": server.url.removeprefix("http://"),
            "XDG_DATA_HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path),
        }
        # Without the port for its administration, on which two of them would meet.
        config = tmp_path / "Caddyfile"
        config.write_text("{\n\tadmin off\n}\n" + (FILES / "Caddyfile").read_text())
        command = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
        url = f"http://{HOST}:{port}"
        with live_server(command, url, environment=environment, folder=tmp_path), Client(url) as client:
            assert client.card().supported_interfaces[0].url.startswith(url)
            stream = client.stream("through Caddy")
            assert len(list(stream)) > 1
            assert stream.text == "through Caddy"
