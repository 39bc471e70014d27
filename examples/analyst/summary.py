"""From a table to figures: which columns are numbers, which column groups the rows, and what the numbers say."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from .table import Table, UnreadableTable, is_number

#: A column with more distinct values than this is no category.
MAX_GROUPS = 12


@dataclass(frozen=True)
class Statistics:
    """One set of numbers. Quartiles are interpolated between the values; the deviation is that of a sample."""

    count: int
    missing: int
    mean: float | None = None
    stdev: float | None = None
    minimum: float | None = None
    lower_quartile: float | None = None
    median: float | None = None
    upper_quartile: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class NumericColumn:
    """A column of numbers: all of it, and by group."""

    name: str
    overall: Statistics
    groups: dict[str, Statistics] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """What the agent found; this is the JSON artifact."""

    source: str
    rows: int
    columns: list[str]
    grouped_by: str | None
    numeric: list[NumericColumn]

    def column(self, name: str) -> NumericColumn:
        """The numeric column with this name."""
        return next(column for column in self.numeric if column.name == name)


def describe(cells: list[float | None]) -> Statistics:
    """The statistics of these cells; None is a missing one."""
    values = [cell for cell in cells if cell is not None]
    missing = len(cells) - len(values)
    if len(values) < 2:
        only = values[0] if values else None
        return Statistics(len(values), missing, only, None, only, only, only, only, only)
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Statistics(
        count=len(values),
        missing=missing,
        mean=statistics.fmean(values),
        stdev=statistics.stdev(values),
        minimum=min(values),
        lower_quartile=lower,
        median=median,
        upper_quartile=upper,
        maximum=max(values),
    )


def numbers(table: Table, name: str) -> list[float | None]:
    """The cells of a numeric column; None is a missing one."""
    return [float(cell) if cell else None for cell in table.column(name)]


def split_columns(table: Table) -> tuple[list[str], list[str]]:
    """The numeric columns, and the columns that can group rows.

    A few whole numbers repeated over and over (years, codes) are a category.
    """
    numeric: list[str] = []
    categories: list[str] = []
    for name in table.columns:
        cells = [cell for cell in table.column(name) if cell]
        distinct = len(set(cells))
        few = 2 <= distinct <= MAX_GROUPS
        if not cells:
            continue
        if not all(map(is_number, cells)):
            if few and distinct * 2 <= len(cells):
                categories.append(name)
        elif few and distinct * 20 <= len(cells) and all(float(cell).is_integer() for cell in cells):
            categories.append(name)
        else:
            numeric.append(name)
    return numeric, categories


def explained(values: list[float | None], groups: list[str]) -> float:
    """The share of the values' variance that their groups explain (the correlation ratio), from 0 to 1."""
    members: dict[str, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        if value is not None and group:
            members.setdefault(group, []).append(value)
    known = [value for group in members.values() for value in group]
    if len(known) < 2:
        return 0.0
    mean = statistics.fmean(known)
    total = sum((value - mean) ** 2 for value in known)
    between = sum(len(group) * (statistics.fmean(group) - mean) ** 2 for group in members.values())
    return between / total if total else 0.0


def choose_grouping(table: Table, wish: str) -> str | None:
    """The category to group by: one that `wish` names, else the one that explains most of the numbers' variance."""
    numeric, categories = split_columns(table)
    said = _words(wish)
    for name in categories:
        if f" {_words(name).strip()} " in said:
            return name
    if not numeric or not categories:
        return None

    def strength(name: str) -> float:
        groups = table.column(name)
        return statistics.fmean(explained(numbers(table, column), groups) for column in numeric)

    return max(categories, key=strength)


def _words(text: str) -> str:
    words = re.findall(r"[^\W_]+", text.lower())
    return f" {' '.join(words)} "


def summarise(table: Table, source: str, grouped_by: str | None) -> Iterator[NumericColumn | Summary]:
    """Each numeric column as soon as it is worked out, the whole summary last.

    Raises:
        UnreadableTable: there is no column of numbers.
    """
    names, _ = split_columns(table)
    if not names:
        raise UnreadableTable("no column holds numbers, so there is nothing to summarise")
    groups = table.column(grouped_by) if grouped_by else []
    columns: list[NumericColumn] = []
    for name in names:
        cells = numbers(table, name)
        by_group = {
            group: describe([cell for cell, owner in zip(cells, groups, strict=True) if owner == group])
            for group in sorted(set(groups) - {""})
        }
        columns.append(NumericColumn(name, describe(cells), by_group))
        yield columns[-1]
    yield Summary(source, len(table.rows), list(table.columns), grouped_by, columns)


# -- Markdown -----------------------------------------------------------------------------------------------------------

_FIGURES = ("mean", "stdev", "minimum", "median", "maximum")


def markdown_head(source: str, table: Table, grouped_by: str | None) -> str:
    """The heading and the head of the table."""
    by = f", by {_safe(grouped_by)}" if grouped_by else ""
    head = ["column", *([_safe(grouped_by)] if grouped_by else []), "count", "missing", *_FIGURES]
    line = " | ".join(["---"] * (2 if grouped_by else 1) + ["---:"] * (2 + len(_FIGURES)))
    return f"# {_safe(source)}: {len(table.rows):,} rows{by}\n\n| {' | '.join(head)} |\n| {line} |\n"


def markdown_rows(column: NumericColumn) -> str:
    """The rows of one column: a line for each group, and one for all."""
    lines = []
    for group, found in [*column.groups.items(), ("all" if column.groups else "", column.overall)]:
        cells = [_safe(column.name), *([_safe(group)] if group else []), str(found.count), str(found.missing)]
        cells += [_figure(getattr(found, name)) for name in _FIGURES]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1e9 or 0 < size < 0.01:
        return f"{value:.3e}"
    return f"{value:,.{1 if size >= 1000 else 2}f}"


def _safe(text: str) -> str:
    """Cell text that cannot break out of its cell."""
    return re.sub(r"([\\`*|<>\[\]])", r"\\\1", " ".join(text.split()))
