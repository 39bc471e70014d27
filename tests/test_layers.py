"""Each room imports only from rooms below it; a wrong arrow fails by name. The picture is in docs/explanation/layout.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "a2a_sync"

#: The house from the ground up. A module may import modules of lower floors, and of its own folder.
FLOORS: list[list[str]] = [
    [
        "errors",
        "clock",
        "closing",
        "fork",
        "limits",
        "logs",
        "tracing",
        "wsgi.connection",
        "wsgi.proxies",
        "wsgi.origins",
    ],
    ["jsontext", "native", "urls", "runs.stopping", "threads", "serving"],
    ["listeners", "datapart", "urlguard", "publickeys", "wsgi.slowbodies", "eventloop"],
    ["types", "outbound"],
    ["card", "lifecycle", "taskresult", "incidents", "chat.parts"],
    ["operations", "cardrules", "modes", "bounds", "sizes"],
    ["codec", "extensions", "cardmaking", "owncard", "auth", "ratelimit", "stores.base", "stores.contexts"],
    [
        "bindings.headers",
        "bindings.routes",
        "bindings.jsonrpc",
        "bindings.http_json",
        "bindings.sse",
        "signing",
        "stores.memory",
        "stores.sqlite",
        "stores",
        "contextstate",
        "conversation",
        "dialogue",
        "artifacts",
        "chat",
        "quotas",
    ],
    [
        "events",
        "pool",
        "neighbours.hints",
        "neighbours.leases",
        "executor",
        "stamp",
        "paging",
        "idempotency",
        "receiver",
        "client",
        "agentevents",
    ],
    [
        "activation",
        "following",
        "omission",
        "places",
        "runs.run",
        "results",
        "asynchronous",
        "runs.around",
        "metrics",
        "retention",
        "mapper",
        "push",
        "extended",
        "localcalls",
        "registry",
    ],
    ["runs.cancelling", "runs.watchdog", "runners"],
    ["runs"],
    ["neighbours"],
    ["handler", "engine"],
    ["wsgi.wellknown", "wsgi.streaming", "wsgi.operators"],
    ["wsgi.exchange", "wsgi.plain"],
    ["wsgi"],
    ["app"],
    ["agent", "agentserver", "agenthost", "hosts"],
    ["testing", "supervisor"],
    ["gunicorn"],
    ["cli"],
    ["__main__"],
]
#: Rooms of the two sides of the wire, which meet in `operations` only.
SERVER = {
    "asynchronous",
    "eventloop",
    "limits",
    "mapper",
    "metrics",
    "neighbours",
    "paging",
    "places",
    "ratelimit",
    "retention",
    "stamp",
    "auth",
    "bounds",
    "omission",
    "outbound",
    "stores",
    "activation",
    "events",
    "following",
    "idempotency",
    "pool",
    "executor",
    "contextstate",
    "conversation",
    "dialogue",
    "artifacts",
    "runs",
    "results",
    "runners",
    "engine",
    "handler",
    "push",
    "owncard",
    "extended",
    "app",
    "agent",
    "wsgi",
    "agenthost",
    "hosts",
    "serving",
    "agentevents",
}
#: Names that say nothing of what a module holds.
NAMELESS = {"utils", "util", "helpers", "helper", "common", "core", "manager", "managers", "misc", "base_classes"}


def modules() -> dict[str, Path]:
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            names[name] = path
    return names


def floor_of(module: str) -> int:
    """The floor of the longest listed prefix: ``codec.v10`` lives where ``codec`` does."""
    matches = [
        (len(room), floor)
        for floor, rooms in enumerate(FLOORS)
        for room in rooms
        if module == room or module.startswith(room + ".")
    ]
    assert matches, f"{module} has no floor: give it one in FLOORS"
    return max(matches)[1]


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports when it is loaded or later, but for type checking only."""
    tree = ast.parse(path.read_text())
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found: set[str] = set()
    known = modules()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path.name}: imports are absolute"
            if node.module == "a2a_sync":
                found |= {alias.name for alias in node.names if alias.name in known}
            elif node.module.startswith("a2a_sync."):
                base = node.module.removeprefix("a2a_sync.")
                below = {f"{base}.{alias.name}" for alias in node.names} & set(known)
                found |= below or {base}
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("a2a_sync.") for a in node.names if a.name.startswith("a2a_sync.")}
    return found


#: The imports that lead upwards, each made when it is used and not when the module is loaded, and why.
UPWARD = {("types", "codec"): "the types convert themselves to and from JSON, and codecs are made of the types"}


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_room_imports_only_from_rooms_below(module: str) -> None:
    folder = module.split(".")[0]
    upward = {imported for importer, imported in UPWARD if importer == module}
    for imported in sorted(imports(modules()[module]) - upward):
        same_folder = imported.split(".")[0] == folder
        assert same_folder or floor_of(imported) < floor_of(module), (
            f"{module} imports {imported}, which is not below it"
        )


def test_the_client_and_the_server_half_never_import_each_other() -> None:
    for module, path in modules().items():
        side = module.split(".")[0]
        heads = {imported.split(".")[0] for imported in imports(path)}
        if side == "client":
            assert not heads & SERVER, f"{module} imports the server half: {heads & SERVER}"
        elif side in SERVER:
            assert "client" not in heads, f"{module} imports the client"


def test_no_room_has_a_name_that_says_nothing() -> None:
    assert not {part for module in modules() for part in module.split(".")} & NAMELESS


def test_no_room_holds_two_nouns() -> None:
    tables = {"types", "codec.v10"}
    sizes = {module: len(path.read_text().splitlines()) for module, path in modules().items()}
    assert not {module: size for module, size in sizes.items() if size > 500 and module not in tables}


def test_only_the_rooms_made_for_it_know_sockets_and_databases() -> None:
    allowed = {
        "requests": {"client", "testing"},
        "urllib3": {"client", "outbound", "testing"},
        "sqlite3": {"stores"},
        "werkzeug": {"app", "agenthost", "wsgi", "hosts", "testing"},
        "socket": {"wsgi", "neighbours", "client", "cli", "gunicorn", "outbound", "urlguard", "testing"},
        "sseclient": {"bindings"},
    }
    for module, path in modules().items():
        top = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        for library, rooms in allowed.items():
            if library in top:
                assert module.split(".")[0] in rooms, f"{module} imports {library}"
