"""What text files and values of agents look like on pages."""

from __future__ import annotations

import json

import pytest

from a2a_sync.console.values import content_of, kind_of, table_of
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
