"""How the documentation is built: ``make docs``, or ``sphinx-build -W -b html docs docs/_build``."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import a2a_sync

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "a2a_sync"
author = "the a2a_sync authors"
copyright = "the a2a_sync authors; Apache-2.0"
release = version = a2a_sync.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "errortexts", "sphinx.ext.graphviz"]
exclude_patterns = ["_build"]
graphviz_output_format = "svg"
if shutil.which("dot") is None:
    # Readers get the sources of the diagrams. CI installs Graphviz.
    extensions[-1] = "diagramsources"
html_theme = "furo"
html_title = f"a2a_sync {release}"
html_copy_source = html_show_sourcelink = False

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# Single backquotes in a docstring mark a name.
default_role = "py:obj"
autodoc_member_order = "bysource"
# Signatures have one parameter on each line, with its type; documented parameters are listed once more, with text and type.
autodoc_typehints = "both"
autodoc_typehints_description_target = "documented_params"
python_maximum_signature_line_length = 60
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

#: Classes that the library creates: their constructors are not part of the public interface.
_NOT_CONSTRUCTED = {
    "AgentExecutor",
    "Answer",
    "ArtifactWriter",
    "Chat",
    "Entry",
    "RequestContext",
    "Role",
    "State",
    "TaskState",
    "TaskStore",
    "TaskStream",
}


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _write_sections)
    app.connect("autodoc-process-signature", _readable_signature)


def _write_sections(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """``Raises:`` and its kind, with ``name: text`` below, as lists."""
    lines[:] = _with_lists(lines)


def _with_lists(lines: list[str]) -> Iterator[str]:
    rest = list(lines)
    while rest:
        line = rest.pop(0)
        if not re.fullmatch(r"(Parameters|Attributes|Raises)\b.*:", line):
            yield line
            continue
        section = list(takewhile(lambda below: not below or below.startswith(" "), rest))
        del rest[: len(section)]
        parameters = line.startswith("Parameters")
        yield from ("",) if parameters else ("", f"**{line.removesuffix(':')}**", "")
        for item in section:
            if named := re.match(r"    ([\w, ]+): (.*)", item):
                if parameters:
                    # Each name has a field of its own, to which autodoc adds the type.
                    *before, last = named[1].split(", ")
                    yield from (f":param {one}: with `{last}`, described below." for one in before)
                    yield f":param {last}: {named[2]}"
                else:
                    names = ", ".join(f"``{one}``" for one in named[1].split(", "))
                    yield f"* {names}: {named[2]}"
            else:
                yield ("    " if parameters else "  ") + item.strip() if item else ""
        yield ""


def _readable_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    if what == "class" and name.rpartition(".")[2] in _NOT_CONSTRUCTED:
        return "", None
    if signature and "<factory>" in signature:
        # With this default in it a signature is no Python, and would be shown as it stands.
        return signature.replace("<factory>", "..."), returns
    return None
