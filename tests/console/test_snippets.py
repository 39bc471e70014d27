"""Commands that the pages show, executed: they send a message again, with the credentials that the agent's card requires."""

from __future__ import annotations

import html
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
from werkzeug.serving import make_server

from a2a_sync import A2AApp, Agent, Client, DataPart, FilePart, Message, RequestContext, TextPart, urls
from a2a_sync.auth import ApiKeyAuth, BasicAuth, BearerAuth
from a2a_sync.card import (
    AgentCard,
    AgentInterface,
    APIKeySecurityScheme,
    ClientCredentialsOAuthFlow,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    create_agent_card,
)
from a2a_sync.client import ApiKey, Frame
from a2a_sync.console.frames import Recorded, frame_row
from a2a_sync.console.snippets import Commands, Credential, credentials_for
from a2a_sync.types import Role
from tests.engine import TIMEOUT

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
)
SECRET = 's3cret of-these "tests" $HOME'  # of no other server
TOKEN = "s3cret.of-these~tests/+=="
PNG = bytes(range(256))
PARTS = (
    TextPart('It\'s the "first" $HOME\n`id` \\ 🐧'),
    TextPart("# Notes", media_type="text/markdown"),
    FilePart(raw=PNG, filename="a'b.png", media_type="image/png"),
    FilePart(url="https://files.example.com/x?a=1&b='2'"),
    DataPart({"day": [1, 2.5, None, True], "it's": {"nested": "\u2028\x1b"}}, media_type="application/json"),
)


def seen(message: Message) -> str:
    """All of the parts of a message, as a text that two messages share only if they have the same parts."""
    return repr([(part, getattr(part, "raw", None)) for part in message.parts])


class Repeating(Agent):
    name = "repeating"
    description = "Repeats what it got"
    input_modes = ["*/*"]

    def __init__(self) -> None:
        super().__init__()
        self.got: list[str] = []

    def handle_message(self, message: Message, context: RequestContext) -> str:
        self.got.append(seen(message))
        return f"message {len(self.got)}"


@contextmanager
def served(**options: Any) -> Iterator[tuple[str, Repeating]]:
    """The address of an app with a console, and its agent."""
    agent, tls = Repeating(), options.pop("tls", None)
    with A2AApp(agent, console=True, **options) as app:
        server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=tls)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}", agent
        finally:
            server.shutdown()
            server.server_close()


