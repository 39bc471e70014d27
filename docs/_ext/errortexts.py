"""Every error text of the library, read from its sources: the directive ``error-texts`` of `docs/troubleshooting.md`.

A text is a string that is passed to an exception, or to a function that returns one; what is only known at run time is ``…``.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parents[2] / "a2a_sync"
#: Exceptions of other packages that the library raises, by their names.
_FOREIGN = {
    "UsageError",
    "BadParameter",
    "ClickException",
    "RemoteDisconnected",
    "ProtocolError",
    "ExpiredSignatureError",
}


class ErrorText(NamedTuple):
    """A text, the class of its error, and the module and function that raise it."""

    text: str
    error: str
    module: str
    function: str
    when: str

    @property
    def area(self) -> str:
        """The folder or module below the package that raises it."""
        return self.module.partition(".")[2].partition(".")[0]

    def matches(self, message: str) -> bool:
        """Whether `message`, as a program saw it, contains this text."""
        parts = [part for part in self.text.split("…") if part.strip(" :.,()'\"")]
        return bool(parts) and re.search(".*".join(map(re.escape, parts)), message, re.DOTALL) is not None


@cache
def error_texts() -> list[ErrorText]:
    """All texts, by module and line."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    known = _errors(trees.values())
    makers = _makers(trees.values(), known)
    found: dict[tuple[str, str, str], ErrorText] = {}
    for path, tree in trees.items():
        module = ".".join(("a2a_sync", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for one in _of_module(tree, module, known, makers):
            found.setdefault((one.text, one.error, one.area), one)
    return list(found.values())


def _errors(trees: Any) -> set[str]:
    """The names of all exceptions: built in, of other packages, and of this one."""
    bases = {
        node.name: {_last_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {
        name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
    }
    known |= _FOREIGN
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return known


def _makers(trees: Any, known: set[str]) -> dict[str, str]:
    """The functions that return an exception, with the name of its class; a method ``at`` returns one of its own class."""
    makers = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns is not None and node.name != "at":
                name = _last_name(node.returns)
                if name in known:
                    makers[node.name] = name
    return makers


def _of_module(tree: ast.Module, module: str, known: set[str], makers: dict[str, str]) -> Iterator[ErrorText]:
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function, node, docs in _nodes(tree, "", ()):
        if isinstance(node, ast.Call):
            error = _error_of(node, known, makers)
            texts = [text for one in node.args if (text := _text(one, constants))] if error else []
            if texts:
                joined = ": ".join(texts) if _last_name(node.func) == "at" else max(texts, key=len)
                yield ErrorText(joined, error, module, function, _when(docs, error))
        elif isinstance(node, ast.AnnAssign | ast.Assign) and function in known:
            names = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            if _last_name(names[0]) == "default_message" and node.value and (text := _text(node.value, constants)):
                yield ErrorText(text, function, module, function, _first_line(docs[-1]))


def _error_of(node: ast.Call, known: set[str], makers: dict[str, str]) -> str:
    name = _last_name(node.func)
    if name == "at" and isinstance(node.func, ast.Attribute):
        name = _last_name(node.func.value)
    return name if name in known else makers.get(name, "")


def _nodes(node: ast.AST, function: str, docs: tuple[str, ...]) -> Iterator[tuple[str, ast.AST, tuple[str, ...]]]:
    """Each node, with the name of the public function or class around it and the docstrings around it, the nearest last."""
    for child in ast.iter_child_nodes(node):
        name, around = function, docs
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            around = (*docs, ast.get_docstring(child) or "")
            if not child.name.startswith("_"):
                name = f"{function}.{child.name}".strip(".")
        yield name, child, around
        yield from _nodes(child, name, around)


def _text(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """The text of an expression, or an empty string if none of it is known here."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and node.id in constants:
        return _text(constants[node.id], {})
    if isinstance(node, ast.JoinedStr):
        parts = [value.value if isinstance(value, ast.Constant) else "…" for value in node.values]
        return re.sub("…+", "…", "".join(map(str, parts)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = [_text(side, constants) for side in (node.left, node.right)]
        return "".join(one or "…" for one in both) if any(both) else ""
    if isinstance(node, ast.IfExp):
        return _text(node.body, constants) or _text(node.orelse, constants)
    return ""


def _when(docs: tuple[str, ...], error: str) -> str:
    """What the nearest docstring with ``Raises:`` says of an error."""
    for doc in reversed(docs):
        section = re.search(r"^Raises:\n((?: {4}.*\n?|\n)+)", doc, re.MULTILINE)
        if section and (
            found := re.search(rf"^ {{4}}[\w, ]*\b{error}\b[\w, ]*: (.+(?:\n {{8}}.+)*)", section[1], re.MULTILINE)
        ):
            return " ".join(found[1].split())
    return ""


def _first_line(doc: str) -> str:
    return " ".join(doc.partition("\n\n")[0].split())


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.rpartition(".")[2]
    return getattr(node, "id", "") or getattr(node, "attr", "")


# -- the directive ------------------------------------------------------------------------------------------------------

#: Names of exceptions that only the library's own code catches: their texts are part of the error that a program sees.
_INNER = "part of another error"


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    from docutils import nodes
    from docutils.parsers.rst import Directive
    from sphinx.addnodes import pending_xref

    class ErrorTexts(Directive):
        """``.. error-texts:: client urls``: the texts of these folders and modules. ``*`` are those that no other one names."""

        required_arguments = 1
        final_argument_whitespace = True

        def run(self) -> list[nodes.Node]:
            env = self.state.document.settings.env
            listed = env.temp_data.setdefault("error-texts", set())
            areas = set(self.arguments[0].split())
            if "*" in areas:
                areas = {one.area for one in error_texts()} - listed
            listed |= areas
            rows = sorted(
                (one for one in error_texts() if one.area in areas), key=lambda one: one.text.lower().lstrip("…: ")
            )
            table = nodes.table(classes=["error-texts"])
            group = nodes.tgroup(cols=3)
            table += group
            group += [nodes.colspec(colwidth=width) for width in (50, 20, 30)]
            head = nodes.thead()
            head += _row("message", "error", "raised when", entry=nodes.strong)
            group += head
            body = nodes.tbody()
            for one in rows:
                shown = nodes.literal(text=one.error)
                if one.error.startswith("_") or one.error == "Invalid":
                    error: Any = nodes.emphasis(text=_INNER)
                else:
                    error = pending_xref(
                        "", shown, refdomain="py", reftype="obj", reftarget=one.error, refspecific=True
                    )
                body += _row(nodes.literal(text=one.text), error, one.when or f"{one.module} {one.function}".strip())
            group += body
            return [table]

    def _row(*cells: Any, entry: Any = None) -> Any:
        row = nodes.row()
        for cell in cells:
            content = cell if isinstance(cell, nodes.Node) else (entry or nodes.inline)(text=cell)
            row += nodes.entry("", nodes.paragraph("", "", content))
        return row

    app.add_directive("error-texts", ErrorTexts)
    return {"parallel_read_safe": False}
