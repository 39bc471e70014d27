"""Everything that an app sends and stores, to search it for secrets."""

from __future__ import annotations

import gc
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from a2a_sync import Client
from tests.frameworks.brain import TIMEOUT


def spoken(client: Client, *messages: str) -> str:
    """All that the agent sends for messages of one conversation: each event of the streams, and the tasks afterwards."""
    sent = []
    for message in messages:
        with client.stream(message, context_id="c", timeout=TIMEOUT * 9) as stream:
            sent += [event.to_json() for event in stream]
        sent.append(client.get_task(stream.task_id).to_json())
    return "\n".join(sent)


def texts_in(thing: Any) -> str:
    """All texts and bytes that are reachable from an object, code apart."""
    seen: dict[int, Any] = {}
    found, waiting = [], [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | FunctionType | ModuleType):
            continue
        seen[id(one)] = one
        if isinstance(one, str | bytes):
            found.append(one if isinstance(one, str) else one.decode(errors="replace"))
        else:
            waiting += gc.get_referents(one)
    return "\n".join(found)


def bytes_in(folder: Path) -> str:
    """The bytes of all database files in a folder."""
    return b"".join(path.read_bytes() for path in folder.glob("*.db*") if path.is_file()).decode(errors="replace")
