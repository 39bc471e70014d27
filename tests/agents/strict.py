"""What hostile input is sent to under gunicorn: ``gunicorn tests.agents.strict:app``. Tasks are kept in `STRICT_STORE`."""

from __future__ import annotations

import os
from typing import Any

from a2a_sync import A2AApp, Limits
from tests.scenarios.agent import ScenarioAgent


def make_app(store: Any = None) -> A2AApp:
    """The scenario agent with little patience for bodies that do not come."""
    return A2AApp(ScenarioAgent(), store=store, limits=Limits(disconnect_check_interval=0.05, body_idle_timeout=0.5))


#: The store's file is made on first use, so importing this leaves no trace.
app = make_app(os.environ.get("STRICT_STORE"))
