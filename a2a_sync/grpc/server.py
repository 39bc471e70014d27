"""`GRPCServer`: the gRPC port of an app or a host, with the lifecycle of a component."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

import grpc

from a2a_sync.bindings import protobuf
from a2a_sync.card import AgentInterface
from a2a_sync.concurrency.gevent import patched
from a2a_sync.engine.components import Component
from a2a_sync.grpc.arrivals import WINDOW
from a2a_sync.grpc.calls import Agents, Methods
from a2a_sync.grpc.health import health_handler
from a2a_sync.grpc.streams import Sender
from a2a_sync.grpc.threads import CallThreads
from a2a_sync.multiagent.host import AgentHost
from a2a_sync.server.responses import return_freed_memory
from a2a_sync.server.service import AgentService
from a2a_sync.wsgi.app import A2AApp
from a2a_sync.wsgi.pages import host_name, is_loopback

#: Bytes of a message besides the content that `Limits` counts.
_OVERHEAD = 64 * 1024
#: Most bytes of the metadata of a call.
_MAX_METADATA = 16 * 1024
#: Calls that wait for their turn.
_MAX_WAITING = 1000
#: Calls that have arrived and that no thread has seen.
_MAX_ARRIVED = 5_000
#: Clients that ping more often on a silent connection are disconnected, also where `Limits` has a longer interval.
_MIN_PING_INTERVAL = 10.0
#: Seconds in which calls that were cut leave their threads.
_CANCEL_SECONDS = 2.0
_FORKED = "this process was forked after the gRPC server had started: start the server in each process, after the fork"
_GEVENT = "gRPC cannot be served under gevent, because its threads do not yield to greenlets; serve it from a process with threads"


class TLS(NamedTuple):
    """The certificate of a `GRPCServer`.

    Parameters:
        certificate: a PEM file with the certificate and its chain.
        key: a PEM file with its private key.
        client_ca: a PEM file with the authorities of client certificates, which are required then; None: none is asked for.
    """

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str]
    client_ca: str | os.PathLike[str] | None = None

    def credentials(self) -> Any:
        """The credentials of a port.

        Raises:
            OSError: a file cannot be read.
        """
        pair = Path(self.key).read_bytes(), Path(self.certificate).read_bytes()
        if self.client_ca is None:
            return grpc.ssl_server_credentials([pair])
        return grpc.ssl_server_credentials([pair], Path(self.client_ca).read_bytes(), require_client_auth=True)


class GRPCServer(Component):
    """Serves an app or a host over gRPC, beside HTTP: one engine, one store, the same limits, callers and interceptors.

    The cards list the interface from now on. Nothing is opened before `start`, which is called in the process that serves, after a
    fork. Several processes can share the port (``SO_REUSEPORT``). Use it as a context manager::

        with GRPCServer(app, "127.0.0.1:50051") as server:
            server.wait()

    or let the app start, drain and close it, in each worker of gunicorn: ``app.register(GRPCServer(app))``.

    The agent of a host is named by the first part of the tenant, up to a slash, or by the metadata ``a2a-agent``.

    Parameters:
        site: an `A2AApp` or an `AgentHost`. It is started with the server, and not closed with it.
        address: ``host:port``; port 0 takes a free one, see `port`.
        tls: the certificate; without one the traffic is not encrypted.
        url: the address that the cards name; by default `address`, with ``grpcs://`` where there is a certificate.
        threads: calls at once; up to 1,000 wait for one, and further ones are refused with ``RESOURCE_EXHAUSTED``. Open streams
            and blocking sends that wait hold none; `Limits.max_open_streams` bounds these.
        reflection: lists the services and their messages for tools like grpcurl, to everyone who can connect. Needs
            grpcio-reflection.
        behind_proxy: only a proxy that limits the size of heads (nginx, Envoy) connects to the port. An address that other machines
            reach needs that, or `TLS.client_ca`: gRPC has no bound for the memory that heads of hostile clients take.

    Raises:
        ValueError: no protocol version that is served exists over gRPC; other machines reach the address, and there is
            neither `TLS.client_ca` nor `behind_proxy`; or an interceptor is a function, which `AgentHost.add` raises too from now on.
        RuntimeError: the process is patched by gevent.
        OSError: from `start`: the address cannot be bound, or a file of `tls` cannot be read.
    """

    def __init__(
        self,
        site: A2AApp | AgentHost,
        address: str = "127.0.0.1:50051",
        *,
        tls: TLS | None = None,
        url: str | None = None,
        threads: int = 32,
        reflection: bool = False,
        behind_proxy: bool = False,
    ) -> None:
        if patched():
            raise RuntimeError(_GEVENT)
        if not (behind_proxy or is_local(address) or (tls is not None and tls.client_ca is not None)):
            raise ValueError(
                f"GRPCServer: other machines reach {address}, and gRPC does not bound the memory that their clients take; set"
                " client_ca in tls=TLS(…), or behind_proxy=True where only a proxy (nginx, Envoy) connects, or use 127.0.0.1"
            )
        self._site = site
        self._address = address
        self._tls = tls
        self._threads = threads
        self._reflection = reflection
        #: The port that is served, after `start`.
        self.port: int = 0
        self._url = url or (address if tls is None else f"grpcs://{address}")
        self._server: Any = None
        #: Set while nothing is served: grpcio's own wait wakes up ten times a second.
        self._closed = threading.Event()
        self._closed.set()
        self._process = 0
        self._sender = Sender(site.limits)
        services = _services(site)
        for name, service in services.items():
            _check_interceptors(name, service)
        versions = {version for service in services.values() for _, version in service.interfaces}
        self._versions = [version for version in protobuf.SERVICES if version in versions]
        if not self._versions:
            raise ValueError(f"protocol_versions: gRPC needs one of {', '.join(protobuf.SERVICES)}")
        agents = Agents(lambda name: _services(site).get(name), lambda: [] if isinstance(site, A2AApp) else list(site))
        limits = site.limits
        self._call_threads = CallThreads(
            threads,
            waiting=_MAX_WAITING,
            message_bytes=limits.max_body_bytes,
            message_timeout=limits.body_timeout,
            metadata_bytes=2 * _MAX_METADATA,
        )
        self._methods = [
            Methods(version, agents, lambda: self._url, self._sender, self._call_threads) for version in self._versions
        ]
        if isinstance(site, AgentHost):
            site.on_add(lambda name, app: self._add(name, app.service))
        if not self._url.endswith(":0"):
            self._list_interfaces()

    def _add(self, name: str, service: AgentService) -> None:
        _check_interceptors(name, service)
        if not self._url.endswith(":0"):
            self._list_interface(name, service)

    def _list_interfaces(self) -> None:
        for name, service in _services(self._site).items():
            self._list_interface(name, service)

    def _list_interface(self, name: str, service: AgentService) -> None:
        own = {version for _, version in service.interfaces}
        service.cards.add_interfaces(
            AgentInterface(url=self._url, protocol_binding="GRPC", protocol_version=version, tenant=name)
            for version in self._versions
            # Protocol 0.3 has no tenants, so its cards cannot name an agent of a host.
            if version in own and not (name and version == "0.3")
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> bool:
        """Bind the port and serve. Idempotent in one process."""
        if self._server is not None:
            if self._process != os.getpid():
                raise RuntimeError(_FORKED)
            return True
        return_freed_memory()
        server = self._make_server()
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(self._address)
            else:
                self.port = server.add_secure_port(self._address, self._tls.credentials())
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen at {self._address}: {error}") from None
        if self._url.endswith(":0"):
            self._url = f"{self._url.rpartition(':')[0]}:{self.port}"
            self._list_interfaces()
        self._server, self._process = server, os.getpid()
        self._closed.clear()
        self._site.start()
        server.start()
        return True

    def _make_server(self) -> Any:
        limits = self._site.limits
        pong = int(min(limits.write_timeout, limits.stream_keepalive_interval) * 1000)
        ping = min(_MIN_PING_INTERVAL, limits.stream_keepalive_interval / 2)
        options = {
            "grpc.so_reuseport": 1,
            "grpc.max_allowed_incoming_connections": limits.max_connections,
            "grpc.max_connection_idle_ms": int(limits.connection_idle_timeout * 1000),
            "grpc.server_handshake_timeout_ms": int(limits.header_timeout * 1000),
            "grpc.http2.settings_timeout": int(limits.header_timeout * 1000),
            "grpc.max_receive_message_length": limits.max_body_bytes + _OVERHEAD,
            "grpc.max_send_message_length": -1,
            # So much is read of a message that is not asked for; gRPC raises it up to the whole message otherwise.
            "grpc.http2.lookahead_bytes": WINDOW,
            "grpc.http2.bdp_probe": 0,
            "grpc.max_metadata_size": _MAX_METADATA,
            "grpc.max_concurrent_streams": self._threads + limits.max_open_streams,
            # Beyond the first number gRPC cuts calls by chance, those of any client.
            "grpc.server.max_pending_requests": _MAX_ARRIVED,
            "grpc.server.max_pending_requests_hard_limit": 2 * _MAX_ARRIVED,
            "grpc.keepalive_time_ms": int(limits.stream_keepalive_interval * 1000),
            "grpc.keepalive_timeout_ms": pong,
            # The one that ends a connection which is half open: a minute otherwise, whatever the timeout above.
            "grpc.http2.ping_timeout_ms": pong,
            # Pings of an idle call find a connection that is half open.
            "grpc.http2.max_pings_without_data": 0,
            "grpc.http2.min_ping_interval_without_data_ms": int(ping * 1000),
        }
        return grpc.server(self._call_threads, self._handlers(), options=tuple(options.items()))

    def _handlers(self) -> list[Any]:
        handlers = [*(methods.handlers() for methods in self._methods), self._health()]
        if self._reflection:
            from a2a_sync.grpc.reflection import reflection_handler

            handlers.append(reflection_handler([protobuf.SERVICES[version] for version in self._versions]))
        return handlers

    def _health(self) -> Any:
        def not_ready_reason() -> str:
            return next(filter(None, (one.not_ready_reason() for one in _services(self._site).values())), "")

        return health_handler(
            [protobuf.SERVICES[version] for version in self._versions], not_ready_reason, self._call_threads
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Block until another thread has closed the server, or for `timeout` seconds; whether it is closed."""
        return self._closed.wait(timeout)

    def drain(self) -> None:
        """Accept no more connections and calls, so that clients go to another process."""
        if self._server is not None and self._process == os.getpid():
            self._server.stop(self._site.limits.max_stream_age)

    def close(self, timeout: float = 10.0) -> None:
        """`drain`, end the streams, whose clients resume, give calls `timeout` seconds, and cut the rest. The app continues."""
        server, self._server = self._server, None
        if server is not None and self._process == os.getpid():
            stopped = server.stop(timeout)
            self._sender.end()
            stopped.wait(timeout + _CANCEL_SECONDS)
        self._sender.close()
        self._call_threads.shutdown()
        self._closed.set()


def is_local(address: str) -> bool:
    """Only this machine reaches `address`: a loopback address, or a socket of Unix."""
    host = host_name(address)
    return host == "localhost" or is_loopback(host) or address.startswith(("unix:", "unix-abstract:"))


def _check_interceptors(agent: str, service: AgentService) -> None:
    for one in service.plain_interceptors:
        name = f"{one.__module__}.{getattr(one, '__qualname__', type(one).__qualname__)}"
        raise ValueError(
            f"GRPCServer: the interceptor {name}{agent and f' of the agent {agent!r}'} takes an endpoint, so each call that waits would"
            " keep a thread; write it as a generator with a2a_sync.operations.interceptor: result = yield call"
        )


def _services(site: A2AApp | AgentHost) -> dict[str, AgentService]:
    """The services of a site by the names of their agents; ``""`` is that of an app, or the root of a host."""
    if isinstance(site, A2AApp):
        return {"": site.service}
    found = {name: app.service for name, app in site.items()}
    return found if site.root is None else {"": found[site.root], **found}
