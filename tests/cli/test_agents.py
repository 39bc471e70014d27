"""Lists of agents: of a host of this library, and of registries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

from a2a_sync import A2AApp, AgentHost
from a2a_sync.cli.agentlist import ListedAgent, listing_lines
from a2a_sync.testing import socket_server
from tests.cli.agents import HOSTILE, Actor, Direct
from tests.cli.conftest import served

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def host_url() -> Iterator[str]:
    with served(AgentHost({"actor": Actor(), "direct": Direct()})) as address:
        yield address


def answers(documents: dict[str, Any]) -> Any:
    """A server with a JSON document at each of these paths."""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        found = documents.get(environ["PATH_INFO"])
        start_response("200 OK" if found is not None else "404 Not Found", [("Content-Type", "application/json")])
        return [json.dumps(found).encode()]

    return socket_server(app)


def test_the_agents_of_a_host_are_listed_with_their_addresses(run: Run, host_url: str) -> None:
    lines = run("agents", host_url).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["actor", f"{host_url}/actor/"],
        ["direct", f"{host_url}/direct/"],
    ]
    assert lines[0].endswith("Does what it is asked")


def test_with_json_each_agent_is_one_line_with_its_card(run: Run, host_url: str) -> None:
    entries = [json.loads(line) for line in run("agents", host_url, "--json").stdout.splitlines()]
    assert [(one["name"], one["url"], one["card"]["name"]) for one in entries] == [
        ("actor", f"{host_url}/actor/", "actor"),
        ("direct", f"{host_url}/direct/", "direct"),
    ]


@pytest.mark.parametrize("command", [["send", "hi"], ["card"], ["get", "x"], ["list"], ["cancel", "x"], ["watch", "x"]])
def test_at_the_root_of_a_host_other_commands_list_its_agents(run: Run, host_url: str, command: list[str]) -> None:
    name, *rest = command
    refused = run(name, host_url, *rest)
    assert refused.exit_code == 2
    assert f"{host_url} serves several agents; name one:" in refused.stderr
    assert f"{host_url}/direct/" in refused.stderr
    assert run("send", f"{host_url}/direct/", "hi").stdout == "no task here\n"


def test_a_registry_of_cards_is_listed(run: Run) -> None:
    with A2AApp(Actor(), url="https://agents.example/actor") as app:
        card = app.agent_card().to_dict()
    for path in ("/registry/agents", "/somewhere"):
        with answers({path: [card, {"name": HOSTILE, "url": "http://x\x1b[2J/"}, 7]}) as url:
            listed = run("agents", url + ("/somewhere" if path == "/somewhere" else ""))
        assert listed.exit_code == 0
        assert "https://agents.example/actor" in listed.stdout
        assert "\x1b" not in listed.stdout
        assert len(listed.stdout.splitlines()) == 2


def test_without_a_list_the_urls_that_were_tried_are_named(run: Run, url: str) -> None:
    with answers({"/.well-known/agents": {"agents": 7}}) as other:
        failed = run("agents", other)
    assert failed.exit_code == 3
    assert (
        f"{other}/.well-known/agents: JSON, but no list of agents; {other}/registry/agents: HTTP 404" in failed.stderr
    )
    assert run("agents", url).exit_code == 3
    assert run("agents", "http://127.0.0.1:1").exit_code == 3


def test_a_long_list_of_agents_is_printed_in_linear_time() -> None:
    # 20,000 took 19 seconds, and a list may have 250,000.
    agents = [ListedAgent(f"agent {number}", f"http://{number}.example.com/", None) for number in range(20_000)]
    began = time.process_time()
    assert len(list(listing_lines(agents))) == 20_000
    assert time.process_time() - began < 5
    assert list(listing_lines([])) == []
