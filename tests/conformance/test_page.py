"""docs/conformance.md matches the suite, and the suite has every requirement."""

from __future__ import annotations

from tests.conformance.page import PAGE, render
from tests.conformance.sections import SECTIONS
from tests.conformance.suite import AREAS, Level, Verdict

LINES = [line for section in SECTIONS for line in section.lines]


def test_the_page_matches_the_suite() -> None:
    assert PAGE.read_text() == render(), "run make conformance"


def test_every_requirement_is_in_the_suite_once() -> None:
    wanted = [f"{area}-{number + 1:02}" for area, count in AREAS.items() for number in range(count)]
    assert sorted(line.number for line in LINES) == sorted(wanted)


def test_no_must_is_unmet() -> None:
    missing = [line.number for line in LINES if line.level in (Level.MUST, Level.MUST_NOT)]
    assert not [line.number for line in LINES if line.number in missing and line.verdict is Verdict.UNMET]


def test_every_verdict_other_than_met_has_a_reason() -> None:
    assert all(bool(line.why) == (line.verdict is not Verdict.MET) for line in LINES)
