"""One agent mounted at ``/agents/echo`` in several hosts. Instead of a login, each host trusts the header ``X-User``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from a2a_sync import A2AApp, Limits, RequestContext
from a2a_sync.wsgi.options import HTTPOptions
from tests.scenarios.agent import ScenarioAgent

PREFIX = "/agents/echo"
#: The number of concurrent requests of a host, which as many open streams occupy.
THREADS = 3
#: The limit of a request body.
BODY = 64 * 1024


class HostedAgent(ScenarioAgent):
    """The scenario agent with commands for hosts."""

    def do_user(self, argument: str, context: RequestContext) -> str:
        return context.user.id if context.user else "anonymous"

    def do_flood(self, argument: str, context: RequestContext) -> Iterator[str]:
        """More bytes than the buffers between server and client hold."""
        for _ in range(400):
            yield "x" * 64 * 1024


def make_app(**options: Any) -> A2AApp:
    """The app with short limits; the environment names its proxies."""
    heartbeat = float(os.environ.get("HEARTBEAT", "15"))
    # No thread is reserved, so that tests can occupy all of them.
    limits = Limits(
        max_body_bytes=BODY,
        disconnect_check_interval=0.5,
        write_timeout=1.0,
        stream_keepalive_interval=heartbeat,
        server_threads=1000,
    )
    proxies = int(os.environ.get("TRUSTED_PROXIES", "0"))
    return A2AApp(HostedAgent(), limits=limits, http=HTTPOptions(trusted_proxies=proxies), **options)
