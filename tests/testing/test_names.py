"""The names of the testing kit: all of them exist, are seen by type checkers, and are in the reference."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from a2a_sync import testing
from a2a_sync.testing import plugin
from tests.test_reference import REFERENCE, documented, table


def test_every_name_comes_from_its_home() -> None:
    for module, names in testing._MODULES.items():
        for name in names:
            assert getattr(testing, name) is getattr(import_module(module), name)


def test_type_checkers_see_the_same_names() -> None:
    (branch,) = [node for node in ast.parse(Path(testing.__file__).read_text()).body if isinstance(node, ast.If)]
    seen = {
        (node.module, alias.name) for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == {(module, name) for module, names in testing._MODULES.items() for name in names}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchName"):
        testing.NoSuchName  # noqa: B018


def test_every_name_is_in_the_reference() -> None:
    assert {f"a2a_sync.testing.{name}" for name in testing.__all__} <= documented()


def test_every_fixture_is_in_the_reference() -> None:
    fixtures = {name for name in vars(plugin) if name.startswith("a2a_")}
    assert {name for name, _ in table(REFERENCE / "testing.md", "fixture", "value")} == fixtures
