"""Pieces of text of one artifact: what is around the text is encoded once, and the bytes are those of any other event."""

from dataclasses import replace

import pytest

from a2a_sync import types as t
from a2a_sync.codec import by_version
from a2a_sync.jsontext import dumps
from a2a_sync.operations import StreamItem

CODECS = {
    "1.0": by_version("1.0"),
    "0.3": by_version("0.3"),
    "0.3 over HTTP": by_version("0.3", "HTTP+JSON"),
    "0.3 twice": by_version("0.3", "HTTP+JSON", double_base64_files=True),
}
EVENT = t.TaskArtifactUpdateEvent(
    task_id="t", context_id="c", artifact=t.Artifact(artifact_id="a", parts=(t.TextPart("text"),)), append=True
)


def with_text(text, **more):
    return replace(EVENT, artifact=replace(EVENT.artifact, parts=(t.TextPart(text),)), **more)


def with_artifact(**more):
    return replace(EVENT, artifact=replace(EVENT.artifact, **more))


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize(
    "event",
    [
        EVENT,
        with_text(""),
        with_text('"text" \\ \n \0 \u2028 ä 😀'),
        with_text("[{" * 200),
        with_text("last", last_chunk=True),
        with_text("first", append=False),
        # An id that looks like the mark in the place of the text.
        with_artifact(artifact_id="\0"),
        replace(EVENT, task_id='"\0"', context_id='"text":"\0"'),
        # Everything else that such an event may hold beside its text.
        with_artifact(name="answer"),
        with_artifact(description="d"),
        with_artifact(metadata={"k": 1}),
        with_artifact(extensions=("urn:x",)),
        with_artifact(parts=(t.TextPart("a"), t.TextPart("b"))),
        with_artifact(parts=(t.TextPart("a", media_type="text/html"),)),
        with_artifact(parts=(t.TextPart("a", filename="a.txt"),)),
        with_artifact(parts=(t.TextPart("a", metadata={"k": 1}),)),
        with_artifact(parts=(t.DataPart({"k": 1}),)),
        replace(EVENT, metadata={"k": 1}),
    ],
    ids=repr,
)
def test_a_piece_is_encoded_as_any_other_event(codec, event):
    expected = dumps(codec.dump_event(event))
    for _ in range(2):
        assert codec.encode_item(StreamItem(event)) == expected


def test_a_text_that_is_no_unicode_is_refused():
    with pytest.raises(ValueError, match="lone surrogate"):
        CODECS["1.0"].encode_item(StreamItem(with_text("\ud800")))
