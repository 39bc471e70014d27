"""The page says what the suite holds, and the suite holds every line."""

from __future__ import annotations

from tests.conformance.page import PAGE, render
from tests.conformance.sections import SECTIONS
from tests.conformance.suite import AREAS, Level, Verdict

LINES = [line for section in SECTIONS for line in section.lines]


def test_the_page_is_that_of_this_suite() -> None:
    assert PAGE.read_text() == render(), "run make conformance"


def test_every_line_of_the_requirements_is_here_once() -> None:
    wanted = [f"{area}-{number + 1:02}" for area, count in AREAS.items() for number in range(count)]
    assert sorted(line.number for line in LINES) == sorted(wanted)


def test_every_must_is_met_where_it_is_offered_and_can_be_seen() -> None:
    missing = [line.number for line in LINES if line.level in (Level.MUST, Level.MUST_NOT)]
    assert not [line.number for line in LINES if line.number in missing and line.verdict is Verdict.UNMET]


def test_everything_but_met_has_its_reason() -> None:
    assert all(bool(line.why) == (line.verdict is not Verdict.MET) for line in LINES)
