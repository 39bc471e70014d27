"""The apps that `test_served` runs under gunicorn, over files in a folder."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Limits
from tests.crewai.kit import Kit
from tests.frameworks.brain import Tools

kit = Kit(Tools())
store = f"sqlite:///{os.environ['A2A_TEST_FOLDER']}/tasks.db"
# The first run of a framework may hold the interpreter for longer than half a second on a loaded machine.
limits = Limits(worker_heartbeat_interval=1.0, store_poll_interval=0.1)
bridge = {"crew": kit.crew_bridge, "agent": kit.agent_bridge, "flow": kit.flow_bridge}[os.environ["A2A_TEST_KIT"]]
app = A2AApp(bridge(expose_tools=True), store=store, limits=limits)
