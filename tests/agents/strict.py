"""The agent for hostile input under gunicorn: ``gunicorn tests.agents.strict:app``. Tasks are stored in `STRICT_STORE`."""

from __future__ import annotations

import os
from typing import Any

from a2a_sync import A2AApp, Limits
from tests.scenarios.agent import ScenarioAgent


def make_app(store: Any = None) -> A2AApp:
    """The scenario agent with short time limits for request bodies."""
    return A2AApp(ScenarioAgent(), store=store, limits=Limits(disconnect_check_interval=0.05, body_idle_timeout=0.5))


#: The store's file is created on first use, so that an import creates none.
app = make_app(os.environ.get("STRICT_STORE"))
