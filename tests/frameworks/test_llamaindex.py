"""What only the bridge to LlamaIndex does: messages and conversations that are longer than the context of the model."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.memory import chat_memory_buffer
from workflows.runtime.types import step_function

from a2a_sync import A2AApp, Client, TaskState
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


def test_a_message_that_is_longer_than_the_context_is_counted_in_pieces_and_not_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.frameworks.kit_llamaindex import Kit

    counted: list[str] = []

    def count(text: str) -> range:
        counted.append(text)
        return range(len(text))

    monkeypatch.setattr(chat_memory_buffer, "get_tokenizer", lambda: count)
    kit = Kit(Tools())
    kit.model.window = 20_000
    with A2AApp(kit.make()) as app, Client(app) as client:
        assert client.send("x" * 1_000_000, context_id="c", timeout=TIMEOUT).task.state is TaskState.COMPLETED
        assert client.send("Hello", context_id="c", timeout=TIMEOUT).task.state is TaskState.COMPLETED
    assert max(map(len, counted)) < 10_000
    assert sum(map(len, counted)) < 200_000


def test_the_representations_of_events_that_the_framework_makes_on_the_loop_do_not_have_the_texts_of_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.frameworks import kit_llamaindex

    made: list[str] = []

    def summarize(event: Any) -> str:
        fields = {**{name: getattr(event, name) for name in type(event).model_fields}, **event._data}
        made.extend(repr(value) for value in fields.values())
        return ""

    monkeypatch.setattr(step_function, "summarize_event", summarize)
    monkeypatch.setattr(kit_llamaindex, "think", lambda turns: "done")
    with A2AApp(kit_llamaindex.Kit(Tools()).make()) as app, Client(app) as client:
        for _ in range(3):
            assert client.send("long", context_id="c", timeout=TIMEOUT).text == "done"
    assert made
    assert not [text for text in made if "long" in text]
