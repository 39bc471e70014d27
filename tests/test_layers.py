"""The structure of the package: which folder may import which. The same table is in docs/explanation/layout.md."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "a2a_sync"

#: Folders and top-level modules from the bottom up. Each imports only from earlier lines and its own folder.
LAYERS: list[list[str]] = [
    ["errors", "lazymodule", "limits"],
    ["jsontext", "urls"],
    ["datapart", "display"],
    ["types"],
    ["card", "lifecycle"],
    ["operations", "sizes", "telemetry"],
    ["concurrency"],
    ["codec"],
    ["bindings", "outbound", "stores"],
    ["signing"],
    ["auth", "webhooks"],
    ["client"],
    ["agent"],
    ["engine"],
    ["push"],
    ["server"],
    ["wsgi"],
    ["console"],
    ["multiagent"],
    ["grpc", "integrations"],
    ["gunicorn", "testing"],
    ["cli"],
    ["__main__"],
]
#: Imports that go upwards, all inside functions or for type checkers, each with its reason.
UPWARD: dict[tuple[str, str], str] = {
    ("agent.agent", "wsgi.app"): "`agent.start()` serves the agent: an app is made when it is called",
    (
        "wsgi.app",
        "console.site",
    ): "`console=True` puts the console in front of the app, which does not know it otherwise",
    ("types", "codec"): "`to_dict` and `from_dict` of every type use the codec of 1.0",
}
#: The halves meet in `operations` and below; only calls without a network join them.
SERVER_HALF = {"agent", "engine", "push", "server", "stores", "wsgi"}
#: The one way from the server half to the client: an agent or app called in its own process.
IN_PROCESS_CALLS = {"agent.inprocess"}
#: Third-party and operating system modules, and the folders that may import them.
RESTRICTED = {
    "requests": {"client", "testing"},
    "urllib3": {"client", "outbound", "testing"},
    "sqlite3": {"stores"},
    "werkzeug": {"wsgi", "console", "gunicorn", "multiagent", "integrations", "testing"},
    "jinja2": {"console"},
    "markdown_it": {"console"},
    "nh3": {"console"},
    "socket": {"wsgi", "stores", "client", "cli", "gunicorn", "outbound", "testing"},
    "sseclient": {"bindings"},
    "grpc": {"client", "grpc"},
    "grpc_health": {"grpc"},
    "google": {"bindings", "grpc", "integrations"},
}
#: Names that do not describe what a module holds.
NAMELESS = {"utils", "util", "helpers", "helper", "common", "core", "manager", "managers", "misc", "base_classes"}


@cache
def modules() -> dict[str, Path]:
    """The file of every module of the package by the module's dotted name; a package is named after its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


@cache
def parsed(module: str) -> ast.Module:
    path = modules()[module]
    return ast.parse(path.read_text(), str(path))


def folder(module: str) -> str:
    return module.split(".")[0]


def layer(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if folder(module) in names:
            return number
    raise AssertionError(f"{module}: its folder has no layer; give it one in LAYERS")


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of the package that `module` imports: at its top, in functions and for type checkers alike."""
    known = modules()
    found: set[str] = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{module}: imports are absolute"
            if node.module == "a2a_sync":
                found |= {alias.name for alias in node.names if alias.name in known}
            elif node.module.startswith("a2a_sync."):
                base = node.module.removeprefix("a2a_sync.")
                below = {f"{base}.{alias.name}" for alias in node.names} & set(known)
                found |= below or {base}
        elif isinstance(node, ast.Import):
            found |= {name.name.removeprefix("a2a_sync.") for name in node.names if name.name.startswith("a2a_sync.")}
    return frozenset(found - {module})


@cache
def third_party(module: str) -> set[str]:
    found = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_from_layers_below_or_its_own_folder(module: str) -> None:
    for imported in sorted(imports(module)):
        if folder(imported) == folder(module) or (module, imported) in UPWARD:
            continue
        assert layer(imported) < layer(module), f"{module} imports {imported}, which is not below it"


def test_every_listed_upward_import_exists_and_there_are_at_most_three() -> None:
    assert len(UPWARD) <= 3
    for module, imported in UPWARD:
        assert imported in imports(module), f"{module} no longer imports {imported}: remove the line"


def test_no_folder_has_an_import_circle() -> None:
    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [one for one in imports(start) if folder(one) == folder(start)]
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += [one for one in imports(module) if folder(one) == folder(start)]
        return seen

    assert [module for module in modules() if "." in module and module in reachable(module)] == []


def test_the_client_and_the_server_half_never_import_each_other() -> None:
    for module in modules():
        heads = {folder(imported) for imported in imports(module)}
        if folder(module) == "client":
            assert not heads & SERVER_HALF, f"{module} imports the server half: {heads & SERVER_HALF}"
        elif folder(module) in SERVER_HALF and module not in IN_PROCESS_CALLS:
            assert "client" not in heads, f"{module} imports the client"


def test_the_server_folder_knows_no_http() -> None:
    for module in modules():
        if folder(module) in {"server", "engine", "push", "stores", "agent"}:
            assert not third_party(module) & {"werkzeug", "http", "wsgiref", "requests"}, module


def test_the_server_folder_has_no_environ() -> None:
    for module in modules():
        if folder(module) in {"server", "engine", "push", "stores", "agent"}:
            named = {
                name
                for node in ast.walk(parsed(module))
                for name in (getattr(node, "id", None), getattr(node, "arg", None))
                if isinstance(name, str)
            }
            assert not named & {"environ", "start_response"}, f"{module}: a request is an AuthRequest or a Call here"


def test_every_folder_has_one_line_in_the_layers() -> None:
    placed = [name for names in LAYERS for name in names]
    assert sorted(placed) == sorted({folder(module) for module in modules()})


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not {part for module in modules() for part in module.split(".")} & NAMELESS


@pytest.mark.parametrize("library", RESTRICTED)
def test_a_library_is_imported_only_by_the_folders_made_for_it(library: str) -> None:
    for module in modules():
        if library in third_party(module):
            assert folder(module) in RESTRICTED[library], f"{module} imports {library}"
