"""The module of the bridges, and ``a2a-sync serve`` for the objects of CrewAI."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("crewai")

from a2a_sync import Client
from a2a_sync.cli.target import make_app
from tests.crewai.kit import Kit, ShopFlow
from tests.frameworks.brain import TIMEOUT, Tools

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("a_module_with_a_crew")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("by", ["object", "function"])
@pytest.mark.parametrize("kind", ["crew", "agent"])
def test_a_crew_or_agent_is_served(module: Any, kind: str, by: str) -> None:
    make = getattr(Kit(Tools()), kind)
    module.shop = make if by == "function" else make()
    with make_app("a_module_with_a_crew:shop") as app, Client(app) as client:
        assert client.send("hi", timeout=TIMEOUT * 9).text == "You said: hi."
        assert client.send("ho", timeout=TIMEOUT * 9).text == "You said: ho."
        assert app.agent_card().name == "shop"


def test_the_class_of_a_flow_is_served(module: Any) -> None:
    module.ShopFlow = ShopFlow
    with make_app("a_module_with_a_crew:ShopFlow") as app:
        assert app.agent_card().name == "ShopFlow"
