"""Reading a CSV file that a stranger sent: a table, or one clear sentence about what is wrong with it."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

MAX_ROWS = 200_000
MAX_COLUMNS = 200

#: What people write for "no value".
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "?"})

# float() also takes "inf", "nan" and "1_000"; a cell that says so is text.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")


class UnreadableTable(ValueError):
    """The file is not a table that can be summarised; the text says why and is meant for the sender."""


@dataclass(frozen=True, slots=True)
class Table:
    """Column names and rows of cells; a missing value is an empty cell."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> list[str]:
        """The cells of one column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


def is_number(cell: str) -> bool:
    """A decimal number, without thousands separators, small enough to be squared and summed."""
    return _NUMBER.fullmatch(cell) is not None and abs(float(cell)) < 1e150


def read_csv(raw: bytes) -> Table:
    """The table in these bytes: UTF-8, a header line, the separator one of comma, semicolon, tab and bar.

    Raises:
        UnreadableTable: it is something else.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableTable("the file is not UTF-8 text") from None
    header = text.lstrip("\r\n").partition("\n")[0]
    if not header.strip():
        raise UnreadableTable("the file is empty")
    separator = max(",;\t|", key=header.count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if line]
    except csv.Error as error:
        raise UnreadableTable(f"the file is not CSV: {error}") from None
    return _table(lines)


def _table(lines: list[list[str]]) -> Table:
    columns = tuple(cell.strip() for cell in lines[0])
    if len(columns) > MAX_COLUMNS or len(lines) - 1 > MAX_ROWS:
        raise UnreadableTable(f"the table is larger than {MAX_ROWS:,} rows or {MAX_COLUMNS} columns")
    if "" in columns or len(set(columns)) < len(columns):
        raise UnreadableTable("every column needs a name of its own in the first line")
    if len(lines) == 1:
        raise UnreadableTable("there are no rows below the header")
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(columns):
            raise UnreadableTable(f"row {number} has {len(line)} cells, the header has {len(columns)}")
    return Table(columns, tuple(tuple(map(_cell, line)) for line in lines[1:]))


def _cell(cell: str) -> str:
    cell = cell.strip()
    return "" if cell.lower() in MISSING else cell
