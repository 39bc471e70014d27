"""A new protocol version and a new binding pass the scenarios of all others, on both sides, without a change elsewhere.

Each is added by its modules and by one row: of the table of versions, or of the registry of bindings. The scenarios are those
of `tests.scenarios.test_scenarios`, which this module runs over the additions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from a2a_sync import A2AApp, Client, Message, Role, TextPart
from a2a_sync.bindings.registry import BINDINGS
from a2a_sync.codec import VERSIONS
from a2a_sync.errors import InvalidParamsError, VersionNotSupportedError
from a2a_sync.testing import wsgi_session
from tests.extending.toy import TOY
from tests.scenarios.agent import make_app
from tests.scenarios.conftest import Way, make_client, supports_file_names, supports_lists, supports_references, version
from tests.scenarios.test_scenarios import *  # noqa: F403
from tests.wsgi import HOST, Peer

__all__ = ["make_client", "supports_file_names", "supports_lists", "supports_references", "version"]


@pytest.fixture(scope="module")
def additions() -> Iterator[None]:
    """The two rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(VERSIONS, "1.1", "tests.extending.v11")
        patch.setitem(BINDINGS, "TOY", TOY)
        yield


@pytest.fixture(scope="module")
def app(additions: None) -> Iterator[A2AApp]:
    with make_app(protocol_versions=("1.1", "1.0", "0.3"), protocol_bindings=("JSONRPC", "HTTP+JSON", "TOY")) as app:
        yield app
        app.close(timeout=0)  # Some scenarios leave a run that waits for its cancellation.


@pytest.fixture(
    scope="module",
    params=[("1.1", "JSONRPC"), ("1.1", "HTTP+JSON"), ("1.1", "TOY"), ("1.0", "TOY")],
    ids=lambda way: "-".join(way),
)
def way(request: pytest.FixtureRequest, app: A2AApp) -> Way:
    """The clients of the scenarios: of the new version over every binding, and of the new binding in an old version."""
    version, binding = request.param
    session = wsgi_session(app)
    make = partial(Client, "http://agent.test", session=session, protocol_version=version, protocol_binding=binding)
    return make, version, binding


def test_an_error_of_a_streaming_call_is_raised_like_any_other(client: Client, version: str) -> None:
    """In place of the scenario's, which expects the member's name in 1.0."""
    unnamed = Message(role=Role.USER, parts=(TextPart("hi"),), message_id="")
    name = "message.id" if version == "1.1" else "message.messageId"
    with pytest.raises(InvalidParamsError, match=f"^{name}: is required"), client.stream(unnamed) as stream:
        list(stream)


SEND = {"message": {"id": "m-1", "role": "ROLE_USER", "parts": [{"text": "echo Ada"}]}}
SEND_1_0 = {"message": {**SEND["message"], "messageId": "m-1"}}
SEND_1_0["message"].pop("id")


def post(app: A2AApp, binding: str, params: Any, version: str | None) -> Any:
    """The JSON of the response to a send that names a version, or none."""
    path = {"JSONRPC": "/", "HTTP+JSON": "/message:send", "TOY": f"/toy/{version}/SendMessage"}[binding]
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    headers = {"Content-Type": "application/json", **({} if version is None else {"A2A-Version": version})}
    body = json.dumps(rpc if binding == "JSONRPC" else params).encode()
    with Peer(app).open("POST", path, body, headers) as answer:
        value = json.loads(b"".join(iter(answer.chunk, b"")))
    return value.get("result", value)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "TOY"])
def test_the_member_has_its_new_name_in_1_1_and_its_old_one_in_1_0(app: A2AApp, binding: str) -> None:
    new = post(app, binding, SEND, "1.1")["task"]["history"][0]
    old = post(app, binding, SEND_1_0, "1.0")["task"]["history"][0]
    assert (new.get("id"), new.get("messageId")) == ("m-1", None)
    assert (old.get("id"), old.get("messageId")) == (None, "m-1")


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_a_request_is_read_in_the_version_that_it_names(app: A2AApp, binding: str) -> None:
    refused = post(app, binding, SEND, "1.0")["error"]
    assert "message.messageId" in json.dumps(refused)
    assert "message.id" in json.dumps(post(app, binding, SEND_1_0, "1.1")["error"])


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize(("named", "shown"), [(None, "names no version"), ("0.3", "names version '0.3'")])
def test_a_request_of_1_x_without_its_version_is_refused_with_the_header_to_send(
    app: A2AApp, binding: str, named: str | None, shown: str
) -> None:
    error = post(app, binding, SEND, named)["error"]
    assert shown in error["message"]
    assert "send the header 'A2A-Version: 1.1' (served: 1.1, 1.0, 0.3)" in error["message"]


def test_the_card_lists_every_binding_in_every_version(app: A2AApp) -> None:
    offered = [
        (one.protocol_version, one.protocol_binding) for one in app.agent_card(f"http://{HOST}/").supported_interfaces
    ]
    assert offered == [(v, b) for v in ("1.1", "1.0", "0.3") for b in ("JSONRPC", "HTTP+JSON", "TOY")]


def test_a_client_selects_what_the_card_prefers(app: A2AApp) -> None:
    with Client("http://agent.test", session=wsgi_session(app)) as client:
        task = client.send("echo Ada")
        assert task.text == "echo: Ada"


def test_an_app_of_1_0_alone_does_not_serve_1_1(additions: None) -> None:
    with make_app(protocol_versions=("1.0",)) as app:
        error = post(app, "JSONRPC", SEND, "1.1")["error"]
        assert error["code"] == VersionNotSupportedError.jsonrpc_code
        assert "served: 1.0" in error["message"]
