"""A page of the documentation as a test: what it shows is run, from top to bottom, in one empty folder.

What a reader would do is done with each fenced block:

- ``python``: executed; all blocks of a page share one namespace. A block that begins with ``# name.py`` (or stands below
  ``<!-- file: name -->``) is a file: it is saved in the folder. ``expression  # value`` is compared with the value, and
  what a block prints must stand in the ``text`` block after it.
- ``sh``: ``gunicorn …``, ``uvicorn …`` and ``a2a-sync serve …`` start a server in place of the one before it, ``a2a-sync …`` and
  ``python …`` are run and must end with exit code 0 (``<!-- exit code: 4 -->`` asks for another). ``TASK`` stands for the
  id of the task that was named last.
- ``text`` after one of these is its output, in which ``…`` stands for anything.

``http://127.0.0.1:8000`` is wherever the page's server listens. ``<!-- needs: flask -->`` runs a block only where that
package is installed, ``<!-- not run: reason -->`` leaves one out, and nothing else does.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tokenize
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tests.live import HOST, ROOT, free_port, live_server

#: Where the server of a page seems to listen.
SHOWN = "127.0.0.1:8000"
_PATIENCE = 60.0
_FENCE = re.compile(r"^( *)(`{3,})([\w-]*) *(.*)$")
_NOTE = re.compile(r"^<!-- ([a-z ]+): (.+?) -->$")
_FILE = re.compile(r"^# ([\w/]+\.py)$")
_TASK_ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_NOTES = {"file", "exit code", "needs", "not run"}
#: Blocks that are shown and not run: data and output. What is for nginx is run by `tests.servers.test_nginx`.
_PLAIN = {"text", "json", "toml", "nginx"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block, the notes above it and the line it begins in."""

    language: str
    text: str
    line: int
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of the file that the block is; empty where it is none."""
        named = _FILE.match(self.text.partition("\n")[0]) if self.language == "python" else None
        return named[1] if named else self.notes.get("file", "")

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command in a ``sh`` block."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def read(path: Path) -> list[Block]:
    """The fenced blocks of a Markdown file, without the directives of the documentation's builder."""
    blocks: list[Block] = []
    notes: dict[str, str] = {}
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    for number, line in lines:
        if note := _NOTE.match(line):
            assert note[1] in _NOTES, f"{path.name}:{number}: no such note: {note[1]}"
            notes[note[1]] = note[2]
        elif fence := _FENCE.match(line):
            indent, ticks, language, rest = fence.groups()
            body = []
            for _, inner in lines:
                if inner.strip() == ticks:
                    break
                body.append(inner.removeprefix(indent))
            if not rest.startswith("{"):
                assert language in _PLAIN | {"python", "sh"}, (
                    f"{path.name}:{number}: unknown kind of block {language!r}"
                )
                blocks.append(Block(language, "\n".join(body) + "\n", number, notes))
            notes = {}
    return blocks


def is_server(command: list[str]) -> bool:
    """The command serves until it is stopped."""
    return command[0] in ("gunicorn", "uvicorn") or command[:2] == ["a2a-sync", "serve"]


def needs_server(path: Path) -> bool:
    """The page starts a server."""
    return any(is_server(c) for block in read(path) if block.language == "sh" for c in block.commands)


