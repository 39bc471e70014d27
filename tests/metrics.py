"""Figures about the structure of the package, from its sources and from calls of a real app: ``make metrics``.

::

    python -m tests.metrics                       # this tree
    python -m tests.metrics --compare 86c3ad1     # an older commit beside it
    python -m tests.metrics --details             # with the modules and functions behind the counts
    python -m tests.metrics --folders --compare 86c3ad1   # the code lines of each folder instead
    python -m tests.metrics --features --compare 86c3ad1  # and without the features that the other commit does not have

The figures describe; few of them are goals. `docs/explanation/metrics.md` has the table and says which are bounded.
The calls are measured in a process of their own for each tree, in which every library call of every thread is counted
(`sys.setprofile`), after a first call of the same kind. Background threads may add a few calls: the smallest of several
repetitions counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 7
SMALL = 60


class Row(NamedTuple):
    """One line of the table: what is counted, the figure, and what is behind it."""

    name: str
    value: int
    details: tuple[str, ...] = ()


# -- sources -----------------------------------------------------------------------------------------------------------


class Sources:
    """The modules of the package in one tree, by dotted names without ``a2a_sync.``; the root is ``""``."""

    def __init__(self, tree: Path) -> None:
        self.package = tree / "a2a_sync"
        self.paths = {self._name(path): path for path in sorted(self.package.rglob("*.py"))}
        self.texts = {name: path.read_text() for name, path in self.paths.items()}
        self.parsed = {name: ast.parse(text) for name, text in self.texts.items()}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.package).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def imports(self, module: str, *, lazy: bool) -> set[str]:
        """The modules that `module` imports when it is loaded; with `lazy` also in functions and for type checkers."""
        found: set[str] = set()
        for node in ast.walk(self.parsed[module]) if lazy else at_load(self.parsed[module].body):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "a2a_sync":
                base = (node.module or "").removeprefix("a2a_sync").removeprefix(".")
                names = {f"{base}.{alias.name}".removeprefix(".") for alias in node.names}
                found |= (names & self.paths.keys()) or {base}
            elif isinstance(node, ast.Import):
                named = {alias.name for alias in node.names if alias.name.startswith("a2a_sync.")}
                found |= {name.removeprefix("a2a_sync.") for name in named}
        return found - {module, ""}


def at_load(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is loaded, without the branches for type checkers."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_load(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for branch in ("body", "orelse", "finalbody"):
                yield from at_load(getattr(node, branch, []))
            for handler in getattr(node, "handlers", []):
                yield from at_load(handler.body)


def docstring_lines(tree: ast.AST) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(text: str, docstrings: set[int]) -> set[int]:
    """The numbers of the lines with code: no comments, no docstrings, no blank lines."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, directly or not."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += graph.get(module, ())
        return seen

    reach = {module: reachable(module) for module in graph}
    groups = {
        frozenset({other for other in reach[one] if one in reach.get(other, ())}) for one in graph if one in reach[one]
    }
    return sorted(sorted(group) for group in groups)


def functions(sources: Sources) -> Iterator[tuple[str, int, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its name and its length in lines, signature, docstring and nested functions included."""
    for module, tree in sources.parsed.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module}:{node.name}:{node.lineno}", (node.end_lineno or node.lineno) - node.lineno + 1, node


def forwards_only(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function does nothing but call another one with its own arguments."""
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if node.decorator_list or len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value
    given = [one.arg for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs] if one.arg != "self"]
    if not isinstance(call, ast.Call) or not given:
        return False
    passed = [*call.args, *(one.value for one in call.keywords)]
    return [one.id for one in passed if isinstance(one, ast.Name)] == given and len(passed) == len(given)


def upward_edges(tree: Path) -> list[str]:
    """The imports that the layer test of that tree lists as exceptions."""
    test = tree / "tests" / "test_layers.py"
    for node in ast.parse(test.read_text()).body if test.exists() else []:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "UPWARD"
            and node.value
        ):
            return [f"{upper} -> {lower}" for upper, lower in ast.literal_eval(node.value)]
    return []


