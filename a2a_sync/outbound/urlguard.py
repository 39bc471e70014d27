"""Which URLs named by peers a server may call: webhooks, key sets, cards (spec 13.2, 14.1.1).

A peer that names a URL makes this server send a request from inside its own network (server-side request forgery). So private,
reserved and ambiguous hosts are refused twice: by the text of the URL when it is received (`URLGuard.check`, without a network),
and by the addresses when a connection is made (`URLGuard.addresses`). Connections are made only to the addresses that were checked,
so a name that resolves differently later has no effect. This module makes no connection.
"""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

from a2a_sync import urls
from a2a_sync.errors import UnsafeURLError
from a2a_sync.outbound.resolver import Address, Resolver, look_up

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_LENGTH = 2048
#: How an operator can allow a private host.
_PERMIT = "URLGuard(allow=['the host']) permits it"
#: Names of private networks (RFC 6761, 6762, 8375 and custom).
_LOCAL = (".localhost", ".localdomain", ".local", ".internal", ".intranet", ".private", ".corp", ".lan", ".home.arpa")

_PRIVATE_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # a public address, and the host of every virtual machine in Azure
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
#: The globally routed IPv6 addresses, and the ranges among them that are not.
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_PRIVATE_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4 = ipaddress.IPv6Network("2002::/16")
#: The middle of an interface id that contains an IPv4 address (ISATAP, RFC 5214).
_ISATAP = (0x00005EFE, 0x02005EFE)


class URLGuard:
    """Checks the URLs that peers ask a server to call. Safe from many threads.

    Parameters:
        allow: private hosts that may be called: names (``hooks.internal``; ``*.hooks.internal`` for all below it), addresses and
            networks (``10.2.0.0/16``). An allowed name may have any address.
        deny: public hosts that may not be called, in the same forms; for example addresses of your own.
        schemes: ``("https",)`` refuses unencrypted calls.
        ports: the only ports that may be called; None allows all.
        resolve: used in place of `socket.getaddrinfo`.

    Raises:
        ValueError: an entry is neither a name nor an address nor a network.
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
        self._allowed = AddressRules(allow)
        self._denied = AddressRules(deny)
        self._schemes = frozenset(schemes)
        self._ports = None if ports is None else frozenset(ports)
        self._resolve = resolve
        #: Hosts and ports that are always allowed.
        self._trusted: frozenset[tuple[str, int]] = frozenset()

    def check(self, url: str) -> None:
        """Check the text of `url`. A name is not resolved; see `addresses`.

        Raises:
            UnsafeURLError: the URL may not be called, or two parsers may read it differently.
        """
        if not isinstance(url, str) or len(url) > _MAX_LENGTH:
            raise UnsafeURLError(f"must be text of at most {_MAX_LENGTH} characters")
        read = urls.parse(url)
        if read.scheme not in self._schemes:
            raise UnsafeURLError(f"must begin with {' or '.join(f'{one}://' for one in sorted(self._schemes))}")
        if (read.host, read.port) not in self._trusted:
            self._check_port(read.port)
            self._check_host(_normalize(read.host))

    def trusting(self, *named: str) -> URLGuard:
        """A copy of this guard that also allows the hosts and ports of the URLs `named`.

        Raises:
            UnsafeURLError: one of them cannot be parsed.
        """
        other = copy.copy(self)
        other._trusted = self._trusted | {urls.parse(url).origin[1:] for url in named}
        return other

    def addresses(self, host: str, port: int, timeout: float | None = None) -> list[Address]:
        """Resolve `host`: the addresses to which a connection may be made. Blocks for at most `timeout` seconds, if it is given.

        Raises:
            UnsafeURLError: the host or one of its addresses may not be called.
            OSError: the host has no address, or its name was not resolved in time (`TimeoutError`).
        """
        trusted = (host.strip("[]").lower(), port) in self._trusted
        if not trusted:
            self._check_port(port)
        host = _normalize(host)
        anywhere = not trusted and self._check_host(host)
        addresses = look_up(host, port, timeout, self._resolve)
        for address in () if trusted else addresses:
            # One private address among public ones is the sign of an attack.
            self._check_address(_parse_address(address.sockaddr[0]), named=anywhere)
        return addresses

    def _check_port(self, port: int) -> None:
        if not 0 < port < 65536 or (self._ports is not None and port not in self._ports):
            raise UnsafeURLError("names a port that may not be called")

    def _check_host(self, host: str) -> bool:
        """Check a name or an address literal; True if the host is allowed by its name."""
        address = urls.literal(host)
        if address is not None:
            self._check_address(_unmapped(address))
            return False
        if self._denied.matches_name(host):
            raise UnsafeURLError("names a host that may not be called")
        if self._allowed.matches_name(host):
            return True
        if "." not in host or f".{host}".endswith(_LOCAL):
            raise UnsafeURLError("names a host of a private network", hint=_PERMIT)
        return False

    def _check_address(self, address: IPAddress, *, named: bool = False) -> None:
        if any(map(self._denied.matches_address, (address, *_embedded_ipv4(address)))):
            raise UnsafeURLError("leads to an address that may not be called")
        if not named and is_private(address) and not self._allowed.matches_address(address):
            raise UnsafeURLError("leads to an address that is private or reserved", hint=_PERMIT)


class AddressRules:
    """A list of host names, addresses and networks."""

    def __init__(self, entries: Iterable[str]) -> None:
        if isinstance(entries, str):
            raise TypeError("give a list of hosts and networks, not one string")
        self._networks: list[IPNetwork] = []
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        for entry in entries:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        with suppress(ValueError):
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            return
        name = entry.removeprefix("*.")
        if not urls.is_name(name) or name.endswith("."):
            raise ValueError(f"{entry!r} is neither a host name nor an address nor a network")
        if name == entry:
            self._names.add(name)
        else:
            self._suffixes.append("." + name)

    def matches_name(self, host: str) -> bool:
        """`host` is listed by its name."""
        return host in self._names or any(map(host.endswith, self._suffixes))

    def matches_address(self, address: IPAddress) -> bool:
        """`address` is in a listed network."""
        return any(address.version == network.version and address in network for network in self._networks)


def is_private(address: IPAddress) -> bool:
    """`address` is not the public address of one host, in any of the forms that embed an IPv4 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return any(address in network for network in _PRIVATE_V4)
    inside = _embedded_ipv4(address)
    if any(map(is_private, inside)):
        return True
    if inside and address in _NAT64:
        return False
    return address not in _PUBLIC_V6 or any(address in network for network in _PRIVATE_V6)


def _embedded_ipv4(address: IPAddress) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that packets to an IPv6 address may be delivered to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    number = int(address)
    if address in _6TO4:
        return [ipaddress.IPv4Address(number >> 80 & 0xFFFFFFFF)]
    # Translated and compatible addresses have it at their end, as does the well-known prefix of NAT64.
    if number >> 64 == 0 or address in _NAT64 or number >> 32 & 0xFFFFFFFF in _ISATAP:
        return [ipaddress.IPv4Address(number & 0xFFFFFFFF)]
    return []


def _normalize(host: str) -> str:
    return host.strip("[]").lower().removesuffix(".")


def _parse_address(text: str) -> IPAddress:
    try:
        return _unmapped(ipaddress.ip_address(text))
    except ValueError:
        raise UnsafeURLError("leads to an address that cannot be parsed") from None


def _unmapped(address: IPAddress) -> IPAddress:
    """The IPv4 address that an IPv6 address maps, which the system treats as the same."""
    return getattr(address, "ipv4_mapped", None) or address
