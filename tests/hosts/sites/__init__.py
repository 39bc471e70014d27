"""One agent inside several hosts, always at ``/agents/echo``. In place of a login each host believes ``X-User``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from a2a_sync import A2AApp, Limits, RequestContext
from tests.scenarios.agent import ScenarioAgent

PREFIX = "/agents/echo"
#: Requests that a host serves at once; as many open streams occupy it.
THREADS = 3
#: The largest body.
BODY = 64 * 1024


class HostedAgent(ScenarioAgent):
    """Adds what only hosts are asked for."""

    def do_who(self, argument: str, context: RequestContext) -> str:
        return context.user.id if context.user else "nobody"

    def do_flood(self, argument: str, context: RequestContext) -> Iterator[str]:
        """More than any buffer on the way takes."""
        for _ in range(400):
            yield "x" * 64 * 1024


def make_app(**options: Any) -> A2AApp:
    """The app with limits that are short enough to be seen; the environment says what is in front of it."""
    heartbeat = float(os.environ.get("HEARTBEAT", "15"))
    # So many threads that none is kept free: the tests take them all.
    limits = Limits(
        max_body_bytes=BODY,
        disconnect_check_interval=0.5,
        write_timeout=1.0,
        stream_keepalive_interval=heartbeat,
        server_threads=1000,
    )
    proxies = int(os.environ.get("TRUSTED_PROXIES", "0"))
    return A2AApp(HostedAgent(), limits=limits, trusted_proxies=proxies, **options)
