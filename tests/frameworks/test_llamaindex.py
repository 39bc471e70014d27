"""What only the bridge to LlamaIndex does: conversations that are longer than the context of the model."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.memory import chat_memory_buffer

from a2a_sync import A2AApp, Client
from tests.frameworks.brain import TIMEOUT, Tools

pytestmark = [
    pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated"),
    pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated"),
]


def test_a_conversation_that_is_too_long_is_not_counted_again_for_each_message_that_is_omitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.frameworks.kit_llamaindex import Kit

    counted: list[str] = []

    def count(text: str) -> range:
        counted.append(text)
        return range(len(text.split()))

    monkeypatch.setattr(chat_memory_buffer, "get_tokenizer", lambda: count)
    kit = Kit(Tools())
    kit.model.window = 2_000
    with A2AApp(kit.make()) as app, Client(app) as client:
        for number in range(40):
            counted.clear()
            answer = client.send(f"{number} " + "word " * 50, context_id="c", timeout=TIMEOUT).text
    said = [word for word in answer.replace(",", " ").split() if word.isdecimal()]
    assert said[-1] == "39"
    assert "0" not in said
    assert len(counted) < 20
