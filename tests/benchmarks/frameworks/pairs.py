"""The compared pairs: how their servers are started, where they are, and how a caller of `theirs` answers a question."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2a_sync import DataPart, Task
from tests.benchmarks.environments import ROOT
from tests.benchmarks.frameworks.work import TOKEN
from tests.benchmarks.servers import Server, Setup, ours, uvicorn

#: What names the caller, for servers that refuse others their card too.
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}

_AGENTS = ROOT / "tests/benchmarks/frameworks/agents"
_GRAPHS = uuid.UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")


@dataclass(frozen=True)
class Pair:
    """A framework with a server of its own.

    Parameters:
        title: the framework.
        server: its own server.
        answer: makes the answer to an approval that `theirs` understands of the task that asks; None: the word "yes".
        connections: how many sends are under way at a time when speed is measured.
        restarts: whether each measurement of speed has new servers.
    """

    title: str
    server: str
    answer: Callable[[Task], Any] | None = None
    connections: int = 4
    restarts: bool = False


def _strands_answer(task: Task) -> Any:
    (data,) = _data(task)
    return [
        DataPart({"interruptResponse": {"interruptId": one["interruptId"], "response": True}})
        for one in data["interrupts"]
    ]


def _adk_answer(task: Task) -> Any:
    (data,) = _data(task)
    response = {"id": data["id"], "name": data["name"], "response": {"confirmed": True}}
    return DataPart(response, metadata={"adk_type": "function_response"})


def _langgraph_answer(task: Task) -> Any:
    return DataPart({"resume": {"decisions": [{"type": "approve"}]}})


def _data(task: Task) -> list[Any]:
    assert task.status.message is not None
    return [part.data for part in task.status.message.parts if isinstance(part, DataPart)]


#: By the names of their environments and modules.
PAIRS = {
    "pydantic_ai": Pair("Pydantic AI", "fasta2a"),
    "langgraph": Pair("LangChain, LangGraph", "langgraph dev", _langgraph_answer),
    "strands": Pair("Strands", "A2AServer", _strands_answer),
    "agent_framework": Pair("Microsoft Agent Framework", "A2AExecutor"),
    "adk": Pair("Google ADK", "to_a2a", _adk_answer),
    "crewai": Pair("CrewAI (agents)", "crewai.a2a", connections=1, restarts=True),
}


def setup(name: str, side: str, kind: str, folder: Path) -> Setup:
    """The command of one server, whose files are in `folder`."""
    variables = {"COMPARED": f"{name}/{side}/{kind}", "COMPARED_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    variables |= {"HOME": str(folder), "CREWAI_DISABLE_TELEMETRY": "true", "LANGSMITH_TRACING": "false"}
    app = "tests.benchmarks.frameworks.served:app"
    if side == "ours":
        return Setup(name, ours(app).command, variables, folder=folder)
    if name != "langgraph":
        return Setup(name, uvicorn(name, app).command, variables, folder=folder)
    graphs = {graph: f"{_AGENTS}/langgraph.py:{graph}_graph" for graph in ("shop", "prices")}
    settings: dict[str, Any] = {"dependencies": [str(ROOT)], "graphs": graphs}
    if kind == "known":
        settings["auth"] = {"path": f"{_AGENTS}/langgraph_auth.py:auth"}
    (folder / "langgraph.json").write_text(json.dumps(settings))
    command = ("-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--config", "langgraph.json")
    return Setup(name, command, variables, folder=folder)


class Compared(Server):
    """One running server of a pair."""

    def __init__(self, name: str, side: str, kind: str, folder: Path) -> None:
        self.path = "/"
        if (name, side) == ("langgraph", "theirs"):
            graph = "prices" if kind == "prices" else "shop"
            self.path = f"/a2a/{uuid.uuid5(_GRAPHS, graph)}"
        #: The version that its card names.
        self.version = ""
        super().__init__(setup(name, side, kind, folder), timeout=90.0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def _try(self, seconds: float) -> None:
        address = self.url.rstrip("/") + "/.well-known/agent-card.json"
        request = urllib.request.Request(address, headers=AUTHORIZATION)
        with urllib.request.urlopen(request, timeout=min(seconds, 10.0)) as answer:
            card = json.load(answer)
        interfaces = card.get("supportedInterfaces") or [{}]
        self.version = interfaces[0].get("protocolVersion") or card.get("protocolVersion") or "1.0"

    def __exit__(self, *_: object) -> None:
        # A feature that is missing is a result, and no reason to print the output of the server.
        self.stop()
