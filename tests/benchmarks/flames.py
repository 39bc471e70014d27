"""Flame graphs as SVG files: the stacks of a send and of a stream, of this tree and of an earlier commit."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The commit before the work on speed: its parent stored each streamed chunk by itself.
BEFORE = "86aaf07^"
_WIDTH, _ROW, _LEAST = 1200, 15, 1.0


def draw(folder: Path, count: int) -> dict[str, float]:
    """Write ``flame-send-before.svg`` and three more into `folder`; the processor time of each, in µs."""
    earlier = Path(tempfile.mkdtemp(prefix="a2a-bench-"))
    try:
        archive = subprocess.run(
            ["git", "archive", BEFORE, "a2a_sync"], cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=60
        )
        subprocess.run(["tar", "-x", "-C", earlier], input=archive.stdout, check=True, timeout=60)
        spent = {}
        for operation in ("send", "stream"):
            for when, tree in (("before", earlier), ("after", ROOT)):
                stacks = _stacks(tree, operation, count)
                name = f"{operation}-{when}"
                spent[name] = sum(stacks.values()) / 1e3
                (folder / f"flame-{name}.svg").write_text(svg(stacks, f"One {operation}, {when}"), encoding="utf-8")
        return spent
    finally:
        shutil.rmtree(earlier, ignore_errors=True)


def _stacks(tree: Path, operation: str, count: int) -> dict[tuple[str, ...], int]:
    printed = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("stacks.py")), operation, str(count)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    ).stdout
    lines = (line.rpartition(" ") for line in printed.splitlines())
    return {tuple(stack.split(";")): int(spent) for stack, _, spent in lines}


class _Frame:
    """A function in one stack, with what it spent, and what the functions that it called spent."""

    def __init__(self) -> None:
        self.spent = 0
        self.called: dict[str, _Frame] = {}

    @property
    def depth(self) -> int:
        return 1 + max((frame.depth for frame in self.called.values()), default=0)


def svg(stacks: dict[tuple[str, ...], int], title: str) -> str:
    """A flame graph of stacks with nanoseconds."""
    root = _Frame()
    for stack, spent in stacks.items():
        frame = root
        frame.spent += spent
        for name in stack:
            frame = frame.called.setdefault(name, _Frame())
            frame.spent += spent
    height = (root.depth + 2) * _ROW
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="10">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="4" y="11">{escape(title)}: {root.spent / 1e3:,.0f} µs of processor time, by function</text>',
    ]
    _draw_called(drawn, root, 0.0, height - _ROW, _WIDTH / max(root.spent, 1))
    return "\n".join([*drawn, "</svg>", ""])


def _draw_called(drawn: list[str], frame: _Frame, x: float, y: float, scale: float) -> None:
    for name, called in sorted(frame.called.items()):
        width = called.spent * scale
        if width >= _LEAST:
            text = name if len(name) * 6.1 < width else name[: int(width / 6.1)] if width > 24 else ""
            drawn.append(
                f'<g><title>{escape(name)}: {called.spent / 1e3:,.1f} µs</title><rect x="{x:.1f}" y="{y}"'
                f' width="{width:.1f}" height="{_ROW - 1}" fill="{_color(name)}"/>'
                + (f'<text x="{x + 2:.1f}" y="{y + 11}">{escape(text)}</text>' if text else "")
                + "</g>"
            )
            _draw_called(drawn, called, x, y - _ROW, scale)
        x += width


def _color(name: str) -> str:
    """C functions are blue, others by the name of their module."""
    if name.endswith("(C)"):
        return "#b8cfe6"
    digest = hashlib.sha256(name.partition(".")[0].encode()).digest()
    return f"hsl({20 + digest[0] % 40}, 80%, {62 + digest[1] % 18}%)"
