"""Which URLs a server may call because somebody else says so: webhooks, key sets, cards (spec 13.2, 14.1.1).

A peer that names a URL makes this server send a request from inside its own network. So what is private, reserved or
written in a misleading way is refused, twice: by its text when it is handed in (`URLGuard.check`, no network is used), and by
its addresses when a connection is made (`URLGuard.addresses`; only what it gives is ever connected to, see `outbound`). What a
name resolved to in between therefore does not matter. This room makes no connection.
"""

from __future__ import annotations

import copy
import ipaddress
import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from a2a_sync import urls
from a2a_sync.errors import UnsafeURLError

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
#: As `socket.getaddrinfo`.
Resolver: TypeAlias = Callable[..., Iterable[tuple[Any, Any, int, str, Any]]]

_MAX_LENGTH = 2048
#: What an operator can do about a private host.
_PERMIT = "URLGuard(allow=['the host']) permits it"
#: Names that mean something inside a network only (RFC 6761, 6762, 8375 and custom).
_LOCAL = (".localhost", ".localdomain", ".local", ".internal", ".intranet", ".private", ".corp", ".lan", ".home.arpa")

_PRIVATE_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # public by its number, and the host of every virtual machine in Azure
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)
#: The only IPv6 addresses that are routed everywhere, and those among them that are not.
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_PRIVATE_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4 = ipaddress.IPv6Network("2002::/16")
#: The middle of an interface id that holds an IPv4 address (ISATAP, RFC 5214).
_ISATAP = (0x00005EFE, 0x02005EFE)


class Address(NamedTuple):
    """Where to connect to: what `socket.socket` and `socket.socket.connect` take."""

    family: int
    kind: int
    protocol: int
    sockaddr: Any


