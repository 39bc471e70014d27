"""Finds what only the garbage collector frees."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def frames_in_cycles() -> Iterator[set[str]]:
    """At the end of the block, the names of the functions of this library whose frames it has left in cycles of references."""
    names: set[str] = set()
    gc.collect()
    gc.disable()
    try:
        yield names
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        frames = [one for one in gc.garbage if isinstance(one, FrameType)]
        names |= {frame.f_code.co_qualname for frame in frames if "a2a_sync" in frame.f_code.co_filename}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
