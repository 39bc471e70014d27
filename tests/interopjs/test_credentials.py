"""The JavaScript SDKs' clients, with their support for credentials, against an app that requires authentication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interopjs.formats import Format, Format03
from tests.interopjs.node import JsClient, JsError, js_client
from tests.live import gunicorn
from tests.peers.record import HTTP_JSON_03, HTTP_JSON_10, JSONRPC_03, JSONRPC_10, Transport

CLIENTS = [
    ("a2a-newest", JSONRPC_10),
    ("a2a-newest", HTTP_JSON_10),
    ("a2a-newest", JSONRPC_03),
    ("a2a-newest", HTTP_JSON_03),
    ("a2a-03", JSONRPC_03),
    ("a2a-03", HTTP_JSON_03),
]
FORMATS = {"a2a-newest": Format(), "a2a-03": Format03()}

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(60),
    pytest.mark.parametrize(("package", "transport"), CLIENTS, ids=lambda value: str(value)),
]


@dataclass(frozen=True)
class Guarded:
    """An agent that requires authentication, its scheme, and how credentials are sent."""

    url: str
    scheme: str
    header: str
    prefix: str
    secret: str

    def credentials(self, secret: str) -> dict[str, str]:
        return {self.header: self.prefix + secret}

    @property
    def valid_credentials(self) -> dict[str, str]:
        return self.credentials(self.secret)

    @property
    def cancelling_credentials(self) -> dict[str, str]:
        """The credentials of a caller with the scope to cancel."""
        return self.credentials(f"{self.secret}-of-grace")


SCHEMES = {"bearer": ("bearer", "Authorization", "Bearer ", "t0ken"), "key": ("apiKey", "X-API-Key", "", "k3y")}


@pytest.fixture(scope="module", params=SCHEMES)
def guarded(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    with gunicorn("tests.agents.guarded:app", environment={"GUARDED_BY": request.param}) as server:
        yield Guarded(server.url, *SCHEMES[request.param])


def connected(
    guarded: Guarded, package: str, transport: Transport, headers: Mapping[str, str], **renewed: Mapping[str, str]
) -> AbstractContextManager[JsClient]:
    return js_client(package, guarded.url, transport, headers=headers, **renewed)


def hello(package: str) -> Any:
    return FORMATS[package].message("hi")


def refused(client: JsClient, call: str, argument: Any = None) -> JsError:
    """The exception of the client for a refused call."""
    answered = client.stream if call == "sendMessageStream" else client.call
    with pytest.raises(JsError) as caught:
        list(answered(call, argument))
    return caught.value


def test_correct_credentials_are_accepted(guarded: Guarded, package: str, transport: Transport) -> None:
    format = FORMATS[package]
    with connected(guarded, package, transport, guarded.valid_credentials) as client:
        task = client.call("sendMessage", hello(package))
        assert (format.state(task), format.text(task["artifacts"][0])) == ("completed", "hello ada")
        assert client.call("getTask", {"id": task["id"]})["id"] == task["id"]
        *_, last = client.stream("sendMessageStream", hello(package))
        assert format.state(format.body(last)) == "completed"


def test_the_extended_card_requires_credentials_and_names_the_scheme(
    guarded: Guarded, package: str, transport: Transport
) -> None:
    with connected(guarded, package, transport, guarded.valid_credentials) as client:
        card = client.call("getAgentCard")
    assert card["name"] == "guarded, for callers"
    # The SDKs represent a scheme differently; all include the name of the header or the kind of the token.
    assert (guarded.prefix.strip() or guarded.header) in str(card["securitySchemes"][guarded.scheme])


@pytest.mark.parametrize("secret", [None, "wr0ng"], ids=["none", "wrong"])
@pytest.mark.parametrize("call", ["sendMessage", "sendMessageStream", "getAgentCard"])
def test_wrong_credentials_get_401(
    guarded: Guarded, package: str, transport: Transport, call: str, secret: str | None
) -> None:
    headers = {} if secret is None else guarded.credentials(secret)
    with connected(guarded, package, transport, headers) as client:
        error = refused(client, call, None if call == "getAgentCard" else hello(package))
    assert error.status == 401
    assert ("is not accepted" if secret else "credentials are required") in str(error)


def test_a_caller_without_the_scope_gets_403(guarded: Guarded, package: str, transport: Transport) -> None:
    with connected(guarded, package, transport, guarded.valid_credentials) as client:
        task = client.call("sendMessage", hello(package))
        error = refused(client, "cancelTask", {"id": task["id"]})
    assert error.status == 403
    assert "this needs the scope stop" in str(error)


def test_a_caller_with_the_scope_is_authorized(guarded: Guarded, package: str, transport: Transport) -> None:
    with connected(guarded, package, transport, guarded.cancelling_credentials) as client:
        task = client.call("sendMessage", hello(package))
        assert refused(client, "cancelTask", {"id": task["id"]}).kind == "TaskNotCancelableError"


def test_a_task_of_another_caller_is_not_found(guarded: Guarded, package: str, transport: Transport) -> None:
    with connected(guarded, package, transport, guarded.valid_credentials) as ada:
        task = ada.call("sendMessage", hello(package))
    with connected(guarded, package, transport, guarded.cancelling_credentials) as other:
        assert refused(other, "getTask", {"id": task["id"]}).kind == "TaskNotFoundError"


def test_the_client_retries_with_new_credentials_after_a_challenge(
    guarded: Guarded, package: str, transport: Transport
) -> None:
    with connected(
        guarded, package, transport, guarded.credentials("expired"), renewed=guarded.valid_credentials
    ) as client:
        assert FORMATS[package].state(client.call("sendMessage", hello(package))) == "completed"
