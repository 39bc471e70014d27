"""What text files and values of agents look like on pages."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest

from a2a_sync.console.values import MAX_PAGE_VALUES, PageValues, content_of, indent_json, kind_of, table_of
from a2a_sync.types import DataPart, FilePart, Part, TextPart


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (TextPart("x"), "text"),
        (TextPart("# x", media_type="text/markdown; charset=utf-8"), "text"),
        (TextPart("<b>", media_type="text/html"), "source"),
        (TextPart("a,b\n1,2", media_type="text/csv"), "table"),
        (TextPart("a,b", media_type="text/csv"), "source"),
        (DataPart([{"a": 1}]), "table"),
        (DataPart([{"a": [1]}]), "data"),
        (DataPart({"a": 1}), "data"),
        (FilePart(raw=b"x"), "file"),
        (FilePart(url="https://example.com/x"), "link"),
    ],
)
def test_a_part_is_shown_as(part: Part, kind: str) -> None:
    assert kind_of(part) == kind


@pytest.mark.parametrize(
    ("raw", "media_type", "kind"),
    [
        (b"a;b\n1;2\n", "text/csv", "table"),
        (b"a\tb\n1\t2\n", "text/tab-separated-values", "table"),
        (b"# x", "text/markdown", "text"),
        (b"# x", "text/plain", "source"),
        (b'{"a": [1]}', "application/json", "data"),
        (b'{"a": ', "application/json", "source"),
        (b'{"a": 1, "a": 2}', "application/json", "source"),
        (b"[" * 5000, "application/json", "source"),
        (b'"' + b"x" * 60_000 + b'"', "application/json", "source"),
        (b"<script>", "text/html", ""),
        (b"x\0y", "text/plain", ""),
        (b"x", "", ""),
    ],
)
def test_a_file_is_shown_as_what_it_contains(raw: bytes, media_type: str, kind: str) -> None:
    part = content_of(FilePart(raw=raw, media_type=media_type))
    assert (kind_of(part) if part is not None else "") == kind


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", [["1", "2"]]),
        ("a;b\n1;2,5\n", [["1", "2,5"]]),
        ('a,b\r\n"x\ny","p""q"\r\n', [["x\ny", 'p"q']]),
        ("a,b\n1\n\n1,2,3\n", [["1", "", ""], ["1", "2", "3"]]),
        ("name\nAda\n", [["Ada"]]),
    ],
)
def test_lines_with_delimiters_are_rows(text: str, rows: list[list[str]]) -> None:
    table = table_of(TextPart(text, media_type="text/csv"))
    assert table is not None
    assert table.rows == rows


@pytest.mark.parametrize("text", ["", "a,b", "," * 200 + "\n" + "," * 200, f"a,b\n{'x' * 200_000},1", "\0" * 9])
def test_what_is_no_table_of_a_page_is_text(text: str) -> None:
    assert table_of(TextPart(text, media_type="text/csv")) is None


def test_of_a_long_table_the_first_rows_are_shown() -> None:
    lines = table_of(TextPart("a\n" + "1\n" * 100_000, media_type="text/csv"))
    values = table_of(DataPart([{"a": 1}] * 5_000))
    for table in (lines, values):
        assert table is not None
        assert table.cut
        assert len(table.rows) == 200
    exact = table_of(TextPart("a\n" + "1\n" * 200, media_type="text/csv"))
    assert exact is not None
    assert not exact.cut


def test_a_tree_has_the_values_of_the_json() -> None:
    part = content_of(FilePart(raw=json.dumps({"é": [1, None]}).encode(), media_type="application/json"))
    assert isinstance(part, DataPart)
    assert part.data == {"é": [1, None]}


def test_of_lines_that_are_as_long_as_a_message_no_more_is_read_than_a_page_shows() -> None:
    """Ten megabytes of delimiters in one line held the interpreter for half a second, and took 250 MB."""
    part = TextPart("ab," * 3_200_000, media_type="text/csv")
    tracemalloc.start()
    try:
        assert kind_of(part) == "source"
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_after_many_values_the_others_of_a_page_are_text() -> None:
    values, rows = PageValues(), [{"a": 1, "b": 2}] * 100
    shown = [values.kind(DataPart(rows)) == "table" and values.table(DataPart(rows)) for _ in range(100)]
    assert 202 * sum(map(bool, shown)) in range(MAX_PAGE_VALUES - 202, MAX_PAGE_VALUES + 1)
    assert values.kind(DataPart(rows)) == "data"
    assert values.tree({"a": [1]}) == ("", '{"a":[1]}', ())
    assert values.kind(TextPart("a,b\n1,2", media_type="text/csv")) == "source"
    assert values.kind(TextPart("x")) == "text"
    assert values.kind(FilePart(raw=b"x")) == "file"
    trees = [PageValues().tree([1] * 20), values.tree([1] * 20)]
    assert [len(children) for _, _, children in trees] == [20, 0]


@pytest.mark.parametrize(
    "value", [1, 'é"\\\n{[,:', [], {}, [[], {}, [1, 2.5, None]], {"a": {"b": [True, "x, y"]}, "c": ""}, [{"": [[[1]]]}]]
)
def test_json_is_indented_as_the_standard_library_does_it(value: object) -> None:
    for written in (json.dumps(value), json.dumps(value, ensure_ascii=False, separators=(",", ":"))):
        assert indent_json(written.encode(), 10_000) == json.dumps(value, indent=2, ensure_ascii=False)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 90 + b"1," * 50_000,
        b"[" * 20_000,
        b'{"a' * 20_000,
        b'"\\' * 20_000,
        b"]" * 50_000,
        b"[1,\xff" * 20_000,
        b"[ " * 20_000,
    ],
)
def test_indents_of_nested_values_take_no_longer_than_what_is_shown(body: bytes) -> None:
    """Each of thousands of values passed through as many functions as it was nested deep: a page took half a minute."""
    begun = time.thread_time()
    shown = indent_json(body, 20_000)
    assert len(shown) < 20_100
    assert shown.endswith(f"… {len(body)} bytes in all")
    assert time.thread_time() - begun < 0.5
