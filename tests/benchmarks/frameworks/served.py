"""The application of one compared server, which its environment names (``COMPARED=strands/ours/shop``)."""

from __future__ import annotations

import importlib
import os
from typing import Any

from tests.benchmarks.frameworks.work import CALLER, FOLDER, TOKEN


def _ours(module: Any, kind: str) -> Any:
    from a2a_sync import A2AApp
    from a2a_sync.auth import BearerAuth

    store = "memory:" if kind == "speed" else f"sqlite:///{FOLDER}/ours.db"
    auth = BearerAuth(lambda token: CALLER if token == TOKEN else None) if kind == "known" else None
    return A2AApp(module.ours(kind), store=store, auth=auth)


_name, _side, _kind = os.environ["COMPARED"].split("/")
_module = importlib.import_module(f"tests.benchmarks.frameworks.agents.{_name}")
app = _ours(_module, _kind) if _side == "ours" else _module.theirs(_kind)
