"""The list of features that came after the commit that code lines are compared with."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.later_features import FEATURES
from tests.metrics import ROOT, Definitions


@pytest.mark.slow
def test_every_listed_definition_exists() -> None:
    found = Definitions(ROOT)
    for feature in FEATURES:
        for module, names in feature.definitions.items():
            assert found.modules(module), f"{feature.name}: {module}"
            for name in () if names == "*" else names.split():
                assert found.find(module, name), f"{feature.name}: {module}:{name}"


def test_no_definition_is_listed_twice() -> None:
    listed = Counter(
        f"{module}:{name}"
        for feature in FEATURES
        for module, names in feature.definitions.items()
        for name in names.split()
    )
    assert [name for name, times in listed.items() if times > 1] == []
