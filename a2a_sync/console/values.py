"""Values of parts as pages show them: trees, tables, and what text files contain."""

from __future__ import annotations

import csv
import io
import json
import re
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
#: Cells of tables and nodes of trees that one page shows: each takes about fifty microseconds and a hundred characters of HTML.
MAX_PAGE_VALUES = 10_000
#: Text files that are shown as the kind of part that they contain; `_TABLES` have a delimiter, ``""`` is found out.
_TEXTS = ("text/plain", "text/markdown", "application/json", "application/x-ndjson", "text/x-log")
_TABLES = {"text/csv": "", "application/csv": "", "text/tab-separated-values": "\t"}
#: Strings, brackets with nothing between them, single signs, and everything else in a text that should be JSON.
_TOKENS = re.compile(r'"(?:[^"\\]+|\\.)*"?|\[\s*\]|\{\s*\}|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)


class Table(NamedTuple):
    """The head and the first rows of a table; ``cut``: there are more rows."""

    head: list[str]
    rows: list[list[str]]
    cut: bool


def kind_of(part: Part) -> str:
    """How a part is shown: ``text``, ``source``, ``table``, ``data``, ``file`` or ``link``."""
    if isinstance(part, TextPart):
        kind = _media_type(part)
        if kind in _TABLES and table_of(part) is not None:
            return "table"
        return "text" if kind in ("", "text/plain", "text/markdown") else "source"
    if isinstance(part, DataPart):
        return "table" if _head(part.data) else "data"
    return "file" if isinstance(part, FilePart) and part.raw is not None else "link"


def _media_type(part: TextPart | FilePart) -> str:
    return part.media_type.partition(";")[0].strip().lower()


def content_of(part: FilePart) -> Part | None:
    """The part that shows what a text file contains; None for files of other kinds, and for bytes that are no text."""
    kind = _media_type(part)
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
        return _of_lines(part.text, _TABLES.get(_media_type(part), ""))
    return None


def _of_objects(value: Any) -> Table | None:
    head = _head(value)
    if not head:
        return None
    rows = [[_scalar(row[name]) if name in row else "" for name in head] for row in value[:_MAX_ROWS]]
    return Table(head, rows, len(value) > _MAX_ROWS)


def _head(value: Any) -> list[str]:
    """The names of the columns of a table; empty for a value that is none."""
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MAX_READ:
        return []
    head: dict[str, None] = {}
    for row in value:
        if not isinstance(row, Mapping) or any(isinstance(cell, (Mapping, list, tuple)) for cell in row.values()):
            return []
        head.update(dict.fromkeys(map(str, row)))
        if len(head) > _MAX_COLUMNS:
            return []
    return list(head)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _of_lines(text: str, delimiter: str) -> Table | None:
    # Rows after this are not shown, and the reader holds the interpreter for as long as it reads.
    text = text[:MAX_SHOWN]
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


class PageValues:
    """The tables and trees of one page, up to `MAX_PAGE_VALUES` cells and nodes together; values after these are text."""

    def __init__(self) -> None:
        self._left = MAX_PAGE_VALUES

    def kind(self, part: Part) -> str:
        """`kind_of` for this page, on which values are text after too many of them."""
        if self._left or isinstance(part, FilePart):
            return kind_of(part)
        if isinstance(part, DataPart):
            return "data"
        # Whether it is a table takes as long as making one.
        return "source" if _media_type(part) in _TABLES else kind_of(part)

    def table(self, part: Part) -> Table | None:
        """The table of a part that is one, as `table_of`; None where the page has too many values."""
        table = table_of(part)
        if table is None or not self._take((len(table.rows) + 1) * len(table.head)):
            return None
        return table

    def tree(self, value: Any) -> Any:
        """A value as nested nodes for the template: ``(label, text, children)``; only text where it is large."""
        text = jsontext.dumps(value).decode()
        if len(text) <= _MAX_TREE and self._left:
            root = _node("", value, 0)
            if self._take(_count(root)):
                return root
        more = f" … {len(text) - _MAX_TREE} characters more" if len(text) > _MAX_TREE else ""
        return ("", f"{text[:_MAX_TREE]}{more}", ())

    def _take(self, count: int) -> bool:
        if count > self._left:
            # Smaller ones after it are not tried: each attempt costs as much as what it makes.
            self._left = 0
            return False
        self._left -= count
        return True


def indent_json(body: bytes, most: int) -> str:
    """JSON for people, up to `most` characters; of what is no JSON, something similar.

    Nothing is parsed: the indents of values that are nested deeply may be a hundred times as long as their JSON.
    """
    text = body[: most + 1].decode(errors="replace")
    pieces: list[str] = []
    depth = size = 0
    previous = ""
    for match in _TOKENS.finditer(text):
        lexeme = match[0]
        depth -= lexeme in ("]", "}")
        indent = "\n" + "  " * max(depth, 0) if lexeme in ("]", "}") or previous in ("[", "{", ",") else ""
        pieces.append(indent + (": " if lexeme == ":" else _readable(lexeme) if "\\" in lexeme else lexeme))
        depth += lexeme in ("[", "{")
        previous = lexeme
        size += len(pieces[-1])
        if size > most:
            break
    shown = "".join(pieces)
    return shown if len(body) <= most and size <= most else f"{shown[:most]}\n… {len(body)} bytes in all"


def _readable(lexeme: str) -> str:
    """A string of JSON without escapes of characters that need none."""
    try:
        return json.dumps(json.loads(lexeme), ensure_ascii=False)
    except ValueError:
        return lexeme


def _count(node: Any) -> int:
    return 1 + sum(map(_count, node[2]))


def _node(label: str, value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        return (label, f"{{{len(value)}}}", [_node(str(name), one, depth + 1) for name, one in value.items()])
    if isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
        return (label, f"[{len(value)}]", [_node(str(place), one, depth + 1) for place, one in enumerate(value)])
    return (label, jsontext.dumps(value).decode(), ())