class Page:
    """The run of one page in `folder`, which is the current folder meanwhile."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self._module = types.ModuleType("page")
        self.namespace = vars(self._module)
        self._address = SHOWN
        self._task_id = ""
        self._files: set[str] = set()
        self._server = contextlib.ExitStack()

    def run(self) -> None:
        """Do all that the page shows.

        Raises:
            AssertionError: something is not as the page says; it names the line.
        """
        blocks = read(self.path)
        with self._server, self._imports():
            for block, after in zip(blocks, [*blocks[1:], None], strict=True):
                where = f"{self.path}:{block.line}"
                expected = after.text if after is not None and after.language == "text" else None
                if reason := block.notes.get("not run"):
                    assert len(reason) > 10, f"{where}: that is no reason"
                elif block.notes.get("needs") and find_spec(block.notes["needs"]) is None:
                    continue
                elif block.file:
                    self._save(block)
                elif block.language == "python":
                    compare(self._execute(block, where), expected or "", where)
                elif block.language == "sh":
                    output = "".join([self._command(words, block, where) for words in block.commands])
                    if expected is not None:
                        compare(output, expected, where)

    # -- Python --

    def _save(self, block: Block) -> None:
        target = self.folder / block.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text.replace(SHOWN, self._address))
        module = block.file.removesuffix(".py").replace("/", ".")
        self._files.add(module)
        sys.modules.pop(module, None)

    def _execute(self, block: Block, where: str) -> str:
        source = "\n" * block.line + block.text.replace(SHOWN, self._address)
        comments = _comments(source)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for node in ast.parse(source, str(self.path)).body:
                shown = comments.get(node.end_lineno or 0)
                if not isinstance(node, ast.Expr) or (shown is None and isinstance(node.value, ast.Call)):
                    exec(compile(ast.Module([node], []), str(self.path), "exec"), self.namespace)  # noqa: S102
                    continue
                value = eval(compile(ast.Expression(node.value), str(self.path), "eval"), self.namespace)  # noqa: S307
                assert shown is not None, f"{where}: {ast.unparse(node)} shows no value"
                expected = eval(shown, self.namespace)  # noqa: S307
                assert value == expected, f"{where}: {ast.unparse(node)} is {value!r}, not {shown}"
        return printed.getvalue()

    @contextlib.contextmanager
    def _imports(self) -> Iterator[None]:
        """The folder on the path, as it is for a reader's programs; what they left open is closed."""
        sys.path.insert(0, str(self.folder))
        sys.modules["page"] = self._module
        try:
            yield
        finally:
            sys.path.remove(str(self.folder))
            del sys.modules["page"]
            for names in (self.namespace, *(vars(sys.modules.pop(m)) for m in self._files if m in sys.modules)):
                for value in list(names.values()):
                    if type(value).__module__.startswith("a2a_sync.") and callable(getattr(value, "close", None)):
                        value.close()

    # -- the shell --

    def _command(self, words: list[str], block: Block, where: str) -> str:
        words = [self._task_id if word == "TASK" else word.replace(SHOWN, self._address) for word in words]
        if is_server(words):
            self._serve(words)
            return ""
        assert words[0] in ("a2a-sync", "python"), f"{where}: {words[0]} is not run; say why in a note"
        done = subprocess.run(
            _program(words),
            cwd=self.folder,
            env={**os.environ, **self._environment()},
            # As in a terminal: what comes first stands first.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        output = done.stdout
        wanted = int(block.notes.get("exit code", 0))
        assert done.returncode == wanted, f"{where}: exit code {done.returncode}, not {wanted}:\n{output}"
        self._task_id = next(iter(_TASK_ID.findall(output)[-1:]), self._task_id)
        return output.replace(self._address, SHOWN)

    def _serve(self, words: list[str]) -> None:
        self._server.close()
        port = free_port()
        self._address = f"{HOST}:{port}"
        if words[0] == "gunicorn":
            bind = {"--bind", "-b"} & set(words)
            for option in bind:
                del words[words.index(option) : words.index(option) + 2]
            words += ["--bind", self._address]
            words += [] if "--no-control-socket" in words else ["--no-control-socket"]
        else:
            words[2:2] = ["--port", str(port)]
        url = f"http://{self._address}"
        server = live_server(_program(words), url, environment=self._environment(), folder=self.folder)
        self._server.enter_context(server)

    def _environment(self) -> dict[str, str]:
        """The page's own modules first, then the package that is tested, with its plugin."""
        return {
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "PYTEST_PLUGINS": "a2a_sync.testing.plugin",
        }


def _program(words: list[str]) -> list[str]:
    modules = {
        "gunicorn": ["-m", "gunicorn"],
        "uvicorn": ["-m", "uvicorn"],
        "a2a-sync": ["-m", "a2a_sync"],
        "python": [],
    }
    return [sys.executable, *modules[words[0]], *words[1:]]


def _comments(source: str) -> dict[int, str]:
    """The comment at the end of each line of code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT and t.line.strip()[0] != "#"
    }


def compare(output: str, expected: str, where: str) -> None:
    """Hold `output` against what a page shows, in which ``…`` stands for anything (alone in a line: for any lines)."""
    lines = [r"[\s\S]*?" if line == "…" else re.escape(line.rstrip()).replace("…", ".*?") for line in _lines(expected)]
    shown = "\n".join(line.rstrip() for line in _lines(output))
    assert re.fullmatch("\n".join(lines), shown), f"{where}: the output is\n{output}\nand the page shows\n{expected}"


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()
