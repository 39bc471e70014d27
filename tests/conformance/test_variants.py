"""What is broken on purpose is found by the checks of its section."""

from __future__ import annotations

import pytest

from tests.conformance.ours import Ours, Variant
from tests.conformance.sections import SECTIONS
from tests.conformance.suite import Line, Way
from tests.conformance.system import NotOffered
from tests.conformance.variants import VARIANTS

pytestmark = pytest.mark.timeout(120)


def first_failure(variant: Variant) -> tuple[Line, Way] | None:
    """The first check of the variant's section that fails."""
    (section,) = [section for section in SECTIONS if section.letter == variant.section]
    with Ours(variant) as system:
        for line, way in section.cases():
            assert line.check is not None
            try:
                line.check(system.subject(way))
            except NotOffered:
                raise
            except Exception:
                return line, way
    return None


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_variant_is_found(name: str) -> None:
    assert first_failure(VARIANTS[name]) is not None, f"no check finds that {VARIANTS[name].says}"
