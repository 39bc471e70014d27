"""The app that `test_served` runs under gunicorn: the kit that the environment names, over files in a folder."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from a2a_sync import A2AApp, Limits
from tests.frameworks.brain import Tools

folder = Path(os.environ["A2A_TEST_FOLDER"])
kit = importlib.import_module(f"tests.frameworks.kit_{os.environ['A2A_TEST_KIT']}").Kit(Tools())
# The checkpointer of LangGraph is a file of its own.
kit.path = str(folder / "framework.db")
app = A2AApp(
    kit.make(expose_tools=True),
    store=f"sqlite:///{folder}/tasks.db",
    # The first run of a framework may hold the interpreter for longer than half a second on a loaded machine.
    limits=Limits(worker_heartbeat_interval=1.0, store_poll_interval=0.1),
)
