"""Runs a documentation page as a test: all examples from top to bottom, in one empty folder.

Each fenced block is processed by its language:

- ``python``: executed; all blocks of a page share one namespace. A block that begins with ``# name.py``, or follows
  ``<!-- file: name -->``, is saved under that name. ``expression  # value`` is compared with the value. What a block prints
  must equal the ``text`` block after it.
- ``sh``: ``gunicorn …``, ``uvicorn …`` and ``a2a-sync serve …`` start a server, which replaces the previous one.
  ``a2a-sync …`` and ``python …`` are run and must exit with 0 (``<!-- exit code: 4 -->`` expects another code). ``TASK`` is
  replaced by the id of the task that was printed last.
- ``text`` after one of these is its expected output, in which ``…`` matches anything.

``http://127.0.0.1:8000`` is replaced by the address of the page's server. ``<!-- needs: flask -->`` runs a block only if that
package is installed; ``<!-- not run: reason -->`` skips one. Nothing else skips a block.
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
from pathlib import Path

from tests.frameworks import installed
from tests.live import HOST, ROOT, free_port, live_server

#: The address of the server as pages show it.
SHOWN = "127.0.0.1:8000"
_TIMEOUT = 60.0
_FENCE = re.compile(r"^( *)(`{3,})([\w-]*) *(.*)$")
_NOTE = re.compile(r"^<!-- ([a-z ]+): (.+?) -->$")
_FILE = re.compile(r"^# ([\w/]+\.py)$")
_TASK_ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_NOTES = {"file", "exit code", "needs", "not run"}
#: Blocks that are not run: data, output, and nginx configuration, which `tests.servers.test_nginx` runs.
_PLAIN = {"text", "json", "toml", "nginx"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, the notes above it, and its first line's number."""

    language: str
    text: str
    line: int
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of the file that the block defines, or an empty string."""
        named = _FILE.match(self.text.partition("\n")[0]) if self.language == "python" else None
        return named[1] if named else self.notes.get("file", "")

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a ``sh`` block."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def read(path: Path) -> list[Block]:
    """The fenced blocks of a Markdown file, without directives of the documentation builder."""
    blocks: list[Block] = []
    notes: dict[str, str] = {}
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    for number, line in lines:
        if (note := _NOTE.match(line)) and note[1] != "generated":  # a command writes that part of the page
            assert note[1] in _NOTES, f"{path.name}:{number}: unknown note: {note[1]}"
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
                    f"{path.name}:{number}: unknown language of a block: {language!r}"
                )
                blocks.append(Block(language, "\n".join(body) + "\n", number, notes))
            notes = {}
    return blocks


def is_server(command: list[str]) -> bool:
    """Whether the command is a server, which runs until it is stopped."""
    return command[0] in ("gunicorn", "uvicorn") or command[:2] == ["a2a-sync", "serve"]


def needs_server(path: Path) -> bool:
    """Whether the page starts a server."""
    return any(is_server(c) for block in read(path) if block.language == "sh" for c in block.commands)


class Page:
    """Runs one page in `folder`, which is the working directory meanwhile."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self._module = types.ModuleType("page")
        self.namespace = vars(self._module)
        self._address = SHOWN
        self._task_id = ""
        self._files: set[str] = set()
        self._saved: list[Path] = []
        self._server = contextlib.ExitStack()

    def run(self) -> None:
        """Run all blocks of the page.

        Raises:
            AssertionError: an outcome differs from the page; the message names the line.
        """
        blocks = read(self.path)
        with self._server, self._imports():
            for block, after in zip(blocks, [*blocks[1:], None], strict=True):
                where = f"{self.path}:{block.line}"
                expected = after.text if after is not None and after.language == "text" else None
                if reason := block.notes.get("not run"):
                    assert len(reason) > 10, f"{where}: this is not a reason"
                elif block.notes.get("needs") and not installed(block.notes["needs"]):
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
        self._saved.append(target)
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
        """Put the folder on `sys.path`, as for a reader's programs; close what they left open."""
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
        assert words[0] in ("a2a-sync", "python"), f"{where}: {words[0]} is not supported; add a note with the reason"
        done = subprocess.run(
            _program(words),
            cwd=self.folder,
            env={**os.environ, **self._environment()},
            # As in a terminal: standard error and output in order of writing.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT,
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
        former, self._address = self._address, f"{HOST}:{port}"
        # Files that name the address of the server, such as the card of an agent, name the new one.
        for path in self._saved:
            path.write_text(path.read_text().replace(former, self._address))
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
        """The page's modules first, then the package under test with its plugin; the others are of no use to a page and start slowly."""
        return {
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
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
    """The trailing comment of each line of code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT and t.line.strip()[0] != "#"
    }


def compare(output: str, expected: str, where: str) -> None:
    """Compare `output` with the text of a page, in which ``…`` matches anything (alone on a line: any lines)."""
    lines = [r"[\s\S]*?" if line == "…" else re.escape(line.rstrip()).replace("…", ".*?") for line in _lines(expected)]
    shown = "\n".join(line.rstrip() for line in _lines(output))
    assert re.fullmatch("\n".join(lines), shown), f"{where}: the output is\n{output}\nand the page shows\n{expected}"


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()
