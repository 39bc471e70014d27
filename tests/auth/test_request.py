"""`AuthRequest`: every authenticator reads it alone, so that a transport without WSGI can use them all."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from a2a_sync.auth.admission import Admission
from a2a_sync.auth.policy import Authenticator, FrameworkAuth
from a2a_sync.auth.request import AuthRequest, PeerCertificate
from a2a_sync.auth.schemes import ApiKeyAuth, BasicAuth, BearerAuth, MTLSAuth
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.operations import Principal

BASIC = "Basic " + base64.b64encode(b"ada:pw").decode()


@pytest.mark.parametrize(
    ("auth", "request_"),
    [
        (BearerAuth({"t": "ada"}), AuthRequest({"authorization": "Bearer t"})),
        (ApiKeyAuth({"k": "ada"}, header="X-Key"), AuthRequest({"x-key": "k"})),
        (ApiKeyAuth({"k": "ada"}, query="key"), AuthRequest({}, query_string="a=1&key=k")),
        (ApiKeyAuth({"k": "ada"}, cookie="key"), AuthRequest({"cookie": 'a=1; key="k"'})),
        (BasicAuth({"ada": "pw"}), AuthRequest({"authorization": BASIC})),
        (FrameworkAuth(), AuthRequest({}, principal="ada")),
        (MTLSAuth(), AuthRequest({}, certificate=lambda: PeerCertificate("ada"))),
        (MTLSAuth(header="X-Subject"), AuthRequest({"x-subject": "ada"}, connection_address="127.0.0.1")),
    ],
    ids=lambda value: value.name if isinstance(value, Authenticator) else "",
)
def test_an_authenticator_needs_no_environ(auth: Authenticator, request_: AuthRequest) -> None:
    assert Admission(auth).authenticate(request_).id == "ada"
    with pytest.raises(UnauthenticatedError):
        Admission(auth).authenticate(AuthRequest({}))


def test_a_function_reads_the_request() -> None:
    def by_address(request: AuthRequest) -> Principal | None:
        return Principal(id="near") if request.peer_address.startswith("10.") else None

    assert Admission(by_address).authenticate(AuthRequest({}, peer_address="10.0.0.7")).id == "near"
    with pytest.raises(UnauthenticatedError):
        Admission(by_address).authenticate(AuthRequest({}, peer_address="192.0.2.1"))


def test_all_values_of_a_parameter_and_of_a_cookie_are_kept_in_order() -> None:
    request = AuthRequest({"cookie": "a=1; b=2;a=3"}, query_string="x=1&y=&x=2")
    assert request.query == {"x": ["1", "2"], "y": [""]}
    assert request.cookies == {"a": ["1", "3"], "b": ["2"]}


def test_a_header_with_very_many_cookies_counts_as_none() -> None:
    assert AuthRequest({"cookie": "key=k" + "; a=b" * 199}).cookies["key"] == ["k"]
    assert AuthRequest({"cookie": "key=k" + "; a=b" * 200}).cookies == {}
    assert AuthRequest({"cookie": "key=k" + ";" * 50_000}).cookies == {}


def test_the_certificate_is_asked_for_once_and_only_when_it_is_read() -> None:
    asked: list[int] = []

    def certificate() -> PeerCertificate | None:
        asked.append(1)
        return None

    request = AuthRequest({}, certificate=certificate)
    assert not asked
    assert request.peer_certificate is request.peer_certificate is None
    assert asked == [1]


def test_the_address_of_the_connection_is_that_of_the_caller_where_no_other_is_given() -> None:
    assert AuthRequest({}, peer_address="192.0.2.1").connection_address == "192.0.2.1"
    assert AuthRequest({}, peer_address="192.0.2.1", connection_address="127.0.0.1").connection_address == "127.0.0.1"


@pytest.mark.parametrize("secrets", [{"authorization": "Bearer s3cret"}, {"cookie": "key=s3cret"}])
def test_a_repr_shows_no_secret(secrets: dict[str, Any]) -> None:
    request = AuthRequest(secrets, query_string="key=s3cret", peer_address="192.0.2.1")
    assert "s3cret" not in repr(request)
    assert "192.0.2.1" in repr(request)
