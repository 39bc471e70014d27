"""What the compared agents do, and how they leave marks for the checks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.frameworks.brain import Tools

#: The files of one server, which outlive its restart.
FOLDER = Path(os.environ.get("COMPARED_FOLDER", "."))
PORT = int(os.environ.get("PORT", "0"))
#: What a caller sends to have a name, and the name.
TOKEN, CALLER = "a-token-of-ann", "ann"
STOPS_WITHIN = 5.0


def mark(name: str) -> None:
    (FOLDER / name).touch()


class Marking(Tools):
    """The tools of the agent; those that wait leave files."""

    async def wait(self) -> str:
        """Wait for a long time."""
        mark("waiting")
        try:
            await asyncio.sleep(2 * STOPS_WITHIN)
            mark("waited")
        except asyncio.CancelledError:
            mark("stopped")
            raise
        return "waited"

    def wait_on_thread(self) -> str:
        """`wait` in a framework whose tools are synchronous."""
        mark("waiting")
        time.sleep(2 * STOPS_WITHIN)
        mark("waited")
        return "waited"


def with_images(turns: list[tuple[str, str]], images: Sequence[Any]) -> list[tuple[str, str]]:
    """The conversation, which ends with the number of images that the model has received."""
    if not images:
        return turns
    return [*turns, ("user", f"and {len(images)} image")]
