"""The bindings of the protocol: one row for each, read by the app, by the card and by the client.

A row names the modules of both halves by text, so that a client loads no server and a server no client. A binding is added
by its modules and one row: `BINDINGS` is a plain dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from a2a_sync import urls
from a2a_sync.codec import VERSIONS
from a2a_sync.concurrency.gevent import patched


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding: a way to carry calls.

    Attributes:
        name: as cards have it (spec 8.3), in upper case.
        service: ``"module:class"`` of the server's half, called with the endpoint of an app, its codecs by version and its
            `HTTPOptions`; the contract is `a2a_sync.wsgi.exchange.BindingService`. ``""`` for a binding that is not served over WSGI.
        endpoint: ``"module:class"`` of the client's half, a `WireEndpoint`, called with the transport, the URL of an
            interface and its codec.
        interface_url: makes the URL of the interface, given the URL of the app with a slash at its end.
        read_url: makes an absolute ``http`` or ``https`` URL of that of an interface, given the URL of the card.
        extra: the extra of this library that the client's half needs, which installs a module of that name; ``""``: none.
    """

    name: str
    service: str
    endpoint: str
    interface_url: Callable[[str], str] = str
    read_url: Callable[[str, str], str] = urls.join
    extra: str = ""

    @property
    def unavailable_reason(self) -> str:
        """Why the client's half cannot be used in this process; ``""`` when it can."""
        if not self.extra:
            return ""
        if patched():
            return f"{self.name} does not work in a process that gevent has patched"
        if self.extra not in sys.modules and find_spec(self.extra) is None:
            return f"{self.name} needs more packages: pip install 'a2a-sync[{self.extra}]'"
        return ""

    def load_service(self) -> Any:
        """The class of the server's half; imports its module."""
        return _load(self.service)

    def load_endpoint(self) -> Any:
        """The class of the client's half; imports its module."""
        return _load(self.endpoint)


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _without_slash(url: str) -> str:
    # The paths of HTTP+JSON begin with a slash, and many clients append them to the URL unchanged.
    return url.rstrip("/")


#: The schemes of addresses for gRPC, which has no URLs of its own, as those of HTTP: without and with encryption.
GRPC_SCHEMES = {"grpc": "http", "grpcs": "https"}


def _grpc_url(card_url: str, address: str) -> str:
    """``host:port`` is encrypted if the card's URL is."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = card_url.partition("://")[0] or "http", address
    return urls.join(card_url, f"{GRPC_SCHEMES.get(scheme.lower(), scheme)}://{rest}")


#: Every binding by its name, in the order in which clients prefer them where a card does not decide.
BINDINGS: dict[str, Binding] = {
    binding.name: binding
    for binding in (
        Binding("JSONRPC", "a2a_sync.wsgi.jsonrpc:JsonRpcService", "a2a_sync.client.jsonrpc:JsonRpcEndpoint"),
        Binding(
            "HTTP+JSON",
            "a2a_sync.wsgi.http_json:HttpJsonService",
            "a2a_sync.client.http_json:HttpJsonEndpoint",
            _without_slash,
        ),
        Binding("GRPC", "", "a2a_sync.client.grpc:GrpcEndpoint", read_url=_grpc_url, extra="grpc"),
    )
}


def supported() -> list[tuple[str, str]]:
    """Every binding and protocol version that this library speaks, as (binding, version): the newest version first."""
    return [(name, version) for version in VERSIONS for name in BINDINGS]
