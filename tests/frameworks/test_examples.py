"""The examples of the frameworks run their dialogue without the key of a provider."""

from __future__ import annotations

import importlib

import pytest

from examples.frameworks.pretend import talk
from tests.frameworks import SHARED

# LlamaIndex reads attributes of its agents that Pydantic has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated"),
    pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated"),
]


@pytest.mark.parametrize("name", SHARED)
def test_an_example_streams_asks_and_buys(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    talk(importlib.import_module(f"examples.frameworks.{name}").app)
    said = capsys.readouterr().out
    assert "agent: I sell boats. Say: buy a boat." in said
    assert "agent: [input-required] " in said
    assert said.endswith("you: yes\nagent: Well, you have bought a boat. Enjoy it! \n")
