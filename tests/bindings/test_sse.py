"""Server-sent events: whatever happens to the bytes on their way, the events are those that were sent."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_sync.bindings.sse import BlockSource, CutStream, EventReader, MalformedStream, ServerEvent, comment, frame


def reader(*pieces: bytes, **options: object) -> EventReader:
    left = iter([*(piece for piece in pieces if piece), b""])
    return EventReader(BlockSource(lambda: next(left), **options))  # type: ignore[arg-type]


def events(*pieces: bytes, **options: object) -> list[ServerEvent]:
    return list(reader(*pieces, **options))


def data(found: Iterable[ServerEvent]) -> list[str]:
    return [event.data for event in found]


def outcome(*pieces: bytes) -> tuple[list[ServerEvent], str]:
    found = []
    try:
        found.extend(reader(*pieces))
    except (CutStream, MalformedStream) as error:
        return found, f"{type(error).__name__}: {error}"
    return found, ""


def split(body: bytes, places: Iterable[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {0, len(body)})
    return [body[start:end] for start, end in pairwise(ends)]


# -- writing ------------------------------------------------------------------------------------------------------------


def test_a_frame_carries_its_number_and_one_line_of_data() -> None:
    assert frame(b'{"a":1}', 7) == b'id: 7\ndata: {"a":1}\n\n'
    assert frame(b"{}") == b"data: {}\n\n"
    assert events(frame(b'{"a":1}', 0)) == [('{"a":1}', "0", "message")]


@pytest.mark.parametrize("text", ["a\nb", "a\rb"])
def test_nothing_with_a_line_break_can_be_framed(text: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        frame(text.encode())
    with pytest.raises(ValueError, match="one line"):
        comment(text)


# -- any split gives the same events ------------------------------------------------------------------------------------

LINES = st.sampled_from(
    [
        b"data: {}",
        b"data",
        b"data:",
        b"data:  x",
        b'data: {"a":',
        b"data: 1}",
        "data: é\u2028😀".encode(),
        b"\xff",
        b": hb",
        b"id: 5",
        b"id",
        b"id: 1\x002",
        b"retry: 3000",
        b"event: error",
        b"event:",
        b"other: y",
        b"dat",
        b"",
        b"",
        b"",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.tuples(LINES, ENDS), max_size=24))
    bom = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    body = bom + b"".join(line + end for line, end in lines)
    return body[: len(body) - draw(st.integers(0, 3))]


@given(streams(), st.lists(st.integers(0, 400), max_size=40))
@settings(max_examples=15 * settings.default.max_examples, deadline=None)
def test_any_split_of_the_bytes_gives_the_same_events(body: bytes, places: list[int]) -> None:
    assert outcome(*split(body, places)) == outcome(body)


@given(streams())
@settings(max_examples=3 * settings.default.max_examples, deadline=None)
def test_bytes_one_by_one_give_the_same_events(body: bytes) -> None:
    assert outcome(*(body[place : place + 1] for place in range(len(body)))) == outcome(body)


@given(st.lists(LINES.filter(lambda line: line != b"\xff" and line), max_size=24))
@settings(deadline=None)
def test_a_long_block_is_read_as_a_short_one(lines: list[bytes]) -> None:
    block = b"\n".join([*lines, b"", b""])
    expected = events(block)
    long = b"".join(b"%b\n" % line for line in lines) + b": aside\n" * 200 + b"\n"

    assert events(long) == expected


JSON_LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=40)


@given(st.lists(st.tuples(JSON_LINES, st.none() | st.integers(0, 2**60)), max_size=8), st.lists(st.integers(0, 400)))
@settings(deadline=None)
def test_what_is_framed_is_read_back(sent: list[tuple[str, int | None]], places: list[int]) -> None:
    body = b"".join(frame(text.encode(), number) + comment("hb") for text, number in sent)

    found = events(*split(body, places))

    assert found == [(text, None if number is None else str(number), "message") for text, number in sent]


# -- the faults of careless servers and of naive readers ----------------------------------------------------------------


def test_an_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    asked: list[int] = []
    sent = [b"data: 1\n\n", b"data: 2\r\r", b"data: 3\r\n\r", b"\ndata: 4\n", b"\n", b""]

    def read() -> bytes:
        asked.append(len(asked))
        return sent[len(asked) - 1]

    counts = [(event.data, len(asked)) for event in EventReader(BlockSource(read))]

    assert counts == [("1", 1), ("2", 2), ("3", 3), ("4", 5)]


def test_mixed_line_ends_do_not_merge_events() -> None:
    assert data(events(b"data: c\n\r\ndata: d\n\ndata: e\r\n\ndata: f\r\r\n")) == ["c", "d", "e", "f"]


def test_a_line_end_in_two_reads_is_one_line_end() -> None:
    assert data(events(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\ndata: c\r", b"\r")) == ["a\nb", "c"]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_byte_order_mark_is_no_part_of_the_first_field(cut: int) -> None:
    body = b"\xef\xbb\xbfdata: 1\n\n"

    assert data(events(body[:cut], body[cut:])) == ["1"]


def test_a_stream_shorter_than_a_byte_order_mark_is_read() -> None:
    assert events(b"\n") == []
    assert outcome(b"\xef\xbb")[1] == "CutStream: the stream ended within a line"


def test_a_cut_event_is_never_delivered() -> None:
    with pytest.raises(CutStream):
        events(b'data: {"trunc":')
    with pytest.raises(CutStream):
        events(b'data: {"trunc":\n')
    with pytest.raises(CutStream):
        events(b"data: {}\n\nda")


def test_events_before_the_cut_are_delivered() -> None:
    assert outcome(b'data: {}\n\ndata: {"a"') == (
        [("{}", None, "message")],
        "CutStream: the stream ended within an event",
    )


@pytest.mark.parametrize(
    "tail", [b'data: {"a":1}', b'data: {"a":1}\n', b'id: 9\ndata: {"a":1}\r\n', b'data: {"a":\ndata: 1}']
)
def test_a_last_event_without_its_blank_line_is_delivered_when_it_is_whole(tail: bytes) -> None:
    assert len(events(tail)) == 1


def test_a_number_at_the_end_may_be_the_beginning_of_a_longer_one() -> None:
    with pytest.raises(CutStream):
        events(b"data: 12")


def test_an_unfinished_comment_or_a_lonely_id_at_the_end_is_no_loss() -> None:
    assert data(events(b"data: {}\n\n: h")) == ["{}"]
    assert data(events(b"data: {}\n\nid: 8\n")) == ["{}"]


def test_each_event_has_its_own_id() -> None:
    found = events(b"id: 5\ndata: a\n\n", b"data: b\n\n", b"id: 77\n\n", b"data: c\n\nid\ndata: d\n\n")

    assert [(event.data, event.id) for event in found] == [("a", "5"), ("b", None), ("c", None), ("d", "")]


def test_retry_times_and_comments_are_passed_over() -> None:
    assert data(events(b"retry: 2500\n\n: hb\n\n:\n\ndata: x\nretry: soon\n: inside\n\n")) == ["x"]


def test_what_is_not_utf_8_is_refused() -> None:
    found, error = outcome(b"data: ok\n\ndata: \xff\n\n")

    assert data(found) == ["ok"]
    assert error == "MalformedStream: the stream is not UTF-8"


def test_an_event_larger_than_the_limit_is_refused_before_it_is_whole() -> None:
    with pytest.raises(MalformedStream, match="larger than 100 bytes"):
        events(b"data: " + b"x" * 60, b"x" * 60, max_event_bytes=100)
    with pytest.raises(MalformedStream, match="larger than 100 bytes"):
        events(b"data: " + b"x" * 120 + b"\n\n", max_event_bytes=100)
    assert len(events(*[b"data: " + b"x" * 60 + b"\n\n"] * 5, max_event_bytes=100)) == 5


def test_a_block_of_very_many_lines_is_one_event() -> None:
    lines = [b"data: %d" % number for number in range(1000)]
    lines[500:500] = [b"event: error", b": aside", b"id: 3"]

    assert events(b"\n".join(lines) + b"\n\n") == [("\n".join(str(number) for number in range(1000)), "3", "error")]


def cpu(body: bytes, at_once: int) -> float:
    pieces = [body[start : start + at_once] for start in range(0, len(body), at_once)]
    start = time.thread_time()
    assert len(events(*pieces)) == 1
    return time.thread_time() - start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "large"),
    [
        pytest.param(b"data: " + b"x" * 2**20 + b"\n\n", b"data: " + b"x" * 2**23 + b"\n\n", id="one-line"),
        pytest.param(b"data: xxxxxx\n" * 10_000 + b"\n", b"data: xxxxxx\n" * 80_000 + b"\n", id="many-lines"),
    ],
)
def test_cost_grows_with_the_size_of_an_event_and_not_with_its_square(small: bytes, large: bytes) -> None:
    base = max(min(cpu(small, 2048) for _ in range(3)), 0.002)

    assert min(cpu(large, 2048) for _ in range(3)) < 30 * base
