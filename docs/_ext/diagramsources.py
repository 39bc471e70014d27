"""The directive ``graphviz`` where the program ``dot`` is not installed: it shows the text and the source of a diagram."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives

    class DiagramSource(Directive):
        required_arguments = 1
        option_spec = {"alt": directives.unchanged}

        def run(self) -> list[nodes.Node]:
            page = Path(self.state.document["source"])
            source = (page.parent / self.arguments[0]).read_text()
            return [nodes.paragraph(text=self.options.get("alt", "")), nodes.literal_block(source, source)]

    app.add_directive("graphviz", DiagramSource)
    return {"parallel_read_safe": True}
