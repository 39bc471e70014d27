"""How objects of the protocol look at a prompt and in a notebook: one line of text, HTML, and Markdown.

Nothing of a peer is markup here: in HTML everything is escaped, and Markdown has texts of peers in code blocks only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

#: Characters of a text that are shown, in one line and as a block.
_LINE, _BLOCK = 60, 4_000
#: Control characters but for tab and line feed; the characters that change the direction of text or hide in it.
UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COLOURS: Final = {"completed": "#1d6b34", "failed": "#a3262a", "rejected": "#a3262a"}


class Displayed:
    """What `repr`, notebooks and tab completion ask an object for. Derive, and define ``_summary``."""

    __slots__ = ()

    def _summary(self) -> tuple[str, list[tuple[str, Any]], list[Any]]:
        """The heading, the facts below it, and the parts, files and objects inside."""
        raise NotImplementedError

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def _repr_html_(self) -> str:
        return as_html(self)

    def _repr_markdown_(self) -> str:
        return as_markdown(self)


def clean(text: str) -> str:
    """`text` without terminal control characters; tabs and line feeds stay."""
    return UNSAFE.sub("", text)


def one_line(text: str) -> str:
    """The beginning of a text in one line, for a `repr`."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _LINE else f"{flat[:_LINE]}…"


def as_html(shown: Displayed) -> str:
    """`shown` for a notebook."""
    heading, facts, inside = shown._summary()
    state = next((str(value) for name, value in facts if name == "state"), "")
    colour = _COLOURS.get(state, "#1f5a96")
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts
        if value not in ("", None)
    )
    body = "".join(map(_html_of, inside))
    return f"<div><b style='color:{colour}'>{escape(heading)}</b><table>{rows}</table>{body}</div>"


def _html_of(one: Any) -> str:
    if isinstance(one, Displayed):
        return f"<div style='margin-left:1em'>{as_html(one)}</div>"
    return f"<pre style='white-space:pre-wrap'>{escape(_text_of(one))}</pre>"


def as_markdown(shown: Displayed) -> str:
    """`shown` as Markdown."""
    heading, facts, inside = shown._summary()
    lines = [_code(heading), ""]
    lines += [f"- {name}: {_code(str(value))}" for name, value in facts if value not in ("", None)]
    for one in inside:
        text = as_markdown(one) if isinstance(one, Displayed) else _fenced(_text_of(one))
        lines += ["", text]
    return "\n".join(lines)


def _code(text: str) -> str:
    flat = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", flat)), default=0) + 1)
    return f"{fence} {flat} {fence}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence}\n{text}\n{fence}"


def _text_of(part: Any) -> str:
    """A part as text."""
    if getattr(part, "text", None) is not None:
        text = str(part.text)
    elif hasattr(part, "data"):
        text = json.dumps(part.data, indent=2, ensure_ascii=False, default=str)
    else:
        where = part.url if part.raw is None else f"{len(part.raw)} bytes"
        text = f"{part.filename or 'file'} ({part.media_type or 'unknown type'}, {where})"
    return text if len(text) <= _BLOCK else f"{text[:_BLOCK]}\n… {len(text) - _BLOCK} characters more"


def plain_path(folder: str | os.PathLike[str], name: str) -> Path:
    """The path in `folder` for a file that a peer has named: a plain name."""
    plain = re.sub(r"[^\w.-]", "_", name.replace("\\", "/").rpartition("/")[2], flags=re.ASCII).lstrip(".")[-100:]
    return Path(folder, plain or "file")


def write_new(path: Path, data: bytes) -> Path:
    """Write a new file at `path`, or beside it if the name is taken; returns where it is.

    Raises:
        OSError: it cannot be written.
    """
    return make_new(path, lambda found: _write_exclusively(found, data))


def make_new(path: Path, make: Callable[[Path], object]) -> Path:
    """Call `make` with `path`, or with one beside it if that exists; returns what was made.

    Raises:
        OSError: from `make`.
    """
    # Of very many files with one name, each would try the names of all before it.
    for end in ("", *(f"-{number}" for number in range(2, 100))):
        found = path.with_name(f"{path.stem}{end}{path.suffix}")
        with suppress(FileExistsError):
            make(found)
            return found
    found = path.with_name(f"{path.stem}-{token_hex(8)}{path.suffix}")
    make(found)
    return found


def _write_exclusively(path: Path, data: bytes) -> None:
    # Neither an existing file nor the target of a link is overwritten.
    with path.open("xb") as file:
        file.write(data)
