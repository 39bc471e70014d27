"""docs/reference/feature-comparison.md is complete, and the tests that it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.live import ROOT
from tests.parity.ids import IDS

PAGE = ROOT / "docs" / "reference" / "feature-comparison.md"
HERE = Path(__file__).parent


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [A-E]\d+ \|", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


def named_by(id: str) -> list[str]:
    """The tests in the row of this id."""
    (cell,) = [row[3] for row in rows() if row[0] == id]
    return re.findall(r"`([^`]+)`", cell)


def named_tests(folder: Path) -> set[str]:
    return {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in folder.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_the_page_has_all_rows_in_order() -> None:
    assert [row[0] for row in rows()] == IDS
    assert all(len(row) == 4 and all(row) for row in rows())


def test_each_row_names_existing_tests() -> None:
    # Those of a bridge run where its framework is installed.
    known = named_tests(HERE) | named_tests(HERE.parent / "frameworks")
    for id, _, _, cell in rows():
        named = re.findall(r"`([^`]+)`", cell)
        assert named, f"{id} names no test"
        assert set(named) <= known, f"{id}: {set(named) - known}"


def test_each_test_is_named_by_the_row_of_its_id() -> None:
    shown = {test: id for id, _, _, cell in rows() for test in re.findall(r"`([^`]+)`", cell)}
    for test in named_tests(HERE):
        if found := re.search(r"::test_([a-e]\d+)_", test):
            assert shown.get(test) == found[1].upper(), test
