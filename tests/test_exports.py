"""The public names of the package, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import a2a_sync

INIT = Path(a2a_sync.__file__)


def test_every_public_name_can_be_imported_and_comes_from_its_home() -> None:
    for module, names in a2a_sync._MODULES.items():
        for name in names:
            assert getattr(a2a_sync, name) is getattr(import_module(module), name)


def test_type_checkers_see_the_same_names_as_the_lazy_table() -> None:
    seen = {
        (node.module, alias.name)
        for branch in ast.parse(INIT.read_text()).body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {(module, name) for module, names in a2a_sync._MODULES.items() for name in names}


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(a2a_sync, "NoSuchName")


def loaded_by(statement: str) -> set[str]:
    """Modules loaded by a statement, and the threads it started, in a fresh interpreter."""
    code = f"import sys, threading; {statement}; print(threading.active_count(), *sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    threads, *names = out.split()
    assert threads == "1", "importing starts no thread"
    return set(names)


def test_the_client_loads_no_server_and_no_marshmallow() -> None:
    names = loaded_by("from a2a_sync import Client")
    assert not names & {"werkzeug", "gunicorn", "marshmallow", "dataclasses_json", "sqlite3", "click", "asyncio"}


def test_the_package_alone_loads_almost_nothing() -> None:
    names = loaded_by("import a2a_sync")
    assert not {name for name in names if name.startswith("a2a_sync.")}


def test_the_server_loads_no_client_and_no_gunicorn() -> None:
    names = loaded_by("from a2a_sync import A2AApp, Agent")
    assert not names & {"requests", "gunicorn", "marshmallow", "dataclasses_json", "sseclient", "click"}
