"""Values of parts as pages show them: trees, tables, and what text files contain."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from a2a_sync import jsontext
from a2a_sync.console.markup import MAX_SHOWN
from a2a_sync.errors import JSONParseError
from a2a_sync.types import DataPart, FilePart, Part, TextPart

#: JSON of a data part that is larger is shown as text, in characters; and how deep a tree goes.
_MAX_TREE, _MAX_DEPTH = 50_000, 20
#: Rows and columns of a table that are shown, and the rows of a value that are looked at.
_MAX_ROWS, _MAX_COLUMNS, _MAX_READ = 200, 30, 10_000
#: Text files that are shown as the kind of part that they contain; `_TABLES` have a delimiter, ``""`` is found out.
_TEXTS = ("text/plain", "text/markdown", "application/json", "application/x-ndjson", "text/x-log")
_TABLES = {"text/csv": "", "application/csv": "", "text/tab-separated-values": "\t"}


class Table(NamedTuple):
    """The head and the first rows of a table; ``cut``: there are more rows."""

    head: list[str]
    rows: list[list[str]]
    cut: bool


def kind_of(part: Part) -> str:
    """How a part is shown: ``text``, ``source``, ``table``, ``data``, ``file`` or ``link``."""
    if isinstance(part, TextPart):
        kind = part.media_type.partition(";")[0].strip().lower()
        if kind in _TABLES and table_of(part) is not None:
            return "table"
        return "text" if kind in ("", "text/plain", "text/markdown") else "source"
    if isinstance(part, DataPart):
        return "table" if table_of(part) is not None else "data"
    return "file" if isinstance(part, FilePart) and part.raw is not None else "link"


def content_of(part: FilePart) -> Part | None:
    """The part that shows what a text file contains; None for files of other kinds, and for bytes that are no text."""
    kind = part.media_type.partition(";")[0].strip().lower()
    if part.raw is None or (kind not in _TEXTS and kind not in _TABLES) or b"\0" in part.raw[:1000]:
        return None
    text = part.raw[: 4 * MAX_SHOWN].decode("utf-8-sig", "replace")
    if kind == "application/json" and len(part.raw) <= _MAX_TREE:
        try:
            return DataPart(jsontext.loads(part.raw))
        except JSONParseError:
            return TextPart(text, media_type=kind)
    # As it is: a text that does not say so is no Markdown.
    return TextPart(text, media_type="text/x-log" if kind == "text/plain" else kind)


def table_of(part: Part) -> Table | None:
    """The table that a part is: flat objects in a list, or lines with delimiters; None for others."""
    if isinstance(part, DataPart):
        return _of_objects(part.data)
    if isinstance(part, TextPart):
        return _of_lines(part.text, _TABLES.get(part.media_type.partition(";")[0].strip().lower(), ""))
    return None


def _of_objects(value: Any) -> Table | None:
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MAX_READ:
        return None
    if not all(isinstance(row, Mapping) for row in value):
        return None
    head = list(dict.fromkeys(str(name) for row in value for name in row))
    flat = all(not isinstance(cell, (Mapping, list, tuple)) for row in value for cell in row.values())
    if not flat or not 1 <= len(head) <= _MAX_COLUMNS:
        return None
    rows = [[_scalar(row[name]) if name in row else "" for name in head] for row in value[:_MAX_ROWS]]
    return Table(head, rows, len(value) > _MAX_ROWS)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _of_lines(text: str, delimiter: str) -> Table | None:
    first = text.partition("\n")[0]
    delimiter = delimiter or max(",;\t|", key=first.count)
    try:
        lines = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), _MAX_ROWS + 2))
    except csv.Error:
        return None
    width = max((len(line) for line in lines), default=0)
    if not 1 <= width <= _MAX_COLUMNS or len(lines) < 2:
        return None
    head, *rows = [line + [""] * (width - len(line)) for line in lines if line]
    return Table(head, rows[:_MAX_ROWS], len(rows) > _MAX_ROWS)


def data_tree(value: Any) -> Any:
    """A value as nested nodes for the template: ``(label, text, children)``; only text where it is large."""
    text = json.dumps(_plain(value), ensure_ascii=False)
    if len(text) > _MAX_TREE:
        return ("", f"{text[:_MAX_TREE]} … {len(text) - _MAX_TREE} characters more", ())
    return _node("", value, 0)


def _node(label: str, value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        return (label, f"{{{len(value)}}}", [_node(str(name), one, depth + 1) for name, one in value.items()])
    if isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
        return (label, f"[{len(value)}]", [_node(str(place), one, depth + 1) for place, one in enumerate(value)])
    return (label, json.dumps(_plain(value), ensure_ascii=False), ())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
