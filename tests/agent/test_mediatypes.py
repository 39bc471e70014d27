"""Media types: those that an agent accepts, and those that its client accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from a2a_sync import A2AApp, Agent, AgentSkill, Client, DataPart, FilePart, TextPart
from a2a_sync.agent.mediatypes import InputMediaTypes, MediaTypes
from a2a_sync.card import AgentCard
from a2a_sync.errors import ContentTypeNotSupportedError

CARD = AgentCard(
    name="n",
    description="d",
    version="1",
    default_input_modes=("text/plain", "image/*"),
    skills=(
        AgentSkill(id="a", name="A", description="d", tags=["t"]),
        AgentSkill(id="b", name="B", description="d", tags=["t"], input_modes=["text/csv", "application/JSON; v=1"]),
    ),
)


@pytest.mark.parametrize(
    ("media_type", "taken"),
    [
        ("text/plain", True),
        ("TEXT/Plain; charset=utf-8", True),
        (" text/plain ", True),
        ("image/png", True),
        ("text/csv", True),
        ("application/json", True),
        ("text/html", False),
        ("imagery/png", False),
        ("text/*", False),
        ("*/*", False),
        ("nonsense", False),
    ],
)
def test_an_agent_takes_what_its_card_and_its_skills_list(media_type: str, taken: bool) -> None:
    modes = InputMediaTypes(CARD)
    part = FilePart(raw=b"x", media_type=media_type)
    if taken:
        modes.check([part], "message.parts")
        return
    with pytest.raises(ContentTypeNotSupportedError) as caught:
        modes.check([TextPart("hi"), part], "message.parts")
    assert caught.value.message.startswith(
        f"message.parts[1].mediaType: {media_type} is not accepted; this agent accepts text"
    )
    assert caught.value.metadata["mediaType"] == media_type
    assert caught.value.metadata["supportedMediaTypes"] == "text/plain, image/*, text/csv, application/JSON; v=1"


def test_parts_that_name_no_media_type_are_taken() -> None:
    modes = InputMediaTypes(replace(CARD, default_input_modes=("text/csv",), skills=()))
    modes.check([TextPart("hi"), DataPart({"a": 1}), FilePart(raw=b"x"), FilePart(url="http://x.example/")], "parts")


@pytest.mark.parametrize(
    ("listed", "media_type", "taken"),
    [
        ([], "anything/at-all", True),
        (["*/*"], "anything/at-all", True),
        (["text"], "text/html", True),
        (["text"], "image/png", False),
        (["*"], "image/png", True),
        (["application/*"], "application/pdf", True),
    ],
)
def test_wildcards_and_kinds_stand_for_many(listed: list[str], media_type: str, taken: bool) -> None:
    assert (media_type in MediaTypes(listed)) is taken


def test_a_long_media_type_is_not_repeated_whole() -> None:
    with pytest.raises(ContentTypeNotSupportedError) as caught:
        InputMediaTypes(CARD).check([TextPart("x", media_type="x" * 5000)], "parts")
    assert len(caught.value.message) < 300


def test_a_message_that_is_refused_leaves_no_trace() -> None:
    agent = Agent("reader", input_modes=["text/plain"])
    agent.message(lambda message, context: message.text)
    app = A2AApp(agent)
    with app, Client(app) as client:
        for send in (client.send, lambda content: list(client.stream(content))):
            with pytest.raises(ContentTypeNotSupportedError, match="audio/x is not accepted"):
                send([TextPart("hi"), FilePart(raw=b"", media_type="audio/x")])
        assert client.list_tasks().total_size == 0


def test_a_handler_asks_what_its_client_takes() -> None:
    agent = Agent("choosing")
    agent.message(
        lambda message, context: [str(context.accepts(one)) for one in ("image/png", "text/html", "text/csv")]
    )
    app = A2AApp(agent)
    with app, Client(app) as client:
        assert client.send("hi").text == "TrueTrueTrue"
        chosen = client.send("hi", accepted_output_modes=["Image/*", "text/html; level=1"])
        assert chosen.text == "TrueTrueFalse"
