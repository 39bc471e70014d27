"""Client certificates: from a TLS connection itself, from the server's variables, and from proxies that are believed."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography import x509
from cryptography.x509.oid import NameOID
from werkzeug.serving import make_server

from a2a_sync import A2AApp, Agent, AgentCard, Client, Limits, Message, RequestContext
from a2a_sync.auth.schemes import MTLSAuth
from a2a_sync.card import AgentInterface
from a2a_sync.errors import AgentError, CertificateRefusedError, ConnectError, TransportError
from a2a_sync.wsgi.options import HTTPOptions
from tests.auth.test_admission import Known, caller_of, served
from tests.certificates import Authority
from tests.wsgi import message


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@contextmanager
def serving(
    app: Any, authority: Authority, *, prepare: Callable[[ssl.SSLContext], object] | None = None
) -> Iterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
    context.load_cert_chain(*authority.issue("127.0.0.1", "localhost"))
    context.verify_mode = ssl.CERT_OPTIONAL
    if prepare is not None:
        prepare(context)
    server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=context)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


class Forever(Agent):
    """Streams until its task is canceled."""

    name = "forever"

    def handle_message(self, message: Message, context: RequestContext) -> Iterator[str]:
        while True:
            context.sleep(0.05)
            yield "more "


def trusting(authority: Authority, certificate: tuple[str, str] | None = None) -> requests.Session:
    session = requests.Session()
    # What the environment says of certificates would stand over this.
    session.trust_env = False
    session.verify, session.cert = authority.ca, certificate
    return session


def test_the_connection_says_whose_certificate_it_is(authority: Authority) -> None:
    certificate = authority.issue("ada", organization="Engines, Ltd")
    with A2AApp(Known(), auth=MTLSAuth()) as app, serving(app, authority) as url:
        with Client(url, session=trusting(authority)) as stranger, pytest.raises(AgentError) as refused:
            stranger.send("hi")
        with Client(url, session=trusting(authority, certificate)) as client:
            task = client.send("hi")

    assert refused.value.reason == "UNAUTHENTICATED"
    assert task.artifacts[0].parts[0].data["id"] == r"CN=ada,O=Engines\, Ltd"  # type: ignore[union-attr]


def said(expiry: datetime) -> str:
    return f"{expiry:%Y-%m-%d %H:%M:%S} UTC"


def require_certificates(server: ssl.SSLContext) -> None:
    server.verify_mode = ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        ("expired", "the agent refused the client certificate, which expired on {}: certificate expired"),
        ("revoked", "the agent refused the client certificate: certificate revoked"),
        ("unknown", "the agent refused the client certificate: unknown ca"),
        ("none", "the agent requires a client certificate"),
    ],
)
def test_a_refused_certificate_is_named_and_not_tried_again(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, refusal: str, text: str
) -> None:
    servers: list[ssl.SSLContext] = []
    with (
        A2AApp(Known(), auth=MTLSAuth()) as app,
        serving(app, authority, prepare=lambda server: (servers.append(server), require_certificates(server))) as url,
    ):
        certificates: dict[str, Callable[[], tuple[str, str] | None]] = {
            "expired": lambda: authority.issue("expired", days=-1),
            "revoked": lambda: authority.issue("revoked"),
            "unknown": lambda: Authority(tmp_path).issue("unknown"),
            "none": lambda: None,
        }
        certificate = certificates[refusal]()
        if refusal == "revoked" and certificate is not None:
            authority.revoke(certificate[0], servers[0])
        if refusal == "expired" and certificate is not None:
            text = text.format(said(authority.expiry(certificate[0])))
        caplog.set_level("INFO", "a2a_sync")
        # The server closes the connection before or after the request has been written.
        for _ in range(20):
            with Client(url, verify=authority.ca, cert=certificate) as client:
                with pytest.raises(CertificateRefusedError) as error:
                    client.get_task("t")
                assert error.value.message == text
        assert "retrying" not in caplog.text


def test_a_certificate_that_is_revoked_ends_a_stream_when_it_is_cut(authority: Authority) -> None:
    certificate = authority.issue("cut")
    servers: list[ssl.SSLContext] = []
    with (
        A2AApp(Forever(), auth=MTLSAuth(), limits=Limits(max_stream_age=0.4)) as app,
        serving(app, authority, prepare=servers.append) as url,
        Client(url, verify=authority.ca, cert=certificate) as client,
    ):
        stream = client.stream("go")
        next(iter(stream))
        authority.revoke(certificate[0], servers[0])
        with pytest.raises(CertificateRefusedError, match="certificate revoked") as error:
            list(stream)
        assert error.value.last_event_id == stream.last_event_id


def newest(tls: ssl.SSLContext) -> None:
    tls.minimum_version = ssl.TLSVersion.TLSv1_3


def before(tls: ssl.SSLContext) -> None:
    tls.maximum_version = ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("version", [newest, before], ids=["TLS 1.3", "TLS 1.2"])
def test_a_certificate_that_expires_is_refused_by_the_next_connection_and_not_by_an_open_stream(
    version: Callable[[ssl.SSLContext], None], authority: Authority
) -> None:
    certificate = authority.issue("brief", days=5 / 86400)
    expiry = authority.expiry(certificate[0])
    with (
        A2AApp(Forever(), auth=MTLSAuth()) as app,
        serving(app, authority, prepare=version) as url,
        Client(url, verify=authority.ca, cert=certificate) as client,
    ):
        events = iter(client.stream("go"))
        next(events)
        # The stream brings twenty events a second; a certificate is valid up to the end of its last second.
        while datetime.now(UTC) < expiry + timedelta(seconds=1):
            next(events)
        with pytest.raises(CertificateRefusedError) as error:
            client.get_task("t")
        assert error.value.message == (
            f"the agent refused the client certificate, which expired on {said(expiry)}: certificate expired"
        )
        next(events)
        # At the same paths, and for the same client.
        authority.issue("brief")
        assert client.list_tasks().tasks[0].state.value == "working"


@pytest.mark.parametrize("years", [1, 40])
def test_the_date_of_a_certificate_is_named_only_once_it_is_past(
    authority: Authority, years: int, tmp_path: Path
) -> None:
    # From 2050 on dates have four digits for the year.
    foreign = Authority(tmp_path).issue("later", days=years * 365)
    with (
        A2AApp(Known(), auth=MTLSAuth()) as app,
        serving(app, authority) as url,
        Client(url, verify=authority.ca, cert=foreign) as client,
        pytest.raises(CertificateRefusedError) as error,
    ):
        client.get_task("t")
    assert error.value.message == "the agent refused the client certificate: unknown ca"


CN, ORGANIZATION, UNIT = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
#: Subjects, as lists of their relative names, that look like others if written carelessly.
SUBJECTS = {
    "CN=ada,O=Example": [[(ORGANIZATION, "Example")], [(CN, "ada")]],
    "CN=ada+O=Example": [[(CN, "ada"), (ORGANIZATION, "Example")]],
    r"CN=ada\,O\=Example": [[(CN, "ada,O=Example")]],
    r"CN=ada\+O\=Example": [[(CN, "ada+O=Example")]],
    r"CN=\ ada\ ": [[(CN, " ada ")]],
    r"CN=\#ada": [[(CN, "#ada")]],
    r"CN=ada\0ACN\=bob": [[(CN, "ada\nCN=bob")]],
    r"CN=ada\\0A": [[(CN, "ada\\0A")]],
    "CN=ada,CN=eve": [[(CN, "eve")], [(CN, "ada")]],
    "OU=a,OU=b,CN=ada": [[(CN, "ada")], [(UNIT, "b")], [(UNIT, "a")]],
}


@pytest.mark.parametrize(("subject", "names"), SUBJECTS.items(), ids=SUBJECTS)
def test_no_two_subjects_are_one_caller(
    subject: str, names: list[list[tuple[x509.ObjectIdentifier, str]]], authority: Authority
) -> None:
    name = x509.Name(
        x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in relative]) for relative in names
    )
    certificate = authority.issue("subject", subject=name)
    with (
        A2AApp(Known(), auth=MTLSAuth()) as app,
        serving(app, authority) as url,
        Client(url, session=trusting(authority, certificate)) as client,
    ):
        assert client.send("hi").task.artifacts[0].parts[0].data["id"] == subject  # type: ignore[union-attr]


@pytest.mark.parametrize("foreign", [True, False], ids=["of another authority", "expired"])
def test_a_certificate_that_is_not_valid_is_refused(foreign: bool, authority: Authority, tmp_path: Path) -> None:
    issuer = Authority(tmp_path) if foreign else authority
    certificate = issuer.issue("mallory", days=1 if foreign else -1)
    with (
        A2AApp(Known(), auth=MTLSAuth()) as app,
        serving(app, authority) as url,
        Client(url, session=trusting(authority, certificate)) as client,
        pytest.raises(TransportError),
    ):
        client.send("hi")


@pytest.mark.parametrize("said", ["NONE", "FAILED:expired", "GENEROUS", ""])
def test_a_certificate_that_the_server_did_not_verify_is_none(said: str) -> None:
    with served(MTLSAuth()) as peer:
        environ = {"SSL_CLIENT_VERIFY": said, "SSL_CLIENT_S_DN": "CN=ada"}
        assert peer.call("SendMessage", message(), environ=environ).status == 401


BEHIND = {"X-Client-Subject": "CN=ada", "X-Client-Verify": "SUCCESS"}


def proxied(**options: Any) -> MTLSAuth:
    return MTLSAuth(header="X-Client-Subject", verified="X-Client-Verify", **options)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", ""])
def test_a_proxy_on_this_machine_is_believed(address: str) -> None:
    with served(proxied()) as peer:
        assert caller_of(peer, BEHIND, environ={"REMOTE_ADDR": address})["id"] == "CN=ada"


@pytest.mark.parametrize("address", ["10.0.0.7", "2001:db8::1", "unix:x"])
def test_no_other_proxy_is_trusted(address: str) -> None:
    with served(proxied()) as peer:
        assert peer.call("SendMessage", message(), headers=BEHIND, environ={"REMOTE_ADDR": address}).status == 401


def test_proxies_elsewhere_are_named() -> None:
    with served(proxied(proxies=["10.0.0.0/8"])) as peer:
        assert caller_of(peer, BEHIND, environ={"REMOTE_ADDR": "10.0.0.7"})["id"] == "CN=ada"
        assert peer.call("SendMessage", message(), headers=BEHIND, environ={"REMOTE_ADDR": "127.0.0.1"}).status == 401


def test_it_is_the_proxy_that_counts_and_not_the_forwarded_address() -> None:
    headers = {**BEHIND, "X-Forwarded-For": "127.0.0.1"}
    with served(proxied(), http=HTTPOptions(trusted_proxies=1)) as peer:
        assert peer.call("SendMessage", message(), headers=headers, environ={"REMOTE_ADDR": "10.0.0.7"}).status == 401
        headers["X-Forwarded-For"] = "8.8.8.8"
        assert caller_of(peer, headers, environ={"REMOTE_ADDR": "127.0.0.1"})["id"] == "CN=ada"


def test_a_placeholder_of_a_proxy_is_no_subject() -> None:
    """What Caddy sends of a client without a certificate."""
    headers = {"X-Client-Subject": "{http.request.tls.client.subject}"}
    with served(MTLSAuth(header="X-Client-Subject")) as peer:
        answer = peer.call("SendMessage", message(), headers=headers, environ={"REMOTE_ADDR": "127.0.0.1"})

    assert answer.status == 401


@pytest.mark.parametrize("headers", [{**BEHIND, "X-Client-Verify": "NONE"}, {"X-Client-Subject": "CN=ada"}, {}])
def test_a_proxy_says_that_it_has_verified(headers: dict[str, str]) -> None:
    with served(proxied()) as peer:
        answer = peer.call("SendMessage", message(), headers=headers, environ={"REMOTE_ADDR": "127.0.0.1"})

    assert answer.status == 401


def test_variables_of_the_server_do_not_stand_in_for_the_header_that_is_asked_for() -> None:
    with served(proxied()) as peer:
        environ = {"SSL_CLIENT_VERIFY": "SUCCESS", "SSL_CLIENT_S_DN": "CN=ada", "REMOTE_ADDR": "127.0.0.1"}
        assert peer.call("SendMessage", message(), environ=environ).status == 401


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_client_takes_verify_and_cert_as_requests_does(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    # The environment is ignored if the client has settings.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", requests.certs.where())
    certificate = authority.issue("eve")
    with A2AApp(Known(), auth=MTLSAuth()) as app, serving(app, authority) as url:
        for verify in (authority.ca, False):
            with Client(url, verify=verify, cert=certificate) as client:
                task = client.send("hi")
                assert task.artifacts[0].parts[0].data["id"] == "CN=eve"  # type: ignore[union-attr]
            with Client(url, verify=verify) as stranger, pytest.raises(AgentError) as refused:
                stranger.send("hi")
            assert refused.value.reason == "UNAUTHENTICATED"
        for distrusting in ({}, {"verify": True}):
            with Client(url, **distrusting) as client, pytest.raises(ConnectError, match="certificate"):  # type: ignore[arg-type]
                client.send("hi")


def test_a_certificate_is_shown_to_the_origin_that_was_named_and_no_other(authority: Authority) -> None:
    with A2AApp(Known(), auth=MTLSAuth()) as app, serving(app, authority) as url:
        elsewhere = url.replace("127.0.0.1", "localhost")
        card = AgentCard(
            name="x",
            description="",
            version="1",
            supported_interfaces=tuple(
                AgentInterface(url=one, protocol_binding="JSONRPC", protocol_version="1.0") for one in (elsewhere, url)
            ),
        )
        document = json.dumps(card.to_dict()).encode()

        def pointing(environ: Any, start_response: Any) -> Any:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [document]

        with (
            serving(pointing, authority) as home,
            Client(home, verify=authority.ca, cert=authority.issue("eve")) as client,
            pytest.raises(AgentError) as refused,
        ):
            client.send("hi")
    assert refused.value.reason == "UNAUTHENTICATED"


@pytest.mark.parametrize("given", [{"verify": "/no/such/file"}, {"cert": ("/no/such/file", "/none")}])
def test_a_file_of_certificates_that_is_not_there_is_named_at_once(given: Any) -> None:
    with pytest.raises(FileNotFoundError, match="/no/such/file"):
        Client("https://127.0.0.1:1/", **given)


def test_a_session_has_settings_of_its_own() -> None:
    with pytest.raises(ValueError, match="session"):
        Client("https://127.0.0.1:1/", session=requests.Session(), verify=False)
