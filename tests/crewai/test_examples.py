"""The example of CrewAI runs its dialogue without the key of a provider."""

from __future__ import annotations

import pytest

pytest.importorskip("crewai")

from examples.frameworks.pretend import talk


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_example_streams_asks_and_buys(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    from examples.frameworks.crewai import app

    talk(app)
    said = capsys.readouterr().out
    assert "agent: I sell boats. Say: buy a boat." in said
    assert "[input-required] A boat for 5." in said
    assert said.endswith("you: yes\nagent: Well, you have bought a boat. Enjoy it! \n")
