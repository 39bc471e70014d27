"""The agent of the fault tests with webhooks: ``gunicorn tests.faults.pushing:app``. It is quick to try again."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Limits, PushNotifications, URLGuard
from tests.faults.agent import FaultAgent

app = A2AApp(
    FaultAgent(),
    store=os.environ.get("FAULT_STORE"),
    push=PushNotifications(guard=URLGuard(allow=["127.0.0.1"])),
    limits=Limits(
        tick=0.1, beat=0.5, poll=0.5, push_timeout=2.0, push_pause=0.1, push_longest_pause=0.5, push_attempts=1000
    ),
)
