"""The agent of the fault tests with webhooks and a short retry backoff: ``gunicorn tests.faults.pushing:make_app()``."""

from __future__ import annotations

import os
from typing import Any

from a2a_sync import A2AApp, Limits, PushOptions, URLGuard
from tests.faults.agent import FaultAgent


def make_app(job_queue: Any = None) -> A2AApp:
    return A2AApp(
        FaultAgent(),
        store=os.environ.get("FAULT_STORE"),
        job_queue=job_queue,
        push=PushOptions(
            url_guard=URLGuard(allow=["127.0.0.1"]),
            timeout=2.0,
            initial_backoff=0.1,
            max_backoff=0.5,
            max_attempts=1000,
        ),
        limits=Limits(
            disconnect_check_interval=0.1,
            worker_heartbeat_interval=0.5,
            store_poll_interval=0.5,
        ),
    )
