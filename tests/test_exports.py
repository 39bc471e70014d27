"""The public names of the package, and what importing it costs."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, ForwardRef, get_type_hints

import pytest
import requests

import a2a_sync
from a2a_sync.lazymodule import LazyModule
from tests.frameworks import BRIDGES, without_framework

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


#: The root names: what the README or at least two pages use.
ROOT_NAMES = """
A2AApp A2AError Agent AgentCard AgentError AgentExecutor AgentHost AgentSkill Artifact AuthRequired Chat Client DataPart
Extension Failed FilePart InputRequired Limits HTTPOptions MemoryStore Message Part PublicError PushNotification PushOptions RateLimit
Rejected RequestContext Retry Role SQLiteStore StreamingResult Task TaskArtifactUpdateEvent TaskCancelled TaskNotFoundError
TaskPushNotificationConfig TaskState TaskStatus TaskStatusUpdateEvent TaskStream TextPart Timeout TransportError
TransportTimeoutError URLGuard WebhookReceiver serve
"""


def test_the_root_has_the_names_of_the_list_and_no_others() -> None:
    assert sorted(a2a_sync.__all__) == sorted(ROOT_NAMES.split())
    assert sorted(chain.from_iterable(a2a_sync._MODULES.values())) == sorted(a2a_sync.__all__)


def listed_modules() -> list[str]:
    """The modules that the reference lists."""
    page = (INIT.parent.parent / "docs" / "reference" / "modules.md").read_text()
    return re.findall(r"^\| `(a2a_sync[\w.]*)` \|", page, re.MULTILINE)


def public_modules() -> list[str]:
    """Those that can be imported here."""
    return [name for name in listed_modules() if name not in without_framework()]


def test_the_page_of_public_modules_is_sorted_and_not_empty() -> None:
    assert listed_modules() == sorted(listed_modules())
    assert set(listed_modules()) > BRIDGES.keys()
    assert len(public_modules()) > 20


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_lists_its_names_and_has_each_of_them(name: str) -> None:
    module = import_module(name)
    (listed,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(Path(module.__file__ or "").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert sorted(set(listed)) == sorted(listed)
    for one in listed:
        assert not one.startswith("_")
        assert hasattr(module, one), one


@pytest.mark.parametrize("name", [name for name in public_modules() if hasattr(import_module(name), "_MODULES")])
def test_a_package_imports_its_names_from_their_modules_when_they_are_used(name: str) -> None:
    module = import_module(name)
    for home, names in module._MODULES.items():
        for one in names:
            assert getattr(module, one) is getattr(import_module(home), one)
            assert one in module.__all__
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        module.NoSuchName  # noqa: B018


def test_pages_and_examples_import_from_public_modules_only() -> None:
    root = INIT.parent.parent
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.py")]
    for page in pages:
        text = page.read_text()
        for module in re.findall(r"^ *from (a2a_sync[\w.]*) import", text, re.MULTILINE):
            assert module in listed_modules() or module.startswith("a2a_sync.gunicorn"), f"{page}: {module}"


# -- annotations --------------------------------------------------------------------------------------------------------


def documented() -> dict[str, Any]:
    """What the reference shows, by its path."""
    found = {}
    for page in (INIT.parent.parent / "docs").rglob("*.md"):
        for path in re.findall(r"auto(?:class|exception|function|data):: +([\w.]+)", page.read_text()):
            module, _, name = path.rpartition(".")
            if module not in without_framework():
                found[path] = getattr(import_module(module), name)
    return found


def signatures() -> Iterator[tuple[str, Any]]:
    """Every public class and function, and the public methods and properties of the classes."""
    public = {
        **documented(),
        **{name: getattr(a2a_sync, name) for name in a2a_sync.__all__},
        **{
            f"{module}.{name}": getattr(import_module(module), name)
            for module in public_modules()
            for name in import_module(module).__all__
        },
    }
    for path, one in sorted(public.items()):
        if inspect.isfunction(one):
            yield path, one
        if not isinstance(one, type):
            continue
        yield path, one
        for name in dir(one):
            member = inspect.getattr_static(one, name)
            member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            private = name.startswith("_") and not name.startswith("__")
            if inspect.isfunction(member) and member.__module__.startswith("a2a_sync") and not private:
                yield f"{path}.{name}", member


def test_the_annotations_of_every_public_signature_can_be_evaluated() -> None:
    wrong, seen = {}, 0
    for path, one in signatures():
        seen += 1
        try:
            hints = get_type_hints(one)
        except Exception as error:
            wrong[path] = error
        else:
            assert not any(isinstance(hint, (str, ForwardRef, LazyModule)) for hint in hints.values()), path
    assert wrong == {}
    assert seen > 1000


def test_more_than_five_parameters_are_described_in_a_list() -> None:
    missing = []
    for path, one in signatures():
        made = inspect.getattr_static(one, "__init__", None) if isinstance(one, type) else one
        if not inspect.isfunction(made) or path.endswith("__init__") or dataclasses.is_dataclass(one):
            continue
        names = [
            name
            for name in inspect.signature(made).parameters
            if name not in ("self", "cls") and not name.startswith("_")
        ]
        text = inspect.getdoc(one) or ""
        if len(names) > 5 and made.__module__.startswith("a2a_sync") and not text.startswith("See `"):
            undescribed = [name for name in names if name not in text]
            if "Parameters:" not in text or undescribed:
                missing.append(f"{path}: {undescribed or names}")
    assert missing == []


def test_evaluated_annotations_are_the_real_classes() -> None:
    assert get_type_hints(a2a_sync.Client.chat)["return"] is a2a_sync.Chat
    assert get_type_hints(a2a_sync.Agent.call)["return"] == a2a_sync.Task | a2a_sync.Message
    assert get_type_hints(a2a_sync.Client.__init__)["session"] == requests.Session | None


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
