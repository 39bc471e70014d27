"""What the guard refuses, by its text and by its addresses. No connection is made here; see `test_http`."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from a2a_sync.errors import UnsafeURLError
from a2a_sync.outbound.urlguard import URLGuard, is_private

HOSTILE = [
    # loopback, plainly and by its names
    "http://127.0.0.1/",
    "http://127.0.0.1:8080/hook",
    "http://127.255.255.254/",
    "http://localhost/",
    "http://LOCALHOST./",
    "https://api.localhost/",
    "http://localhost.localdomain/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://0.0.0.0/",
    "http://[::]/",
    # the same in the forms that resolvers understand
    "http://0/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://127.0.0.01/",
    "http://127.0.0.1./",
    "http://127.0.0.0x1/",
    "http://127.0.0.256/",
    "http://1.2.3.4.5/",
    "http://4294967297/",
    "http://12\N{FULLWIDTH DIGIT SEVEN}.0.0.1/",
    "http://127\N{IDEOGRAPHIC FULL STOP}0\N{IDEOGRAPHIC FULL STOP}0\N{IDEOGRAPHIC FULL STOP}1/",
    "http://\N{CIRCLED LATIN SMALL LETTER L}ocalhost/",
    "http://127%2e0%2e0%2e1/",
    "http://%6c%6f%63alhost/",
    # private, link-local, shared, reserved
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.1.1/",
    "http://100.64.0.1/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.7/",
    "http://203.0.113.9/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[fc00::1]/",
    "http://[fd12:3456::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[2001::1]/",
    "http://[3fff::1]/",
    "http://[100::1]/",
    # metadata of clouds
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://[::ffff:169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    # IPv4 inside of IPv6
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a00:1]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a00:1::1]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[2a01:4f8::5efe:10.0.0.1]/",
    "http://[2a01:4f8::200:5efe:7f00:1]/",
    # names of a private network
    "http://intranet/",
    "http://db.internal/",
    "http://printer.local/",
    "http://router.home.arpa/",
    "http://kubernetes.default.svc.cluster.local/",
    # credentials, and hosts that two readers see differently
    "http://user:secret@hooks.example.com/",
    "http://user@hooks.example.com/",
    "http://hooks.example.com@127.0.0.1/",
    "http://127.0.0.1:80@hooks.example.com/",
    "http://hooks.example.com\\@127.0.0.1/",
    "http://127.0.0.1\\.hooks.example.com/",
    "http://hooks.example.com#@127.0.0.1/\n",
    "http://hooks.example.com/\r\nHost: localhost",
    "http://hooks.example.com /",
    "\thttp://hooks.example.com/",
    "http://hooks.example.com\x00.evil.example/",
    "http://hooks..example.com/",
    "http://.hooks.example.com/",
    "http://-hooks.example.com/",
    "http://[hooks.example.com]/",
    "http://[::1/",
    "http://::1/",
    "http://hooks.example.com:http/",
    "http://hooks.example.com:/",
    "http://hooks.example.com:0/",
    "http://hooks.example.com:65536/",
    "http://hooks.example.com:80:90/",
    "http://:80/",
    "http:///hook",
    "http:hooks.example.com",
    "//hooks.example.com/",
    "hooks.example.com",
    "",
    # schemes
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "gopher://hooks.example.com:70/_",
    "javascript:alert(1)",
    "data:text/plain,hi",
    "unix:///var/run/docker.sock",
    "http+unix://%2fvar%2frun%2fdocker.sock/",
    "ws://hooks.example.com/",
    "jar:http://hooks.example.com!/",
    "https://" + "a" * 2050 + ".example.com/",
]
GOOD = [
    "https://hooks.example.com/a2a",
    "http://hooks.example.com",
    "HTTPS://Hooks.Example.COM.:8443/a?token=x%2Fy#z",
    "https://xn--bcher-kva.example/",
    "https://a_b.example.com/",
    "https://1password.com/",
    "https://10.example.com/",
    "https://8.8.8.8/",
    "https://172.32.0.1/",
    "https://100.128.0.1/",
    "https://[2606:4700::1111]/",
    "https://[64:ff9b::808:808]/",
    "https://[2002:808:808::1]/",
    "https://hooks.example.com/?next=http://127.0.0.1/",
    "https://hooks.example.com/@user",
]


def resolving(*addresses: str) -> Any:
    """A name server that has these addresses for every name."""

    def resolve(host: str, port: int, *_: object) -> list[Any]:
        found: list[Any] = []
        for address in addresses:
            family, rest = (socket.AF_INET6, (0, 0)) if ":" in address else (socket.AF_INET, ())
            found.append((family, socket.SOCK_STREAM, 6, "", (address, port, *rest)))
        return found

    return resolve


def unused_resolver(*question: object) -> Any:
    raise AssertionError(f"a name server was asked for {question}")


def refusal(guard: URLGuard, url: str) -> str:
    with pytest.raises(UnsafeURLError) as caught:
        guard.check(url)
    return str(caught.value)


@pytest.mark.parametrize("url", HOSTILE, ids=ascii)
def test_a_hostile_url_is_refused_by_its_text(url: str) -> None:
    said = refusal(URLGuard(resolve=unused_resolver), url)

    assert not any(part in said for part in ("example", "127", "169", "secret")), "what is refused is not repeated"


def test_there_are_enough_hostile_urls_and_none_twice() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 60


@pytest.mark.parametrize("url", GOOD)
def test_an_ordinary_url_passes_without_being_looked_up(url: str) -> None:
    URLGuard(resolve=unused_resolver).check(url)


@pytest.mark.parametrize("url", [7, None, b"https://hooks.example.com/"])
def test_what_is_no_text_is_refused(url: Any) -> None:
    assert "must be text" in refusal(URLGuard(), url)


# -- addresses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0", "::1", "fe80::1%1", "::ffff:10.0.0.1", "64:ff9b::7f00:1"],
)
def test_a_name_that_leads_to_a_private_address_is_refused(address: str) -> None:
    guard = URLGuard(resolve=resolving(address))
    guard.check("https://hooks.example.com/")

    with pytest.raises(UnsafeURLError, match="private or reserved"):
        guard.addresses("hooks.example.com", 443)


def test_one_bad_address_among_good_ones_is_enough() -> None:
    guard = URLGuard(resolve=resolving("8.8.8.8", "2606:4700::1111", "192.168.0.1"))

    with pytest.raises(UnsafeURLError):
        guard.addresses("hooks.example.com", 443)


def test_the_addresses_are_those_that_were_judged() -> None:
    guard = URLGuard(resolve=resolving("8.8.8.8", "2606:4700::1111"))

    assert [one.sockaddr for one in guard.addresses("hooks.example.com", 443)] == [
        ("8.8.8.8", 443),
        ("2606:4700::1111", 443, 0, 0),
    ]


def test_the_name_is_judged_again_with_its_addresses() -> None:
    guard = URLGuard(resolve=unused_resolver)

    for host in ("localhost", "0x7f.1", "[::1]", "db.internal"):
        with pytest.raises(UnsafeURLError):
            guard.addresses(host, 80)


def test_a_name_without_an_address_is_an_ordinary_failure() -> None:
    with pytest.raises(OSError, match="no address"):
        URLGuard(resolve=resolving()).addresses("hooks.example.com", 443)


def test_the_systems_own_resolver_is_asked_by_default() -> None:
    found = URLGuard(["localhost"]).addresses("localhost", 80)

    assert {one.sockaddr[0] for one in found} <= {"127.0.0.1", "::1"}
    assert found


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.0.0.1", "223.255.255.255", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_public_addresses_pass(address: str) -> None:
    assert not is_private(ipaddress.ip_address(address))


def test_whatever_python_calls_private_is_private() -> None:
    special = [
        *("0.1.2.3", "10.0.0.1", "100.64.1.1", "127.1.1.1", "169.254.0.1", "172.20.0.1", "192.0.0.1", "192.0.2.2"),
        *("192.168.3.4", "198.19.0.1", "198.51.100.1", "203.0.113.1", "240.1.1.1", "255.255.255.255", "::", "::1"),
        *("::ffff:1.2.3.4", "100::1", "2001::1", "2001:2::1", "2001:db8::1", "fc00::1", "fe80::1", "fec0::1"),
    ]

    assert all(is_private(ipaddress.ip_address(one)) for one in special)


# -- what the deployer says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        (["127.0.0.1"], "http://127.0.0.1:9000/hook"),
        (["10.2.0.0/16"], "http://10.2.255.1/"),
        (["::1"], "http://[::1]/"),
        (["fd00::/8"], "http://[fd00::1]/"),
        (["localhost"], "http://LocalHost/"),
        (["keycloak"], "http://keycloak:8080/certs"),
        (["*.internal"], "https://a.b.internal/"),
    ],
)
def test_what_is_allowed_passes(allow: list[str], url: str) -> None:
    URLGuard(allow).check(url)


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        (["127.0.0.1"], "http://127.0.0.2/"),
        (["127.0.0.1"], "http://localhost/"),
        (["127.0.0.1"], "http://[fd00::5efe:127.0.0.1]/"),
        (["127.0.0.1"], "http://2130706433/"),
        (["localhost"], "http://127.0.0.1/"),
        (["*.internal"], "http://internal/"),
        (["a.internal"], "http://b.a.internal/"),
        (["a.internal"], "http://xa.internal/"),
    ],
)
def test_nothing_beside_what_is_allowed_passes(allow: list[str], url: str) -> None:
    refusal(URLGuard(allow), url)


def test_an_allowed_name_may_have_any_address_and_another_name_may_not() -> None:
    guard = URLGuard(["hooks.internal"], resolve=resolving("10.0.0.1"))

    assert guard.addresses("hooks.internal", 80)
    with pytest.raises(UnsafeURLError):
        guard.addresses("hooks.example.com", 80)


def test_an_allowed_network_is_allowed_for_every_name() -> None:
    assert URLGuard(["10.0.0.0/8"], resolve=resolving("10.0.0.1")).addresses("hooks.example.com", 80)


def test_public_addresses_can_be_denied_also_inside_of_others_and_to_allowed_names() -> None:
    guard = URLGuard(["ours.example.com"], deny=["8.8.8.0/24", "*.evil.example"], resolve=resolving("8.8.8.8"))

    refusal(guard, "https://8.8.8.8/")
    refusal(guard, "https://[64:ff9b::808:808]/")
    refusal(guard, "https://x.evil.example/")
    for host in ("hooks.example.com", "ours.example.com"):
        with pytest.raises(UnsafeURLError):
            guard.addresses(host, 443)


def test_schemes_and_ports_can_be_limited() -> None:
    guard = URLGuard(schemes=["https"], ports=[443, 8443])

    guard.check("https://hooks.example.com/")
    guard.check("https://hooks.example.com:8443/")
    assert refusal(guard, "http://hooks.example.com:443/") == "must begin with https://"
    assert "port" in refusal(guard, "https://hooks.example.com:22/")
    with pytest.raises(UnsafeURLError, match="port"):
        guard.addresses("hooks.example.com", 22)


@pytest.mark.parametrize(
    "entry", ["http://hooks.example.com", "hooks.example.com:80", "10.0.0.0/33", "0x7f.1", "*", ""]
)
def test_an_entry_that_means_nothing_is_refused_at_once(entry: str) -> None:
    with pytest.raises(ValueError, match="neither a host name"):
        URLGuard([entry])


def test_one_string_is_no_list_of_entries() -> None:
    with pytest.raises(TypeError):
        URLGuard("localhost")
