"""Defective variants of the library for each section: see `tests.conformance.ours.Variant`.

Each is a plausible mistake of an implementation, derived from the requirements independently of the checks.
`tests/conformance/test_variants.py` asserts that a check of its line fails. Run ``make conformance`` after a change here: it
writes the page.
"""

from __future__ import annotations

from tests.conformance.ours import Variant
from tests.conformance.variants import access, bindings, both, clients, encoding, offers, old, operations, streams

#: Names and variants, in the order of the sections.
VARIANTS: dict[str, Variant] = {}
for _table in (encoding, operations, streams, offers, bindings, access, clients, old, both):
    assert not VARIANTS.keys() & _table.BROKEN.keys()
    VARIANTS.update(_table.BROKEN)