def commands_of(page: str) -> dict[str, str]:
    """The commands of the page of a task, by their language."""
    found = re.findall(r'<pre tabindex="0" id="(curl|python)">(.*?)</pre>', page, re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


def run(name: str, text: str, folder: Path, **variables: str) -> str:
    """Execute a command as a user would, and return what it prints."""
    program = ["bash", "-c"] if name == "curl" else [sys.executable, "-c"]
    environment = {**os.environ, **variables}
    done = subprocess.run([*program, text], capture_output=True, text=True, timeout=60, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


BASIC = {"auth": ("ada", SECRET)}
SCHEMES: dict[str, tuple[Any, Any, dict[str, Any], dict[str, str]]] = {
    # the app's auth=, the client's auth=, what opens the page, and the variables of the commands
    "bearer": (
        BearerAuth({TOKEN: "ada"}),
        TOKEN,
        {"headers": {"Authorization": f"Bearer {TOKEN}"}},
        {"A2A_SYNC_AUTH": TOKEN},
    ),
    "basic": (BasicAuth({"ada": SECRET}), ("ada", SECRET), BASIC, {"A2A_SYNC_AUTH": f"ada:{SECRET}"}),
    "header": (
        ApiKeyAuth({SECRET: "ada"}, header="X-My-Key"),
        ApiKey(SECRET),
        {"headers": {"X-My-Key": SECRET}},
        {"A2A_SYNC_AUTH": SECRET},
    ),
    "query": (
        ApiKeyAuth({SECRET: "ada"}, query="my key"),
        ApiKey(SECRET),
        {"params": {"my key": SECRET}},
        {"A2A_SYNC_AUTH": SECRET},
    ),
    "cookie": (
        ApiKeyAuth({"s3cret-cookie": "ada"}, cookie="my_key"),
        ApiKey("s3cret-cookie"),
        {"cookies": {"my_key": "s3cret-cookie"}},
        {"A2A_SYNC_AUTH": "s3cret-cookie"},
    ),
    "both": (
        BasicAuth({"ada": SECRET}) & ApiKeyAuth({"key": "ada"}, header="X-My-Key"),
        {"basic": ("ada", SECRET), "apiKey": ApiKey("key")},
        {**BASIC, "headers": {"X-My-Key": "key"}},
        {"A2A_SYNC_AUTH": f"ada:{SECRET}", "A2A_SYNC_AUTH_2": "key"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_commands_send_every_part_with_the_credentials_of_the_card(
    tmp_path: Path, scheme: str, binding: str
) -> None:
    auth, given, opens, variables = SCHEMES[scheme]
    with served(auth=auth, protocol_bindings=(binding,)) as (url, agent), Client(url, auth=given) as client:
        task = client.send(list(PARTS), timeout=TIMEOUT).task
        page = requests.get(f"{url}/console/a/agent/t/{task.id}", timeout=60, **opens).text
        commands = commands_of(page)
        assert set(commands) == {"curl", "python"}
        for secret in variables.values():
            assert not any(secret in text for text in commands.values())
        for number, (name, text) in enumerate(commands.items(), 2):
            assert f"message {number}" in run(name, text, tmp_path, **variables)
    assert len(agent.got) == 3
    assert len(set(agent.got)) == 1


# -- signed tokens and certificates ---------------------------------------------------------------------------------------


def token_of(key: Any, **claims: Any) -> str:
    """A token of the issuer, signed with `key`."""
    jwt = pytest.importorskip("jwt")
    return str(jwt.encode({"iss": "tests", "aud": "repeating", "sub": "ada", **claims}, key, algorithm="ES256"))


def check_refusal(commands: Mapping[str, str], folder: Path, **variables: str) -> None:
    """The commands do not work with these credentials."""
    for name, text in commands.items():
        program = ["bash", "-c"] if name == "curl" else [sys.executable, "-c"]
        done = subprocess.run(
            [*program, text], capture_output=True, text=True, timeout=60, cwd=folder, env={**os.environ, **variables}
        )
        refused = r"UNAUTHENTICATED|UnauthenticatedError|CertificateRefusedError|curl: \(\d+\)"
        assert re.search(refused, done.stdout + done.stderr), done


@pytest.mark.slow
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("kind", ["oauth", "oidc", "mtls", "mtls and oauth"])
def test_the_commands_work_with_signed_tokens_and_certificates(tmp_path: Path, kind: str, binding: str) -> None:
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    from a2a_sync.auth import JWTAuth, MTLSAuth
    from tests.certificates import Authority

    key, other_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    scheme = ALL["oidc" if kind == "oidc" else "oauth"]
    auth: Any = JWTAuth(key=public, issuer="tests", audience="repeating", scheme=scheme, name=kind[-5:].strip())
    token = token_of(key, exp=time.time() + 600)
    opens: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"}}
    given: Any = token
    variables = {"A2A_SYNC_AUTH": token}
    wrong = [{"A2A_SYNC_AUTH": token_of(key, exp=time.time() - 60)}, {"A2A_SYNC_AUTH": token_of(other_key)}]
    tls, more = None, {}
    if kind.startswith("mtls"):
        authority = Authority(tmp_path)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
        tls.load_cert_chain(*authority.issue("127.0.0.1"))
        tls.verify_mode = ssl.CERT_REQUIRED
        files = []
        for name, days in (("ada", 1), ("expired", -1)):
            certificate, private = authority.issue(name, days=days)
            files.append(str(tmp_path / f"{name}-both.pem"))
            Path(files[-1]).write_text(Path(certificate).read_text() + Path(private).read_text())
        trust = {"CURL_CA_BUNDLE": authority.ca, "REQUESTS_CA_BUNDLE": authority.ca, "A2A_SYNC_CERT": files[0]}
        more = {"verify": authority.ca, "cert": files[0]}
        opens = {"verify": authority.ca, "cert": files[0], **(opens if "oauth" in kind else {})}
        wrong = [{**variables, **trust, "A2A_SYNC_CERT": files[1]}]
        if kind == "mtls":
            auth, given, variables = MTLSAuth(), None, trust
        else:
            auth, given = MTLSAuth(lambda subject: "ada") & auth, {"mtls": "", "oauth": token}
            variables = {"A2A_SYNC_AUTH_2": token, **trust}
            wrong = [{**variables, **one} for one in ({"A2A_SYNC_AUTH_2": "x"}, {"A2A_SYNC_CERT": files[1]})]
    with (
        served(auth=auth, protocol_bindings=(binding,), tls=tls) as (url, agent),
        Client(url, auth=given, **more) as client,
    ):
        task = client.send(list(PARTS), timeout=TIMEOUT).task
        commands = commands_of(requests.get(f"{url}/console/a/agent/t/{task.id}", timeout=60, **opens).text)
        assert set(commands) == {"curl", "python"}
        assert not any(token in text for text in commands.values())
        for number, (language, text) in enumerate(commands.items(), 2):
            assert f"message {number}" in run(language, text, tmp_path, **variables)
        for each in wrong:
            check_refusal(commands, tmp_path, **{**variables, **each})
    assert len(agent.got) == 3
    assert len(set(agent.got)) == 1


def test_a_large_file_is_read_by_the_program_and_curl_is_not_offered(tmp_path: Path) -> None:
    large = FilePart(raw=os.urandom(200_000), filename="large file.bin", media_type="application/octet-stream")
    with served(auth=BasicAuth({"ada": SECRET})) as (url, agent), Client(url, auth=("ada", SECRET)) as client:
        task = client.send([large], timeout=TIMEOUT).task
        page = requests.get(f"{url}/console/a/agent/t/{task.id}", timeout=60, **BASIC).text
        (tmp_path / "large_file.bin").write_bytes(large.raw or b"")
        assert "The message is too long for a command line." in page
        assert len(page) < 50_000
        (command,) = commands_of(page).items()
        run(*command, tmp_path, A2A_SYNC_AUTH=f"ada:{SECRET}")
    assert agent.got == [agent.got[0]] * 2


@pytest.mark.parametrize("character", ["x", "'", "\0", "😀"], ids=["plain", "quotes", "escapes", "emoji"])
def test_a_page_has_no_command_for_a_message_of_very_long_texts(character: str) -> None:
    # The program for one of 9.8 MB made a page of 61 MB; 30 connections that did not read theirs took 1.6 GB.
    card = card_with(("bearer",))
    commands = Commands(card, "http://127.0.0.1:9/", credentials_for(card, none))
    for short, length in ((True, 10_000), (False, 100_001), (False, 2_000_000)):
        message = Message(role=Role.USER, parts=(TextPart(character * length),))
        assert bool(commands.python(message)) is short
    # Small objects need thirty times as much memory as they are long.
    assert commands.python(Message(role=Role.USER, parts=(DataPart([{"a": {}}] * 5_000),)))
    with served(auth=BasicAuth({"ada": SECRET})) as (url, _), Client(url, auth=("ada", SECRET)) as client:
        task = client.send(["hello", TextPart(character * 500_000)], timeout=TIMEOUT).task
        page = requests.get(f"{url}/console/a/agent/t/{task.id}", timeout=60, **BASIC).text
    assert "The message is too long for a command line." in page
    assert "The message is too long for a program." in page
    assert commands_of(page) == {}


# -- which credentials --------------------------------------------------------------------------------------------------

FLOW = ClientCredentialsOAuthFlow(token_url="https://login.example.com/token", scopes={})
ALL = {
    "bearer": HTTPAuthSecurityScheme(scheme="bearer"),
    "oauth": OAuth2SecurityScheme(flow=FLOW),
    "oidc": OpenIdConnectSecurityScheme(open_id_connect_url="https://login.example.com/openid"),
    "basic": HTTPAuthSecurityScheme(scheme="Basic"),
    "other": HTTPAuthSecurityScheme(scheme="DPoP"),
    "key": APIKeySecurityScheme(location="header", name="X-Key"),
    "mtls": MutualTlsSecurityScheme(),
    "bad": APIKeySecurityScheme(location="header", name="X\r\nHost"),
    "evil": APIKeySecurityScheme(location="query", name="'; touch hacked; $(touch hacked) `touch hacked`"),
}


def card_with(*alternatives: tuple[str, ...]) -> AgentCard:
    card = create_agent_card("x", "x", skills={"x": "x"})
    needed = tuple(SecurityRequirement(schemes=dict.fromkeys(names, ())) for names in alternatives)
    return replace(card, security_schemes=ALL, security_requirements=needed)


def none(credential: Credential) -> bool:
    return False


@pytest.mark.parametrize(
    ("names", "option"),
    [
        (("bearer",), """-H 'Authorization: Bearer '"$A2A_SYNC_AUTH\""""),
        (("oauth",), """-H 'Authorization: Bearer '"$A2A_SYNC_AUTH\""""),
        (("oidc",), """-H 'Authorization: Bearer '"$A2A_SYNC_AUTH\""""),
        (("other",), """-H 'Authorization: DPoP '"$A2A_SYNC_AUTH\""""),
        (("basic",), '-u "$A2A_SYNC_AUTH"'),
        (("mtls",), '-E "$A2A_SYNC_CERT"'),
        (("mtls", "key"), """-E "$A2A_SYNC_CERT" -H 'X-Key: '"$A2A_SYNC_AUTH_2\""""),
        # A header that no request can have: as if the card named no scheme.
        (("bad",), """-H 'Authorization: Bearer '"$A2A_SYNC_AUTH\""""),
    ],
)
def test_each_scheme_of_a_card_has_its_option(names: tuple[str, ...], option: str) -> None:
    assert " ".join(one.curl for one in credentials_for(card_with(names), none)) == option


def test_of_several_alternatives_the_one_in_use_is_shown() -> None:
    card = card_with(("bearer",), ("basic", "key"), ("key",))
    assert [one.scheme for one in credentials_for(card, none)] == ["bearer"]
    held = {"basic", "key"}
    assert [one.scheme for one in credentials_for(card, lambda one: one.scheme in held)] == ["basic", "key"]


def test_what_a_card_chooses_is_no_code(tmp_path: Path) -> None:
    evil = "http://127.0.0.1:9/$(touch hacked)`touch hacked`'; touch hacked; '"
    card = replace(
        card_with(("evil",)),
        supported_interfaces=(AgentInterface(url=evil, protocol_binding="JSONRPC", protocol_version="1.0"),),
    )
    commands = Commands(card, "http://127.0.0.1:9/", credentials_for(card, none))
    message = Message(role=Role.USER, parts=(TextPart("'; touch hacked; '"),))
    # An interface whose URL is not valid has no commands.
    assert commands.curl(message) == ""
    good = replace(card.supported_interfaces[0], url="http://127.0.0.1:9/'$x")
    text = Commands(
        replace(card, supported_interfaces=(good,)), "http://127.0.0.1:9/", credentials_for(card, none)
    ).curl(message)
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 7  # connection refused
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("bindings", "task", "wanted"),
    [
        (("GRPC", "HTTP+JSON"), "t/1", "http://127.0.0.1/api/tasks/t%2F1"),
        (("GRPC",), "t 1", "The command line reads the task: a2a-sync get http://127.0.0.1/ 't 1'"),
        (("GRPC",), "\x1b[201~\x15touch /tmp/x\n", "No command can name this task: its id has control characters."),
        (("GRPC",), "\x7f" * 60 + "touch /tmp/x", "No command can name this task: its id has control characters."),
        (("HTTP+JSON",), "..", "No command can name this task"),
        (("HTTP+JSON",), "", "The agent has not named a task yet."),
    ],
)
def test_entries_have_commands_over_what_curl_speaks(bindings: tuple[str, ...], task: str, wanted: str) -> None:
    interfaces = tuple(AgentInterface(url="/api", protocol_binding=one, protocol_version="1.0") for one in bindings)
    card = replace(card_with(), supported_interfaces=interfaces)
    of_task: Mapping[str, Any] = Commands(card, "http://127.0.0.1/", []).of_task(task)
    if wanted.startswith("http"):
        assert (of_task["read"]["url"], of_task["instead"]) == (wanted, "")
        assert of_task["send"]["url"] == "http://127.0.0.1/api/message:send"
    else:
        assert of_task["instead"].endswith(wanted) or of_task["instead"].startswith(wanted)
        assert of_task["read"] is None


@pytest.mark.parametrize(
    ("interface", "sent"),
    [
        ("https://agent.example/rpc", True),
        ("/rpc", True),
        ("http://agent.example/rpc", False),
        ("https://evil.example/", False),
        ("https://agent.example:8443/", False),
    ],
)
def test_a_command_has_credentials_for_the_origin_of_a_remote_agent_only(interface: str, sent: bool) -> None:
    offered = AgentInterface(url=interface, protocol_binding="JSONRPC", protocol_version="1.0")
    card = replace(card_with(("bearer",)), supported_interfaces=(offered,))
    home = "https://agent.example/"
    commands = Commands(card, home, credentials_for(card, none), home)
    text = commands.curl(Message(role=Role.USER, parts=(TextPart("hello"),)))
    assert ("A2A_SYNC_AUTH" in text) is sent
    assert commands.of_task("t")["at_home"] is sent
    # A frame has its own URL, whichever interface the commands call.
    frame = Frame(True, "POST", urls.join(home, interface), {}, b"{}")
    assert frame_row(Recorded(1, 0, frame), home)["at_home"] is sent


def offer(url: str, binding: str, version: str = "1.0") -> AgentInterface:
    return AgentInterface(url=url, protocol_binding=binding, protocol_version=version)


INTERFACES = {
    "JSONRPC of its origin": offer("https://agent.example/rpc", "JSONRPC"),
    "HTTP+JSON of its origin": offer("https://agent.example/rest", "HTTP+JSON"),
    "JSONRPC elsewhere": offer("https://other.example/rpc", "JSONRPC", "0.3.0"),
    "HTTP+JSON elsewhere": offer("https://other.example/rest", "HTTP+JSON"),
    "unknown version": offer("https://agent.example/rpc", "JSONRPC", "9.0"),
}


@pytest.mark.parametrize("names", [*permutations(INTERFACES, 2)], ids=", ".join)
def test_commands_call_the_interface_that_a_client_calls(names: tuple[str, ...]) -> None:
    offered = tuple(INTERFACES[name] for name in names)
    card = replace(card_with(("bearer",)), supported_interfaces=offered)
    with Client(card) as client:
        called = client._http.home
    home = "https://agent.example/"
    commands = Commands(card, home, credentials_for(card, none), home)
    text = commands.curl(Message(role=Role.USER, parts=(TextPart("hello"),)))
    of_task = commands.of_task("t")
    assert text.startswith(f"curl -sS {called}")
    assert of_task["read"]["url"].startswith(called)
    assert of_task["at_home"] is ("A2A_SYNC_AUTH" in text) is called.startswith(home)
