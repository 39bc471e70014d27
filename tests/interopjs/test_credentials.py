"""The JavaScript SDKs' clients, with their own way of sending credentials, against an app that asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interopjs.node import JsClient, JsError, js_client
from tests.interopjs.shapes import OldShape, Shape
from tests.live import gunicorn
from tests.peers.record import OLD_REST, Way

OLD = Way("0.3", "JSONRPC")
CLIENTS = [
    ("a2a-newest", Way("1.0", "JSONRPC")),
    ("a2a-newest", Way("1.0", "HTTP+JSON")),
    ("a2a-newest", OLD),
    ("a2a-newest", OLD_REST),
    ("a2a-03", OLD),
    ("a2a-03", OLD_REST),
]
SHAPES = {"a2a-newest": Shape(), "a2a-03": OldShape()}

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(60),
    pytest.mark.parametrize(("package", "way"), CLIENTS, ids=lambda value: str(value)),
]


@dataclass(frozen=True)
class Guarded:
    """The agent, how its card calls what it asks for, and how callers say it."""

    url: str
    scheme: str
    header: str
    prefix: str
    secret: str

    def credentials(self, secret: str) -> dict[str, str]:
        return {self.header: self.prefix + secret}

    @property
    def right(self) -> dict[str, str]:
        return self.credentials(self.secret)

    @property
    def grace(self) -> dict[str, str]:
        """Those of somebody who may cancel."""
        return self.credentials(f"{self.secret}-of-grace")


WAYS_IN = {"bearer": ("bearer", "Authorization", "Bearer ", "t0ken"), "key": ("apiKey", "X-API-Key", "", "k3y")}


@pytest.fixture(scope="module", params=WAYS_IN)
def guarded(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    with gunicorn("tests.agents.guarded:app", environment={"GUARDED_BY": request.param}) as server:
        yield Guarded(server.url, *WAYS_IN[request.param])


def connected(
    guarded: Guarded, package: str, way: Way, headers: Mapping[str, str], **renewed: Mapping[str, str]
) -> AbstractContextManager[JsClient]:
    return js_client(package, guarded.url, way, headers=headers, **renewed)


def hello(package: str) -> Any:
    return SHAPES[package].message("hi")


def refused(client: JsClient, call: str, argument: Any = None) -> JsError:
    """What the client throws where the app does not let it in."""
    answered = client.stream if call == "sendMessageStream" else client.call
    with pytest.raises(JsError) as caught:
        list(answered(call, argument))
    return caught.value


def test_who_has_the_secret_is_let_in(guarded: Guarded, package: str, way: Way) -> None:
    shape = SHAPES[package]
    with connected(guarded, package, way, guarded.right) as client:
        task = client.call("sendMessage", hello(package))
        assert (shape.state(task), shape.text(task["artifacts"][0])) == ("completed", "hello ada")
        assert client.call("getTask", {"id": task["id"]})["id"] == task["id"]
        *_, last = client.stream("sendMessageStream", hello(package))
        assert shape.state(shape.body(last)) == "completed"


def test_the_extended_card_is_for_who_has_the_secret_and_says_what_is_asked_for(
    guarded: Guarded, package: str, way: Way
) -> None:
    with connected(guarded, package, way, guarded.right) as client:
        card = client.call("getAgentCard")
    assert card["name"] == "guarded, for callers"
    # Each client gives a scheme in its own words; the name of the header, or of the kind of token, is in all of them.
    assert (guarded.prefix.strip() or guarded.header) in str(card["securitySchemes"][guarded.scheme])


@pytest.mark.parametrize("secret", [None, "wr0ng"], ids=["none", "wrong"])
@pytest.mark.parametrize("call", ["sendMessage", "sendMessageStream", "getAgentCard"])
def test_without_the_right_secret_it_is_told_401(
    guarded: Guarded, package: str, way: Way, call: str, secret: str | None
) -> None:
    headers = {} if secret is None else guarded.credentials(secret)
    with connected(guarded, package, way, headers) as client:
        error = refused(client, call, None if call == "getAgentCard" else hello(package))
    assert error.status == 401
    assert ("is not accepted" if secret else "credentials are required") in str(error)


def test_a_caller_without_the_scope_is_told_403(guarded: Guarded, package: str, way: Way) -> None:
    with connected(guarded, package, way, guarded.right) as client:
        task = client.call("sendMessage", hello(package))
        error = refused(client, "cancelTask", {"id": task["id"]})
    assert error.status == 403
    assert "this needs the scope stop" in str(error)


def test_a_caller_with_the_scope_gets_as_far_as_the_task(guarded: Guarded, package: str, way: Way) -> None:
    with connected(guarded, package, way, guarded.grace) as client:
        task = client.call("sendMessage", hello(package))
        assert refused(client, "cancelTask", {"id": task["id"]}).kind == "TaskNotCancelableError"


def test_another_s_task_is_unknown(guarded: Guarded, package: str, way: Way) -> None:
    with connected(guarded, package, way, guarded.right) as ada:
        task = ada.call("sendMessage", hello(package))
    with connected(guarded, package, way, guarded.grace) as grace:
        assert refused(grace, "getTask", {"id": task["id"]}).kind == "TaskNotFoundError"


def test_it_takes_the_challenge_for_one_and_comes_again(guarded: Guarded, package: str, way: Way) -> None:
    with connected(guarded, package, way, guarded.credentials("expired"), renewed=guarded.right) as client:
        assert SHAPES[package].state(client.call("sendMessage", hello(package))) == "completed"
