"""The newest official SDK parses every form of this library's cards."""

from __future__ import annotations

import pytest

from a2a_sync import A2AApp
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import CARD, OLD_CARD, Peer

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard
from google.protobuf.json_format import Parse


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@pytest.mark.parametrize(("version", "offered"), [("", ["1.0", "0.3"]), ("1.0", ["1.0", "0.3"]), ("0.3", ["0.3.0"])])
def test_every_form_of_the_card_is_read(version: str, offered: list[str], path: str) -> None:
    with A2AApp(ScenarioAgent(), url="https://agent.test/x") as app:
        document = Peer(app).request("GET", path, headers={"A2A-Version": version}).json
    card = parse_agent_card(document)
    assert (card.name, card.skills[0].id, card.capabilities.streaming) == ("scenario", "obey", True)
    assert list(dict.fromkeys(one.protocol_version for one in card.supported_interfaces)) == offered
    assert {one.protocol_binding for one in card.supported_interfaces} == {"JSONRPC", "HTTP+JSON"}
    assert {one.url.rstrip("/") for one in card.supported_interfaces} == {"https://agent.test/x"}


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
def test_the_card_of_1_0_has_no_unknown_member(path: str) -> None:
    with A2AApp(ScenarioAgent(), url="https://agent.test/x") as app:
        body = Peer(app).request("GET", path, headers={"A2A-Version": "1.0"}).body
    card = Parse(body, AgentCard(), ignore_unknown_fields=False)
    assert card.name == "scenario"
