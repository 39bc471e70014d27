"""The commands of the page on gRPC, with grpcurl."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from a2a_sync import A2AApp
from a2a_sync.grpc import GRPCServer
from tests.grpc.agent import Worker
from tests.live import ROOT
from tests.servers.test_commands import TIMEOUT

PROGRAM = Path(sys.executable).with_name("grpcurl")
UNKNOWN_TASK = """grpcurl -plaintext -d '{"id": "unknown"}' 127.0.0.1:50051 lf.a2a.v1.A2AService/GetTask"""


def commands(page: str, title: str) -> list[str]:
    """The first commands of a section."""
    section = (ROOT / "docs" / page).read_text().partition(f"## {title}\n")[2]
    return section.split("```")[1].partition("\n")[2].replace("\\\n", "").splitlines()


def test_grpcurl_executes_the_commands_of_the_page() -> None:
    app, found = A2AApp(Worker()), []
    with GRPCServer(app, "127.0.0.1:0", reflection=True) as server:
        for command in [*commands("howto/grpc.md", "grpcurl"), UNKNOWN_TASK]:
            program, *arguments = shlex.split(command.replace("127.0.0.1:50051", f"127.0.0.1:{server.port}"))
            assert program == PROGRAM.name
            found.append(
                subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False)
            )
        server.close(timeout=0)
    app.close(timeout=0)
    listed, sent, refused = found
    assert "lf.a2a.v1.A2AService" in listed.stdout.split()
    assert '"text": "worker: hi"' in sent.stdout
    assert '"reason":"TASK_NOT_FOUND"' in refused.stderr.replace(": ", ":")