class URLGuard:
    """Judges the URLs that a server is asked to call. Safe from many threads.

    Parameters:
        allow: what may be called though it is private: host names (``hooks.internal``; ``*.hooks.internal`` for all below
            it), addresses and networks (``10.2.0.0/16``). An allowed name may have any address.
        deny: what may not be called though it is public, in the same forms: addresses of your own, for example.
        schemes: ``("https",)`` refuses unencrypted calls.
        ports: the only ports that may be called; None: all.
        resolve: stands in for `socket.getaddrinfo`.

    Raises:
        ValueError: an entry that is neither a name nor a network.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        *,
        deny: Iterable[str] = (),
        schemes: Iterable[str] = ("https", "http"),
        ports: Iterable[int] | None = None,
        resolve: Resolver | None = None,
    ) -> None:
        self._allowed = _Places(allow)
        self._denied = _Places(deny)
        self._schemes = frozenset(schemes)
        self._ports = None if ports is None else frozenset(ports)
        self._resolve = resolve
        #: Host and port of what is called in any case.
        self._trusted: frozenset[tuple[str, int]] = frozenset()

    def check(self, url: str) -> None:
        """See that the text of `url` names nothing that may not be called. A name is not looked up: see `addresses`.

        Raises:
            UnsafeURLError: it does, or it is written in a way that two readers may understand differently.
        """
        if not isinstance(url, str) or len(url) > _MAX_LENGTH:
            raise UnsafeURLError(f"must be text of at most {_MAX_LENGTH} characters")
        read = urls.parse(url)
        if read.scheme not in self._schemes:
            raise UnsafeURLError(f"must begin with {' or '.join(f'{one}://' for one in sorted(self._schemes))}")
        if (read.host, read.port) not in self._trusted:
            self._check_port(read.port)
            self._check_host(_normal(read.host))

    def trusting(self, *named: str) -> URLGuard:
        """This guard, which lets URLs through besides that have the host and port of one of those `named`.

        Raises:
            UnsafeURLError: one of them cannot be read.
        """
        other = copy.copy(self)
        other._trusted = self._trusted | {urls.parse(url).origin[1:] for url in named}
        return other

    def addresses(self, host: str, port: int) -> list[Address]:
        """Look `host` up: where a connection to it may go. Blocks as long as the resolver does.

        Raises:
            UnsafeURLError: the host, or one of its addresses, may not be called.
            OSError: it has no address.
        """
        trusted = (host.strip("[]").lower(), port) in self._trusted
        if not trusted:
            self._check_port(port)
        host = _normal(host)
        anywhere = not trusted and self._check_host(host)
        found = (self._resolve or socket.getaddrinfo)(host, port, 0, socket.SOCK_STREAM)
        addresses = [Address(family, kind, protocol, sockaddr) for family, kind, protocol, _, sockaddr in found]
        for address in () if trusted else addresses:
            # One bad address among good ones is the sign of a name made for this.
            self._check_address(_address(address.sockaddr[0]), named=anywhere)
        if not addresses:
            raise OSError("the host has no address")
        return addresses

    def _check_port(self, port: int) -> None:
        if not 0 < port < 65536 or (self._ports is not None and port not in self._ports):
            raise UnsafeURLError("names a port that may not be called")

    def _check_host(self, host: str) -> bool:
        """See that the name, or the address that it is, may be called; True where it is allowed by its name."""
        address = urls.literal(host)
        if address is not None:
            self._check_address(_unmapped(address))
            return False
        if self._denied.name(host):
            raise UnsafeURLError("names a host that may not be called")
        if self._allowed.name(host):
            return True
        if "." not in host or f".{host}".endswith(_LOCAL):
            raise UnsafeURLError("names a host of a private network", hint=_PERMIT)
        return False

    def _check_address(self, address: IPAddress, *, named: bool = False) -> None:
        if any(map(self._denied.address, (address, *_within(address)))):
            raise UnsafeURLError("leads to an address that may not be called")
        if not named and is_private(address) and not self._allowed.address(address):
            raise UnsafeURLError("leads to an address that is private or reserved", hint=_PERMIT)


class _Places:
    """Host names and networks, as a deployer lists them."""

    def __init__(self, entries: Iterable[str]) -> None:
        if isinstance(entries, str):
            raise TypeError("give a list of hosts and networks, not one string")
        self._networks: list[IPNetwork] = []
        self._names: set[str] = set()
        self._ends: list[str] = []
        for entry in entries:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            return
        except ValueError:
            pass
        name = entry.removeprefix("*.")
        if not urls.is_name(name) or name.endswith("."):
            raise ValueError(f"{entry!r} is neither a host name nor an address nor a network")
        if name == entry:
            self._names.add(name)
        else:
            self._ends.append("." + name)

    def name(self, host: str) -> bool:
        """`host` is listed by its name."""
        return host in self._names or any(map(host.endswith, self._ends))

    def address(self, address: IPAddress) -> bool:
        """`address` is in a network that is listed."""
        return any(address.version == network.version and address in network for network in self._networks)


def is_private(address: IPAddress) -> bool:
    """`address` is not one that belongs to a single host of the public internet, however it is wrapped up."""
    if isinstance(address, ipaddress.IPv4Address):
        return any(address in network for network in _PRIVATE_V4)
    inside = _within(address)
    if any(map(is_private, inside)):
        return True
    if inside and address in _NAT64:
        return False
    return address not in _PUBLIC_V6 or any(address in network for network in _PRIVATE_V6)


def _within(address: IPAddress) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that packets to an IPv6 address may end at."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    number = int(address)
    if address in _6TO4:
        return [ipaddress.IPv4Address(number >> 80 & 0xFFFFFFFF)]
    # Translated and compatible ones have it at their end, as has the well-known prefix of NAT64.
    if number >> 64 == 0 or address in _NAT64 or number >> 32 & 0xFFFFFFFF in _ISATAP:
        return [ipaddress.IPv4Address(number & 0xFFFFFFFF)]
    return []


def _normal(host: str) -> str:
    return host.strip("[]").lower().removesuffix(".")


def _address(text: str) -> IPAddress:
    try:
        return _unmapped(ipaddress.ip_address(text))
    except ValueError:
        raise UnsafeURLError("leads to an address that cannot be understood") from None


def _unmapped(address: IPAddress) -> IPAddress:
    """The IPv4 address that an IPv6 address maps: to the system the two are one and the same."""
    return getattr(address, "ipv4_mapped", None) or address
