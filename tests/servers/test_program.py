"""``a2a_sync.serve``: programs of one file, with gunicorn and with Werkzeug."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import a2a_sync
from a2a_sync import Agent, Client
from tests.live import HOST, free_port, live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
PROGRAM = """
import sys
import a2a_sync
agent = a2a_sync.Agent("one", description="One file")
agent.message(lambda message, context: f"You sent {message.text}")
if __name__ == "__main__":
    a2a_sync.serve(agent, port=int(sys.argv[1]), debug=sys.argv[2] == "debug")
"""


@pytest.mark.parametrize("mode", ["gunicorn", "debug"])
def test_a_program_of_one_file_serves_an_agent(tmp_path: Path, mode: str) -> None:
    program, port = tmp_path / "program.py", free_port()
    program.write_text(PROGRAM)
    url = f"http://{HOST}:{port}/"
    command = [sys.executable, str(program), str(port), mode]
    with live_server(command, f"{url}.well-known/agent-card.json", wait=60.0), Client(url, timeout=60) as client:
        assert client.send("hello").text == "You sent hello"


def test_several_workers_need_a_shared_store_and_no_debug() -> None:
    agent = Agent("one", description="One file")
    agent.message(lambda message, context: "x")
    with pytest.raises(ValueError, match="do not share tasks in memory"):
        a2a_sync.serve(agent, workers=2)
    with pytest.raises(ValueError, match="one process"):
        a2a_sync.serve(agent, workers=2, debug=True)
