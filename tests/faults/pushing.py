"""The agent of the fault tests with webhooks: ``gunicorn tests.faults.pushing:app``. It is quick to try again."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Limits, PushOptions, URLGuard
from tests.faults.agent import FaultAgent

app = A2AApp(
    FaultAgent(),
    store=os.environ.get("FAULT_STORE"),
    push=PushOptions(url_guard=URLGuard(allow=["127.0.0.1"])),
    limits=Limits(
        disconnect_check_interval=0.1,
        worker_heartbeat_interval=0.5,
        store_poll_interval=0.5,
        push_timeout=2.0,
        push_pause=0.1,
        push_longest_pause=0.5,
        push_attempts=1000,
    ),
)
