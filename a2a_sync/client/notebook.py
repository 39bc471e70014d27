"""A stream in the cell of a notebook: shown again as its events arrive, at most ten times a second."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

_INTERVAL = 0.1


class Stream(Iterable[object], Protocol):
    """A `TaskStream`, as this module knows it."""

    def _repr_html_(self) -> str: ...


def show_live(stream: Stream) -> None:
    """Read `stream` to its end on this thread and show it meanwhile. A closed one is only shown.

    Raises:
        AgentError, TransportError: as the iteration of the stream.
    """
    from IPython.display import HTML, display  # only IPython calls this

    handle: Any = display(HTML(stream._repr_html_()), display_id=True)
    shown = time.monotonic()
    try:
        for _ in stream:
            if handle is not None and time.monotonic() - shown >= _INTERVAL:
                handle.update(HTML(stream._repr_html_()))
                shown = time.monotonic()
    finally:
        if handle is not None:
            handle.update(HTML(stream._repr_html_()))
