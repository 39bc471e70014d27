"""``a2a-sync serve`` recognises the agents of frameworks."""

from __future__ import annotations

import asyncio
import importlib
import sys
from types import ModuleType
from typing import Any

import pytest

from a2a_sync import A2AApp, Client
from a2a_sync.cli.target import TargetError, make_app
from tests.frameworks import SHARED
from tests.frameworks.brain import TIMEOUT, Tools

pytestmark = [
    pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated"),
    pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated"),
]


def made(name: str) -> Any:
    kit = importlib.import_module(f"tests.frameworks.kit_{name}").Kit(Tools())
    if name == "strands":
        return kit.agent(None)
    agent = kit.runner() if name == "adk" else kit.agent()
    return asyncio.run(agent) if asyncio.iscoroutine(agent) else agent


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("a_module_with_an_agent")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("name", "by"),
    [(name, by) for name in SHARED for by in ("object", "function") if (name, by) != ("strands", "object")],
)
def test_the_object_of_a_framework_is_served(module: Any, name: str, by: str) -> None:
    module.shop = (lambda: made(name)) if by == "function" else made(name)
    with make_app("a_module_with_an_agent:shop") as app, Client(app) as client:
        assert isinstance(app, A2AApp)
        assert client.send("hi", timeout=TIMEOUT).text == "You said: hi."
        assert app.agent_card().name == "shop"


def test_strands_needs_a_function(module: Any) -> None:
    module.shop = made("strands")
    with pytest.raises(TargetError, match="a function that makes an agent for each run"):
        make_app("a_module_with_an_agent:shop")
