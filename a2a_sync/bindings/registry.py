"""The bindings of the protocol: one row for each, read by the app, by the card and by the client.

A row names the modules of both halves by text, so that a client loads no server and a server no client. A binding is added
by its modules and one row: `BINDINGS` is a plain dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from a2a_sync.codec import VERSIONS


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding: a way to carry calls.

    Attributes:
        name: as cards have it (spec 8.3), in upper case.
        service: ``"module:class"`` of the server's half, called with the endpoint of an app, its codecs by version and its
            `HTTPOptions`; the contract is `a2a_sync.wsgi.exchange.BindingService`.
        endpoint: ``"module:class"`` of the client's half, a `WireEndpoint`, called with the transport, the URL of an
            interface and its codec.
        interface_url: makes the URL of the interface, given the URL of the app with a slash at its end.
    """

    name: str
    service: str
    endpoint: str
    interface_url: Callable[[str], str] = str

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
    )
}


def supported() -> list[tuple[str, str]]:
    """Every binding and protocol version that this library speaks, as (binding, version): the newest version first."""
    return [(binding, version) for version in VERSIONS for binding in BINDINGS]
