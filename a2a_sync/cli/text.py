"""Print untrusted text: no character of an agent's text may move the cursor or change the terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from a2a_sync.display import UNSAFE, clean


def clean_line(text: str, limit: int = 500) -> str:
    """`text` as one clean line of at most `limit` characters."""
    line = " ".join(clean(text.replace("\r", "\n")).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def clean_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in which such characters are escaped: safe to print, with the same value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_json(value: Any) -> None:
    """Print a JSON value to standard output, on one line."""
    click.echo(clean_json(value))
    sys.stdout.flush()


def without_color() -> bool:
    """Colours are switched off, by ``--no-color`` or the environment."""
    return bool(os.environ.get("NO_COLOR")) or getattr(click.get_current_context(silent=True), "color", None) is False


def print_status(line: str, *, error: bool = False, dim: bool = False) -> None:
    """Print one line to standard error."""
    color = False if without_color() else None
    click.secho(clean_line(line, 4000), err=True, fg="red" if error else None, dim=dim, color=color)


def rich_console() -> Any:
    """A `rich.console.Console` on standard output, or None: rich is not installed, or the output is not a terminal."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(markup=False, highlight=False, emoji=False, no_color=without_color())
