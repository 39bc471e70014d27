"""The gunicorn configuration of ``a2a-sync serve``; `app` creates the application.

Both run in gunicorn's processes. `serve` passes the target in environment variables.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

import a2a_sync.gunicorn as _hooks
from a2a_sync import A2AApp, AgentHost
from a2a_sync.cli.target import TargetError, make_app
from a2a_sync.engine.components import Component
from a2a_sync.gunicorn import *  # noqa: F403
from a2a_sync.wsgi.pages import is_loopback

TARGET, STORE, URL, DEBUG = "A2A_SYNC_TARGET", "A2A_SYNC_STORE", "A2A_SYNC_URL", "A2A_SYNC_DEBUG"
CONSOLE = "A2A_SYNC_CONSOLE"
GRPC, GRPC_URL, GRPC_THREADS = "A2A_SYNC_GRPC", "A2A_SYNC_GRPC_URL", "A2A_SYNC_GRPC_THREADS"
GRPC_CERT, GRPC_KEY, GRPC_CA = "A2A_SYNC_GRPC_CERT", "A2A_SYNC_GRPC_KEY", "A2A_SYNC_GRPC_CA"
GRPC_REFLECTION, GRPC_BEHIND_PROXY = "A2A_SYNC_GRPC_REFLECTION", "A2A_SYNC_GRPC_BEHIND_PROXY"


_LOG_FORMAT = "%(asctime)s [%(process)d] [%(levelname)s] %(name)s: %(message)s"


def app(host: str = "") -> A2AApp | AgentHost:
    """The application of this worker. `host`: the one that it listens on, where that is certain."""
    # The library does not configure logging; this program does.
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, datefmt="[%Y-%m-%d %H:%M:%S %z]")
    try:
        made = make_app(
            os.environ[TARGET],
            store=os.environ.get(STORE) or None,
            url=os.environ.get(URL) or None,
            debug=bool(os.environ.get(DEBUG)),
            console=bool(os.environ.get(CONSOLE)),
            hosts=_trusted_hosts(host),
        )
    except TargetError as error:
        sys.exit(f"Error: {error}")
    if os.environ.get(GRPC):
        # The worker starts, drains and closes it with the app.
        made.register(_grpc_server(made))
    return made


def _grpc_server(site: A2AApp | AgentHost) -> Component:
    from a2a_sync.grpc import TLS, GRPCServer

    variables = os.environ
    certificate = variables.get(GRPC_CERT)
    return GRPCServer(
        site,
        variables[GRPC],
        tls=TLS(certificate, variables[GRPC_KEY], variables.get(GRPC_CA) or None) if certificate else None,
        url=variables.get(GRPC_URL) or None,
        threads=int(variables[GRPC_THREADS]),
        reflection=bool(variables.get(GRPC_REFLECTION)),
        behind_proxy=bool(variables.get(GRPC_BEHIND_PROXY)),
    )


def _trusted_hosts(host: str) -> list[str] | None:
    """The host names of an agent that only this machine can reach, and which anything on it may call: web pages must not.

    A page whose name is changed to resolve to this machine (DNS rebinding) is of the same site as the agent, for a browser.
    """
    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host or "::", None)}
    except OSError:
        return None
    if not all(map(is_loopback, found)):
        return None
    public = urlsplit(os.environ.get(URL) or "").hostname
    names = ["127.0.0.1", "::1", host, *([public] if public else [])]
    return ["localhost", *(f"[{name}]" if ":" in name else name for name in names)]


def post_worker_init(worker: Any) -> None:  # type: ignore[no-redef]
    """Print the URL once, and close the app when the worker exits."""
    _hooks.post_worker_init(worker)
    print_address(worker)


def print_address(worker: Any) -> None:
    """Print the URL of the card, or of the list of cards, in the first worker only."""
    if worker.age == 1:
        host, port = worker.sockets[0].getsockname()[:2]
        several = isinstance(worker.wsgi, AgentHost)
        what, path = ("Agents", "agents") if several else ("Agent card", "agent-card.json")
        if isinstance(worker.wsgi, (AgentHost, A2AApp)):
            print(f"{what}: {address(host, port)}.well-known/{path}", flush=True)
        if os.environ.get(GRPC):
            print(f"gRPC: {os.environ[GRPC]}", flush=True)
        console = getattr(worker.wsgi, "console", None)
        if console is not None:
            base = address(host, port)
            print(f"Console: {console.login_link(base) or f'{base}console/'}", flush=True)


def address(host: str, port: int) -> str:
    """The URL under which this machine reaches a socket bound to `host` and `port`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # nothing is bound here  # nosec B104
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