def from_sources(tree: Path) -> list[Row]:
    sources = Sources(tree)
    entries = sorted(path.name for path in sources.package.iterdir() if path.name not in {"__pycache__", "py.typed"})
    docs = {name: docstring_lines(parsed) for name, parsed in sources.parsed.items()}
    code = sum(len(code_lines(sources.texts[name], docs[name])) for name in sources.paths)
    sizes = sorted(((lines, name) for name, lines, _ in functions(sources)), reverse=True)
    loaded = {name: sources.imports(name, lazy=False) for name in sources.paths}
    every = {name: sources.imports(name, lazy=True) for name in sources.paths}
    importers = Counter(imported for found in every.values() for imported in found)
    single = [
        f"{name} ({len(sources.texts[name].splitlines())} lines)"
        for name, path in sources.paths.items()
        if importers[name] == 1 and path.name != "__init__.py" and len(sources.texts[name].splitlines()) < SMALL
    ]
    edges = upward_edges(tree)
    for upper, _, lower in (edge.partition(" -> ") for edge in edges):
        every[upper] = {one for one in every[upper] if one != lower and not one.startswith(f"{lower}.")}
    found = {False: circles(loaded), True: circles(every)}
    return [
        Row("entries at the top of the package", len(entries), tuple(entries)),
        Row("files", len(sources.paths)),
        Row("code lines", code),
        Row("docstring lines", sum(map(len, docs.values()))),
        Row("functions: 90th percentile of lines", sizes[len(sizes) // 10][0]),
        Row("functions: longest", sizes[0][0], tuple(f"{name}: {lines}" for lines, name in sizes[:10])),
        Row("circles at load", len(found[False]), tuple(" ".join(one) for one in found[False])),
        Row(
            "circles with typing and lazy imports, but for the listed ones",
            len(found[True]),
            tuple(" ".join(one) for one in found[True]),
        ),
        Row("listed imports that go upwards", len(edges), tuple(edges)),
        Row(f"modules with one importer, under {SMALL} lines", len(single), tuple(single)),
    ]


def lines_of_folders(tree: Path) -> dict[str, int]:
    """The code lines of each entry at the top of the package; those of stores apart."""
    sources = Sources(tree)
    found: Counter[str] = Counter()
    for name, path in sources.paths.items():
        parts = path.relative_to(sources.package).parts
        folder = "/".join(parts[:-1][: 2 if parts[0] == "stores" else 1]) or "modules at the top"
        if parts[0] == "stores" and parts[-1] == "redispubsub.py":
            folder = "stores/redispubsub"
        found[folder] += len(code_lines(sources.texts[name], docstring_lines(sources.parsed[name])))
    return {**dict(sorted(found.items())), "all": found.total()}


class Definitions:
    """The lines of code of the named definitions of a tree: modules, functions, classes, their members, constants."""

    def __init__(self, tree: Path) -> None:
        self._sources = Sources(tree)
        self._lines: dict[str, set[int]] = {}

    def lines_of(self, module: str) -> set[int]:
        if module not in self._lines:
            docstrings = docstring_lines(self._sources.parsed[module])
            self._lines[module] = code_lines(self._sources.texts[module], docstrings)
        return self._lines[module]

    def modules(self, name: str) -> list[str]:
        """The module `name`; of a package also the modules in it."""
        return [one for one in self._sources.paths if one == name or one.startswith(f"{name}.")]

    def find(self, module: str, name: str) -> set[int]:
        """The lines of code of a definition, such as ``Class.method`` or ``TABLE.key``; none where it does not exist."""
        if module not in self._sources.parsed:
            return set()
        found: list[ast.AST] = [self._sources.parsed[module]]
        for one in name.split("."):
            found = [node for outer in found for node in members(outer, one)]
        return {line for node in found for line in lines_of_node(node)} & self.lines_of(module)

    def public_lists(self) -> int:
        """The lines of all ``__all__``."""
        return sum(len(self.find(module, "__all__")) for module in self._sources.paths)

    @property
    def total(self) -> int:
        return sum(len(self.lines_of(module)) for module in self._sources.paths)


def members(outer: ast.AST, name: str) -> Iterator[ast.AST]:
    """The definitions of `name` in a module or a class, or the row with this key in a dictionary."""
    if isinstance(outer, ast.Assign | ast.AnnAssign) and isinstance(outer.value, ast.Dict):
        for key, value in zip(outer.value.keys, outer.value.values, strict=True):
            if isinstance(key, ast.Constant) and str(key.value) == name:
                yield value
    for node in getattr(outer, "body", ()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            yield node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield node


def lines_of_node(node: Any) -> range:
    decorators = getattr(node, "decorator_list", [])
    return range(min([node.lineno, *(one.lineno for one in decorators)]), (node.end_lineno or node.lineno) + 1)


def lines_of_features(tree: Path) -> dict[str, int]:
    """The code lines of each later feature in `tree`, of the lists of public names, and of the rest."""
    from tests.later_features import FEATURES

    found = Definitions(tree)
    counted: set[tuple[str, int]] = set()
    result = {}
    for feature in FEATURES:
        before = len(counted)
        for module, names in feature.definitions.items():
            if names == "*":
                counted |= {(one, line) for one in found.modules(module) for line in found.lines_of(one)}
            else:
                counted |= {(module, line) for name in names.split() for line in found.find(module, name)}
        result[feature.name] = len(counted) - before
    result["all later features"] = len(counted)
    result["the rest"] = found.total - len(counted)
    result["of which lists of public names (`__all__`)"] = found.public_lists()
    return {**result, "all": found.total}


# -- calls: what follows runs in a process of its own, with the package of the tree that is measured ----------------------


class Calls:
    """Counts calls of library functions in all threads started after it, while `recording`."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._lock = threading.Lock()
        self.recording = False
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.depth = 0
        self.functions: Counter[str] = Counter()

    def _event(self, frame: Any, event: str, argument: Any) -> None:
        if event != "call" or not self.recording or not frame.f_code.co_filename.startswith(self._package):
            return
        depth, above = 0, frame
        while above is not None:
            depth += above.f_code.co_filename.startswith(self._package)
            above = above.f_back
        code = frame.f_code
        name = code.co_filename.removeprefix(self._package).removesuffix(".py").strip("/").replace("/", ".")
        with self._lock:
            self.count += 1
            self.depth = max(self.depth, depth)
            self.functions[f"{name.removesuffix('.__init__')}:{code.co_name}:{code.co_firstlineno}"] += 1

    def measure(self, call: Callable[[], object]) -> dict[str, Any]:
        """One call, and what its run still does after the answer."""
        self._clear()
        self.recording = True
        call()
        settled = -1
        while settled != self.count:
            settled = self.count
            time.sleep(0.1)
        self.recording = False
        return {"calls": self.count, "depth": self.depth, "functions": dict(self.functions)}


def probe() -> None:
    """Measure the calls of the package that is importable, and print them as JSON."""
    from werkzeug.test import EnvironBuilder

    import a2a_sync
    from a2a_sync import A2AApp, Agent, Client, types
    from a2a_sync.testing import wsgi_session

    package = str(Path(a2a_sync.__file__ or "").parent) + os.sep
    calls = Calls(package)
    waiting = threading.Semaphore(0)
    agent = Agent("measured", description="Answers at once, or waits for a cancel")

    def answer(message: Any, context: Any) -> Any:
        if message.text == "wait":
            waiting.release()
            context.sleep(30)
        return (word for word in message.text.split()) if message.text.startswith("stream") else "done"

    agent.message(answer)
    app = A2AApp(agent, url="http://agent.test")

    def post(method: str, params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"A2A-Version": "1.0"}
        builder = EnvironBuilder(method="POST", data=body, content_type="application/json", headers=headers)
        environ = dict(builder.get_environ())
        environ["SERVER_PROTOCOL"] = "HTTP/1.1"
        answer = app(environ, lambda status, headers, exc_info=None: lambda data: None)
        try:
            text = b"".join(answer)
        finally:
            getattr(answer, "close", lambda: None)()
        return json.loads(text) if text[:1] == b"{" else text

    def params(text: str, **configuration: Any) -> Any:
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}
        return {"message": message, "configuration": configuration}

    client = Client("http://agent.test", session=wsgi_session(app))
    client.send("hello")

    def cancel() -> dict[str, Any]:
        task = post("SendMessage", params("wait", returnImmediately=True))["result"]["task"]["id"]
        waiting.acquire(timeout=10)
        return calls.measure(lambda: post("CancelTask", {"id": task}))

    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "a blocking send": lambda: calls.measure(lambda: post("SendMessage", params("hello"))),
        "a stream of three pieces": lambda: calls.measure(
            lambda: post("SendStreamingMessage", params("stream of three"))
        ),
        "a cancel": cancel,
        "a client's send, with the server": lambda: calls.measure(lambda: client.send("hello")),
    }
    found: dict[str, Any] = {}
    for name, run in kinds.items():
        run()
        found[name] = min((run() for _ in range(REPEATS)), key=lambda one: one["calls"])
    found["visits"] = visits(types, package, lambda: post("SendMessage", params("hello")), lambda: not app.running)
    found["root names"] = len(a2a_sync.__all__)
    app.close()
    print(json.dumps(found))


def visits(types: Any, package: str, call: Callable[[], object], ended: Callable[[], bool]) -> list[str]:
    """The functions that read the parts of the message that was sent, as often as they do.

    What the handler reads through a view of the message, such as its text, is the agent's own work.
    """
    slot = types.Message.parts
    readers: list[str] = []

    def read(message: Any) -> Any:
        frame = sys._getframe(1)
        view = frame.f_code.co_filename == package + "types.py"
        caller = frame.f_back if view else frame
        if message.message_id == "m-1" and caller and caller.f_code.co_filename.startswith(package):
            file = frame.f_code.co_filename.removeprefix(package)
            readers.append(f"{file}:{frame.f_code.co_name}")
        return slot.__get__(message)

    types.Message.parts = property(read, lambda message, value: slot.__set__(message, value))
    try:
        call()
        while not ended():
            time.sleep(0.01)
    finally:
        types.Message.parts = slot
    return readers


# -- the table ---------------------------------------------------------------------------------------------------------


def from_calls(tree: Path) -> list[Row]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--probe"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"the calls of {tree} could not be measured:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    seen, names = found.pop("visits"), found.pop("root names")
    rows = []
    for kind, one in found.items():
        most = sorted(one["functions"].items(), key=lambda item: -item[1])[:15]
        rows.append(Row(f"{kind}: calls", one["calls"], tuple(f"{name} x {count}" for name, count in most)))
        rows.append(Row(f"{kind}: stack depth", one["depth"]))
        files = sorted({name.split(":")[0] for name in one["functions"]})
        rows.append(Row(f"{kind}: files entered", len(files), tuple(files)))
    forwarding = [name for name, _, node in functions(Sources(tree)) if forwards_only(node)]
    entered = found["a blocking send"]["functions"]
    rows.append(
        Row("a blocking send: functions that only forward", *_some([one for one in forwarding if one in entered]))
    )
    rows.append(Row("a blocking send: visits of the request's parts by the library", *_some(seen)))
    rows.append(Row("names at the root", names))
    return rows


def _some(found: list[str]) -> tuple[int, tuple[str, ...]]:
    return len(found), tuple(found)


def rows_of(tree: Path) -> list[Row]:
    return [*from_sources(tree), *from_calls(tree)]


def of_commit(commit: str, measure: Callable[[Path], Any]) -> Any:
    """What `measure` finds in another commit, in a copy of its own."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", commit, "a2a_sync", "tests"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return measure(Path(folder))


def table(columns: dict[str, list[Row]]) -> str:
    names = dict.fromkeys(row.name for rows in columns.values() for row in rows)
    values = {title: {row.name: f"{row.value:,}" for row in rows} for title, rows in columns.items()}
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    lines += [f"| {name} | {' | '.join(values[title].get(name, '') for title in columns)} |" for name in names]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.metrics", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--compare", metavar="COMMIT", action="append", default=[], help="another commit beside this tree"
    )
    parser.add_argument("--details", action="store_true", help="what is behind the figures of this tree")
    parser.add_argument("--folders", action="store_true", help="the code lines of each folder instead")
    parser.add_argument(
        "--features", action="store_true", help="the code lines of later features and of the rest instead"
    )
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        probe()
        return
    count = lines_of_features if options.features else lines_of_folders if options.folders else None
    measure = rows_of if count is None else lambda tree: [Row(*item) for item in count(tree).items()]
    columns = {commit: of_commit(commit, measure) for commit in options.compare}
    columns["now"] = measure(ROOT)
    print(table(columns))
    for row in columns["now"] if options.details else []:
        if row.details:
            print(f"\n{row.name}:\n  " + "\n  ".join(row.details))


if __name__ == "__main__":
    main()
