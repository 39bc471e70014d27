"""All checks of the suite against this library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.ours import Ours
from tests.conformance.sections import SECTIONS
from tests.conformance.suite import Line, Way

pytestmark = pytest.mark.timeout(60)

CASES = [pytest.param(line, way, id=f"{line.number}-{way}") for section in SECTIONS for line, way in section.cases()]


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    with Ours() as system:
        yield system


@pytest.mark.parametrize(("line", "way"), CASES)
def test_requirement(line: Line, way: Way, ours: Ours) -> None:
    assert line.check is not None
    line.check(ours.subject(way))
