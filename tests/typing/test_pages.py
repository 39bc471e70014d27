"""The Python code of the README, the tutorial and the how-to pages passes `mypy --strict` and pyright.

The blocks of a page that share a namespace are one file here, blocks that are saved as files are files beside it. Line numbers
are those of the page.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.pages import Block, read
from tests.typing import MYPY

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorial/*.md")), *sorted(ROOT.glob("docs/howto/*.md"))]
ENVIRONMENT = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}


def folder(page: Path) -> str:
    """A name for the files of a page; type checkers take it for that of a package."""
    return page.stem.replace("-", "_")


def write(page: Path, target: Path) -> bool:
    """Save the Python code of a page in `target`; False if it has none."""
    shared = ""
    blocks = [block for block in read(page) if block.language == "python" and not _needs_absent_framework(block)]
    for block in blocks:
        if block.file:
            path = target / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n" * block.line + block.text)
        else:
            shared += "\n" * (block.line - shared.count("\n")) + block.text
    if shared:
        target.mkdir(parents=True, exist_ok=True)
        (target / "page.py").write_text(shared)
    return bool(blocks)


#: Other implementations, beside whose code pages show that of this library.
_PEERS = {"a2a", "fasta2a", "python_a2a"}


def _needs_absent_framework(block: Block) -> bool:
    """The block is of another implementation, or needs a package that is not installed: its objects have no types here."""
    imports = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [one.module or "" if isinstance(one, ast.ImportFrom) else one.names[0].name for one in imports]
    packages = {name.partition(".")[0] for name in names}
    if packages & _PEERS:
        return True
    needed = packages if "not run" in block.notes else {block.notes.get("needs", "").partition(".")[0]} - {""}
    return any(find_spec(package) is None for package in needed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_passes_mypy_strict(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed (the extra dev)")
    if not write(page, tmp_path):
        return
    command = [sys.executable, "-m", "mypy", *MYPY, "."]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_code_of_all_pages_passes_pyright(tmp_path: Path) -> None:
    pytest.importorskip("pyright", reason="pyright is not installed (the extra dev)")
    folders = [folder(page) for page in PAGES if write(page, tmp_path / folder(page))]
    assert len(set(folders)) == len(folders) > 30
    settings = {
        "pythonVersion": "3.11",
        "executionEnvironments": [{"root": name, "extraPaths": [str(ROOT)]} for name in folders],
        "reportMissingImports": "none",
        "reportMissingModuleSource": "none",
        # The last expression of a line is its shown value.
        "reportUnusedExpression": "none",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", ".", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_page_with_an_error_is_reported_with_its_line(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker, reason=f"{checker} is not installed (the extra dev)")
    page = tmp_path / "wrong.md"
    page.write_text(
        '# Wrong\n\n```python\nfrom a2a_sync import Client\n\nClient("http://a.test").send("x").state\n```\n'
    )
    assert write(page, tmp_path / "code")
    options = MYPY if checker == "mypy" else ("--pythonpath", sys.executable)
    done = subprocess.run(
        [sys.executable, "-m", checker, *options, "code/page.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "page.py:6:" in done.stdout
