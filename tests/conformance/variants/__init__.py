"""The library with one thing broken on purpose, many times for each section: see `tests.conformance.ours.Variant`.

Each is a mistake that an implementation could make. It was thought up from the requirements and without the checks, and it
is found when a check of the line that it breaks fails; `tests/conformance/test_variants.py` sees to it. After a change here
``make conformance`` writes the page anew.
"""

from __future__ import annotations

from tests.conformance.ours import Variant
from tests.conformance.variants import access, bindings, both, clients, encoding, offers, old, operations, streams

#: Names and variants, in the order of the sections.
VARIANTS: dict[str, Variant] = {}
for _table in (encoding, operations, streams, offers, bindings, access, clients, old, both):
    assert not VARIANTS.keys() & _table.BROKEN.keys()
    VARIANTS.update(_table.BROKEN)
