"""The checks of a line detect each of its defective variants."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.conformance.ours import Ours, Variant
from tests.conformance.sections import SECTIONS
from tests.conformance.suite import FAILURES, Way
from tests.conformance.variants import VARIANTS

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
    # A failed check does not close its resources.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

LINES = {line.number: line for section in SECTIONS for line in section.lines}
#: The limit of a wait for what a defect prevents, in seconds.
SHORT_TIMEOUT = 1.5


def found(variant: Variant) -> Way | None:
    """The first way in which the check of the variant's line fails."""
    line = LINES[variant.number]
    assert line.check is not None, f"nothing checks {variant.number}"
    with variant.inside(), Ours(variant) as system:
        for way in line.ways:
            subject = system.subject(way)
            try:
                line.check(subject)
            except FAILURES:
                return way
    return None


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_variant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for name, module in sys.modules.items() if name.startswith("tests.")]:
        for name_of_timeout in ("TIMEOUT", "_TIMEOUT"):
            if hasattr(module, name_of_timeout):
                monkeypatch.setattr(module, name_of_timeout, SHORT_TIMEOUT)
    assert found(VARIANTS[name]) is not None, f"no check finds that {VARIANTS[name].says}"


def test_every_section_has_broken_variants() -> None:
    letters = {line.number: section.letter for section in SECTIONS for line in section.lines}
    broken = Counter(letters[variant.number] for variant in VARIANTS.values())
    assert set(broken) == {section.letter for section in SECTIONS}
    assert min(broken.values()) >= 4
