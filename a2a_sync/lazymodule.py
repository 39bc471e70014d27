"""Modules that annotations name and that are loaded late: they cost much, or import the module that names them."""

from __future__ import annotations

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
