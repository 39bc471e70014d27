"""Canary secrets are used everywhere, each component is broken in turn, and no error, log record or repr may contain one.

Texts of agents and webhooks are exempt: an agent that repeats a secret in its own error is responsible for it. urllib3 logs paths
and queries at the level DEBUG (docs/explanation/security.md); its records are not checked.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    AgentCard,
    AgentError,
    Client,
    PushOptions,
    TransportError,
    URLGuard,
)
from a2a_sync.auth import BearerAuth
from a2a_sync.card import AgentInterface, APIKeySecurityScheme, SecurityRequirement
from a2a_sync.client import ApiKey, ClientCredentials
from a2a_sync.client.credentials import _Token
from a2a_sync.operations import GET_TASK, Call, CallContext, Principal, RunRequest, Webhook
from a2a_sync.outbound.http import NoResponseError, Outbound
from a2a_sync.stores.base import Owner, StoredWebhook
from a2a_sync.testing import wsgi_session
from a2a_sync.types import AuthenticationInfo, GetTaskRequest, Message, Role, TaskPushNotificationConfig, TextPart
from tests.client.peer import Asked, Line, Peer, peer
from tests.push.receiver import Receiver, refused

CANARY = "c4n4ry"
ENCODED = (CANARY, base64.b64encode(f"ada:{CANARY}".encode()).decode())


def shown(error: BaseException) -> str:
    """The text of an error with its whole chain, as logs and debuggers show it."""
    texts = []
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        texts += [repr(one), str(one), repr(vars(one)), "".join(traceback.format_exception(one))]
        left += [one.__cause__, one.__context__]
    return "\n".join(texts)


def secrets_in(text: str) -> list[str]:
    return [secret for secret in ENCODED if secret in text]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.DEBUG)
    formatter = logging.Formatter("%(message)s")

    def text() -> str:
        records = [one for one in caplog.records if not one.name.startswith("urllib3")]
        return "\n".join(formatter.format(one) + repr(vars(one)) for one in records)

    return text


# -- the client ---------------------------------------------------------------------------------------------------------


def _after_head(text: bytes) -> Callable[[Asked, Line], None]:
    def script(asked: Asked, line: Line) -> None:
        line.send(text)
        line.hang_up()

    return script


def _cut_stream(asked: Asked, line: Line) -> None:
    line.start_stream()
    line.piece(b"data: {")
    line.hang_up()


def _silence(asked: Asked, line: Line) -> None:
    line.pause()


#: What the agent does with the connection.
BREAKS: dict[str, Callable[[Asked, Line], None]] = {
    "hangs up": lambda asked, line: line.hang_up(),
    "half a head": _after_head(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "no HTTP": _after_head(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "half a body": _after_head(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "bad chunks": _after_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "bad gzip": _after_head(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"),
    "endless header": _after_head(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"),
    "many headers": _after_head(b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 200 + b"\r\n"),
    "no JSON": lambda asked, line: line.answer(b"<html>"),
    "not the protocol": lambda asked, line: line.answer([]),
    "401": lambda asked, line: line.answer(b"", 401, WWW_Authenticate="Bearer"),
    "403": lambda asked, line: line.answer(b"", 403),
    "500": lambda asked, line: line.answer(b"", 500),
    "redirect": lambda asked, line: line.answer(b"", 302, Location="/elsewhere"),
    "error": lambda asked, line: line.error(-32603),
    "cut stream": _cut_stream,
    "silence": _silence,
}
AUTHS: dict[str, Any] = {
    "token": CANARY,
    "function": lambda: CANARY,
    "password": ("ada", CANARY),
    "header": ApiKey(CANARY, header="X-Key"),
    "query": ApiKey(CANARY, query="key"),
    "cookie": ApiKey(CANARY, cookie="key"),
    "several": {"key": CANARY},
}


def card_of(server: Peer, base: str) -> AgentCard:
    interface = AgentInterface(url=f"{base}/rpc?key={CANARY}", protocol_binding="JSONRPC", protocol_version="1.0")
    return AgentCard(
        name="x",
        description="",
        version="1",
        supported_interfaces=(interface,),
        security_schemes={"key": APIKeySecurityScheme(location="query", name="key")},
        security_requirements=(SecurityRequirement(schemes={"key": ()}),),
    )


def attempts(client: Client) -> Iterator[Callable[[], object]]:
    yield client.card
    yield lambda: client.get_task("t-1")
    yield lambda: client.send("hi")
    yield lambda: list(client.subscribe("t-1"))
    yield lambda: client.cancel_task("t-1")


def broken(client: Client) -> str:
    """The errors of all calls."""
    texts = [repr(client), str(client), repr(client.__dict__.get("_link"))]
    for attempt in attempts(client):
        try:
            attempt()
        except (AgentError, TransportError, ValueError) as error:
            texts.append(shown(error))
    return "\n".join(texts)


@pytest.mark.parametrize("auth", AUTHS)
@pytest.mark.parametrize("how", [*BREAKS, "no server", "no TLS"])
def test_client_errors_contain_no_secret(how: str, auth: str, logged: Callable[[], str]) -> None:
    with peer(BREAKS.get(how, BREAKS["500"])) as server:
        base = server.url.replace("http:", "https:") if how == "no TLS" else server.url
        if how == "no server":
            server.refuse()
        options: Any = {"auth": AUTHS[auth], "headers": {"X-Secret": CANARY}, "retry": None, "timeout": 0.15}
        text = ""
        with Client(card_of(server, base), **options) as client:
            text += broken(client)
        with Client(f"{base}/agent?key={CANARY}", **options) as client:
            text += broken(client)
        with Client(base.replace("://", f"://ada:{CANARY}@"), retry=None, timeout=0.15) as client:
            text += broken(client)

    assert "Traceback" in text
    assert not secrets_in(text)
    assert not secrets_in(logged())


@pytest.mark.parametrize("how", [*BREAKS, "repeats"])
def test_errors_of_a_token_server_contain_no_secret(how: str, logged: Callable[[], str]) -> None:
    def repeats(asked: Asked, line: Line) -> None:
        line.answer({"error": "invalid_client", "error_description": f"no such secret: {CANARY}"}, 400)

    with peer(BREAKS.get(how, repeats)) as server, peer(BREAKS["500"]) as agent:
        for in_body in (True, False):
            auth = ClientCredentials(f"{server.url}/token?key={CANARY}", "robot", CANARY, in_body=in_body)
            with Client(agent.card(), auth=auth, retry=None, timeout=0.15) as client:
                text = broken(client) + repr(auth)
            assert not secrets_in(text)
    assert not secrets_in(logged())


@pytest.mark.parametrize("how", [*BREAKS, "no server"])
def test_errors_of_a_webhook_call_contain_no_secret(how: str) -> None:
    outbound = Outbound(URLGuard(allow=["127.0.0.1"]))
    with peer(BREAKS.get(how, BREAKS["500"])) as server:
        if how == "no server":
            server.refuse()
        text = ""
        try:
            outbound.request("POST", f"{server.url}/{CANARY}?{CANARY}", headers={"X": CANARY}, body=b"", timeout=0.15)
        except NoResponseError as error:
            text = shown(error)
    outbound.close()
    assert not secrets_in(text)


# -- the server ---------------------------------------------------------------------------------------------------------


def test_server_log_records_contain_no_secret(logged: Callable[[], str]) -> None:
    def handle(message: Message, context: Any) -> str:
        raise RuntimeError("the handler is broken")

    receiver = Receiver()
    receiver.plan(then=refused(410))
    push = PushOptions(url_guard=URLGuard(allow=["127.0.0.1"]))
    agent = Agent("broken", description="Fails")
    agent.message(handle)
    app = A2AApp(agent, auth=BearerAuth({CANARY: "ada"}), push=push)
    errors = []
    with peer(receiver.serve) as hook, contextlib.closing(app):
        config = TaskPushNotificationConfig(
            url=f"{hook.url}/{CANARY}?{CANARY}",
            token=CANARY,
            authentication=AuthenticationInfo(scheme="Bearer", credentials=CANARY),
        )
        for token in (CANARY, f"wrong-{CANARY}", ""):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            client = Client("http://agent.test", session=wsgi_session(app), headers=headers, retry=None, timeout=60)
            with client:
                for operation in ("send", "stream", "get_task", "list_tasks", "subscribe", "cancel_task"):
                    arguments = {"push_config": config} if operation in ("send", "stream") else {}
                    words = () if operation == "list_tasks" else ("t-1",)
                    try:
                        result = getattr(client, operation)(*words, **arguments)
                        if operation == "stream":
                            list(result)
                    except (AgentError, TransportError) as error:
                        errors.append(shown(error))
        receiver.await_count(1, tried=True)
    text = logged()
    assert "the handler is broken" in text
    assert "refused a caller" in text
    assert len(errors) >= 12
    assert not secrets_in("\n".join(errors))
    assert not secrets_in(text)


# -- repr of objects ----------------------------------------------------------------------------------------------------


def test_reprs_contain_no_secret() -> None:
    config = TaskPushNotificationConfig(
        url=f"https://ada:{CANARY}@hooks.test/{CANARY}?{CANARY}",
        token=CANARY,
        authentication=AuthenticationInfo(scheme="Basic", credentials=CANARY),
    )
    headers = {"authorization": f"Bearer {CANARY}"}
    principal = Principal(id="ada", claims={"jti": CANARY})
    context = CallContext(headers=headers, principal=principal, answer_headers=dict(headers))
    call = Call(GET_TASK, GetTaskRequest(id="t-1"), context)
    message = Message(role=Role.USER, parts=(TextPart("hi"),))
    run = RunRequest(message=message, headers=headers, principal=principal, webhook=Webhook(config, "1.0"))
    stored = StoredWebhook(owner=Owner("", "ada"), config=config, number=1, version="1.0", revision=1, cursor=0, head=0)
    credentials = [one for one in AUTHS.values() if isinstance(one, ApiKey)]
    objects = [call, context, principal, run, stored, config, _Token(CANARY, 1.0, 2.0), *credentials]
    objects += [BearerAuth({CANARY: "ada"}), ClientCredentials(f"https://id.test/?{CANARY}", "robot", CANARY)]
    for one in objects:
        assert not secrets_in(f"{one!r} {one}"), type(one)
