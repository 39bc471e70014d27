"""This library as the system under test, with every agent in this process, without sockets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from a2a_sync import A2AApp, AgentSkill, Client, Limits, MemoryStore, WebhookReceiver
from a2a_sync.agent.extensions import Extension
from a2a_sync.auth.schemes import ApiKeyAuth, BasicAuth, BearerAuth
from a2a_sync.card import AgentCapabilities
from a2a_sync.grpc import GRPCServer
from a2a_sync.operations import Principal
from a2a_sync.signing import CardSigner
from a2a_sync.stores.base import LogPage, Owner
from tests.conformance.agent import ConformanceAgent
from tests.conformance.grpcsite import GrpcSite
from tests.conformance.signatures import KID, private_pem
from tests.conformance.system import EXTENSION, KEY, NEEDED, PASSWORD, USERS, Below, NotOffered, System
from tests.conformance.wire import Site
from tests.push.receiver import LOOPBACK
from tests.wsgi import HOST, Peer


class Unreadable(MemoryStore):
    """A store whose entries of logs cannot be read."""

    def log(self, owner: Owner, task_id: str, *, limit: int = 1000, **bounds: Any) -> LogPage:
        if limit:
            raise RuntimeError("secret-of-the-store")
        return super().log(owner, task_id, limit=limit, **bounds)


class _Quiet(WSGIRequestHandler):
    """A server that writes no access log."""

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class _Collecting(logging.Handler):
    """Collects the text of all log records, tracebacks included."""

    def __init__(self, records: list[str]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(f"{self.format(record)} {record.__dict__}")


def _limits(**limits: Any) -> Limits:
    return Limits(disconnect_check_interval=0.05, stream_keepalive_interval=0.2, busy_task_timeout=5.0, **limits)


def _mute() -> dict[str, Any]:
    return {"card": replace(ConformanceAgent().describe(), capabilities=AgentCapabilities(streaming=False))}


def _signed() -> dict[str, Any]:
    # Canonical forms differ for text that is not ASCII.
    card = replace(
        ConformanceAgent().describe(), description="Runs the command in the message, na\u00efvely \U0001f355"
    )
    return {"card": card, "card_signer": CardSigner(private_pem(), kid=KID), "url": f"http://{HOST}/"}


def _secured() -> dict[str, Any]:
    plain = ConformanceAgent().describe()
    secret = AgentSkill(id="secret", name="Secret", description="For authenticated callers", tags=["inside"])
    tokens = {USERS["ada"]: Principal(id="ada", scopes=("cancel",)), USERS["bob"]: Principal(id="bob")}
    keys = {KEY: Principal(id="ada", scopes=("cancel",))}
    return {
        "auth": BearerAuth(tokens) | (ApiKeyAuth(keys, header="X-Key") & BasicAuth({PASSWORD[0]: PASSWORD[1]})),
        "required_scopes": {"CancelTask": "cancel"},
        "extended_card": replace(plain, skills=(*plain.skills, secret)),
        "push": True,
    }


#: How each agent is created: attributes, and arguments of its app.
MADE: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
    "plain": lambda: ({}, {"extensions": [Extension(EXTENSION)]}),
    "restful": lambda: ({}, {"protocol_versions": ("1.0",), "protocol_bindings": ("HTTP+JSON", "JSONRPC")}),
    "mute": lambda: ({}, _mute()),
    "push": lambda: ({}, {"push": True}),
    "near": lambda: ({}, {"push": replace(LOOPBACK, max_attempts=3, initial_backoff=0.2)}),
    "signed": lambda: ({}, _signed()),
    "promised": lambda: ({}, {"extended_card": lambda context: None}),
    "demanding": lambda: ({}, {"extensions": [Extension(NEEDED, required=True)]}),
    "secured": lambda: ({}, _secured()),
    "direct": lambda: ({"direct": True}, {"limits": _limits(direct_reply_timeout=60.0)}),
    "modern": lambda: ({}, {"protocol_versions": ("1.0",)}),
    "old": lambda: ({}, {"protocol_versions": ("0.3",)}),
    "cut": lambda: ({}, {"store": Unreadable(), "limits": _limits(max_buffered_batches=1)}),
    "busy": lambda: ({}, {"limits": _limits(max_concurrent_runs=1, max_queued_runs=0)}),
}


@dataclass(frozen=True)
class Variant:
    """A defect that the checks of the line `number` must detect; `says` describes it.

    `app` replaces `A2AApp` (a subclass, or a function with its arguments), `wsgi` wraps the app that answers requests, and `client`
    replaces `Client`. `inside` is a context manager around the run, for defects inside the library.
    """

    number: str
    says: str
    app: Callable[..., A2AApp] = A2AApp
    wsgi: Callable[[A2AApp], Any] = lambda app: app
    client: Callable[..., Client] = Client
    inside: Callable[[], AbstractContextManager[object]] = nullcontext


class Ours(System):
    """The library, unchanged or with the defect of a variant."""

    def __init__(self, variant: Variant | None = None) -> None:
        self._variant = variant or Variant("", "")
        #: A defect may also violate WSGI; the suite must detect the defect itself.
        self._valid = variant is None
        self._apps: dict[str, A2AApp] = {}
        self._answering: dict[str, Any] = {}
        self._sites: dict[str, Site] = {}
        self._servers: dict[str, BaseWSGIServer] = {}
        self._grpc: dict[str, tuple[GRPCServer, GrpcSite, A2AApp]] = {}

    def _make(self, kind: str) -> A2AApp:
        if kind not in MADE:
            raise NotOffered(kind)
        attributes, options = MADE[kind]()
        return self._variant.app(ConformanceAgent(**attributes), **{"limits": _limits(), **options})

    def grpc_site(self, kind: str) -> GrpcSite:
        if kind not in self._grpc:
            # An app of its own: the card of the other one lists its interfaces without gRPC.
            app = self._make(kind)
            server = GRPCServer(app, "127.0.0.1:0")
            server.start()
            self._grpc[kind] = server, GrpcSite(f"127.0.0.1:{server.port}", Peer(app, valid=self._valid)), app
        return self._grpc[kind][1]

    def site(self, kind: str) -> Site:
        if kind not in self._sites:
            app = self._apps[kind] = self._make(kind)
            self._answering[kind] = self._variant.wsgi(app)
            self._sites[kind] = Peer(self._answering[kind], valid=self._valid)
        return self._sites[kind]

    def site_at(self, kind: str, url: str) -> Site:
        assert urlsplit(url).hostname == HOST
        return Below(self.site(kind), urlsplit(url).path)

    def url(self, kind: str) -> str:
        if kind not in self._servers:
            self.site(kind)
            server = make_server("127.0.0.1", 0, self._answering[kind], threaded=True, request_handler=_Quiet)
            threading.Thread(target=server.serve_forever, name=f"suite-{kind}", daemon=True).start()
            self._servers[kind] = server
        return f"http://127.0.0.1:{self._servers[kind].port}"

    @contextmanager
    def logs(self) -> Iterator[list[str]]:
        records: list[str] = []
        handler = _Collecting(records)
        root, level = logging.getLogger(), logging.getLogger("a2a_sync").level
        root.addHandler(handler)
        logging.getLogger("a2a_sync").setLevel(logging.DEBUG)
        try:
            yield records
        finally:
            root.removeHandler(handler)
            logging.getLogger("a2a_sync").setLevel(level)

    def client(self, target: Any, **options: Any) -> Client:
        return self._variant.client(target, **options)

    def receiver(self, **options: Any) -> WebhookReceiver:
        return WebhookReceiver(**options)

    def close(self) -> None:
        for port, site, app in self._grpc.values():
            site.close()
            port.close(timeout=0)
            app.close(timeout=0)
        for server in self._servers.values():
            server.shutdown()
            server.server_close()
        for app in self._apps.values():
            app.close(timeout=0)
