"""Modules and names that are imported when they are first used: they cost much, or import the module that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


class LazyModule:
    """Gives the attributes of the module `name`, which is imported with the first of them.

    At run time it takes the place of a module that type checkers import under ``TYPE_CHECKING``, so that
    `typing.get_type_hints` can evaluate annotations such as ``client.Client``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package, which imports a name when it is first used; `modules` has the names by module."""
    homes = {name: module for module, names in modules.items() for name in names}

    def get_public_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(import_module(package), name, value)
        return value

    return get_public_name
