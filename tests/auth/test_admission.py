"""Authentication: accepted credentials, and the responses to all others. Through the WSGI app, as peers see it."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, Client, PushOptions
from a2a_sync.auth.policy import Authenticator, FrameworkAuth
from a2a_sync.auth.request import AuthRequest
from a2a_sync.auth.schemes import ApiKeyAuth, BasicAuth, BearerAuth, MTLSAuth
from a2a_sync.card import (
    ClientCredentialsOAuthFlow,
    HTTPAuthSecurityScheme,
    OAuth2SecurityScheme,
    SecurityRequirement,
)
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.operations import Principal
from tests.wsgi import CARD, Answer, Peer, message, message_v03, rpc

ADA = Principal(id="ada", scopes=("read", "write"), claims={"team": "engines"})


class Known(Agent):
    name = "known"

    def handle_message(self, message: Any, context: Any) -> Any:
        user = context.user
        return None if user is None else {"id": user.id, "scopes": list(user.scopes), "claims": dict(user.claims)}


@contextmanager
def served(auth: Any = None, **options: Any) -> Iterator[Peer]:
    with A2AApp(Known(), auth=auth, **options) as app:
        yield Peer(app)


def caller_of(peer: Peer, headers: dict[str, str] | None = None, **options: Any) -> Any:
    answer = peer.call("SendMessage", message(), headers=headers, **options)
    assert answer.status == 200, answer.body
    return answer.result["task"]["artifacts"][0]["parts"][0]["data"]


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def subject(name: str) -> dict[str, Any]:
    return {"environ": {"SSL_CLIENT_VERIFY": "SUCCESS", "SSL_CLIENT_S_DN": name}}


#: Each way in: what the app is given, what a caller sends, what a wrong one sends, the challenge.
WAYS: dict[str, tuple[Any, dict[str, Any], dict[str, Any], str]] = {
    "bearer": (
        BearerAuth({"t0ken": "ada"}),
        {"headers": bearer("t0ken")},
        {"headers": bearer("t0kem")},
        'Bearer realm="agent"',
    ),
    "bearer by a function": (
        BearerAuth(lambda token: "ada" if token == "t0ken" else None),
        {"headers": {"Authorization": "bearer  t0ken "}},
        {"headers": bearer("other")},
        'Bearer realm="agent"',
    ),
    "key in a header": (
        ApiKeyAuth({"k3y": "ada"}, header="X-API-Key"),
        {"headers": {"x-api-key": "k3y"}},
        {"headers": {"x-api-key": "k3"}},
        'ApiKey realm="agent", in="header", name="X-API-Key"',
    ),
    "key in the query": (
        ApiKeyAuth({"k 3y": "ada"}, query="key"),
        {"path": "/?a=b&key=k+3y"},
        {"path": "/?key=k3"},
        'ApiKey realm="agent", in="query", name="key"',
    ),
    "key in a cookie": (
        ApiKeyAuth({"k3y": "ada"}, cookie="key"),
        {"headers": {"Cookie": 'a=b; key="k3y"'}},
        {"headers": {"Cookie": "key=nokey"}},
        'ApiKey realm="agent", in="cookie", name="key"',
    ),
    "basic": (
        BasicAuth({"ada": "pässword:1"}),
        {"headers": basic("ada", "pässword:1")},
        {"headers": basic("ada", "pässword")},
        'Basic realm="agent", charset="UTF-8"',
    ),
    "basic by a function": (
        BasicAuth(lambda user, password: user if password == "right" else None),
        {"headers": basic("ada", "right")},
        {"headers": basic("ada", "wrong")},
        'Basic realm="agent", charset="UTF-8"',
    ),
    "certificate": (
        MTLSAuth({"CN=ada,O=x": "ada"}.get),
        subject("CN=ada,O=x"),
        subject("CN=bob,O=x"),
        'MutualTLS realm="agent"',
    ),
}
EVERY_WAY = pytest.mark.parametrize(("auth", "right", "wrong", "challenge"), WAYS.values(), ids=WAYS)


@EVERY_WAY
def test_right_credentials_identify_the_caller(auth: Any, right: Any, wrong: Any, challenge: str) -> None:
    with served(auth) as peer:
        assert caller_of(peer, **right)["id"] == "ada"


@EVERY_WAY
def test_without_credentials_there_is_a_challenge(auth: Any, right: Any, wrong: Any, challenge: str) -> None:
    with served(auth) as peer:
        answer = peer.call("SendMessage", message())

    assert (answer.status, answer.error["code"]) == (401, -31401)
    assert answer.error["data"][0]["reason"] == "UNAUTHENTICATED"
    assert answer.headers.getlist("WWW-Authenticate") == [challenge]


@EVERY_WAY
def test_wrong_credentials_are_refused(
    auth: Any, right: Any, wrong: Any, challenge: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(auth) as peer, caplog.at_level(logging.DEBUG):
        answer = peer.call("SendMessage", message(), **wrong)

    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith(challenge)
    assert "refused a caller" in caplog.text
    sent = json.dumps(wrong)
    assert not any(secret in caplog.text and secret in sent for secret in ("t0kem", "k3", "nokey", "pässword", "wrong"))


@EVERY_WAY
def test_the_card_and_the_pages_for_operators_are_public(auth: Any, right: Any, wrong: Any, challenge: str) -> None:
    with served(auth) as peer:
        assert [peer.request("GET", path).status for path in (CARD, "/healthz", "/readyz")] == [200, 200, 200]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer two words"},
        {"Authorization": "Bearer a,Bearer t0ken"},
        {"Authorization": "Bearer t0ken\u00e9"},
        {"Authorization": "t0ken"},
        {"Authorization": "Basic t0ken"},
        {"Authorization": ""},
    ],
)
def test_what_is_no_token_is_refused(headers: dict[str, str]) -> None:
    with served(BearerAuth({"t0ken": "ada"})) as peer:
        assert peer.call("SendMessage", message(), headers=headers).status == 401


@pytest.mark.parametrize(
    "sent", ["%%%", base64.b64encode(b"ada").decode(), base64.b64encode(b"\xff:\xff").decode(), "", "\u00e9"]
)
def test_what_is_no_name_and_password_is_refused(sent: str) -> None:
    with served(BasicAuth(lambda user, password: "ada")) as peer:
        assert peer.call("SendMessage", message(), headers={"Authorization": f"Basic {sent}"}).status == 401


def test_a_key_that_is_given_twice_is_refused() -> None:
    with served(ApiKeyAuth({"k3y": "ada"}, query="key")) as peer:
        assert peer.call("SendMessage", message(), path="/?key=k3y&key=k3y").status == 401


@pytest.mark.parametrize("said", [None, "", Principal(id="")])
def test_an_empty_id_is_no_caller(said: Any) -> None:
    with served(BearerAuth(lambda token: said)) as peer:
        assert peer.call("SendMessage", message(), headers=bearer("x")).status == 401


def test_a_check_that_breaks_refuses_every_caller_and_shows_nothing() -> None:
    def broken(token: str) -> str:
        raise RuntimeError(f"no database for {token}")

    with served(BearerAuth(broken)) as peer:
        answer = peer.call("SendMessage", message(), headers=bearer("s3cret"))

    assert answer.error["code"] == -32603
    assert b"s3cret" not in answer.body
    assert b"database" not in answer.body


def test_a_principal_reaches_the_agent_with_all_that_is_known() -> None:
    with served(BearerAuth({"t": ADA})) as peer:
        assert caller_of(peer, bearer("t")) == {"id": "ada", "scopes": ["read", "write"], "claims": {"team": "engines"}}


def test_a_body_is_not_read_before_its_sender_is_known() -> None:
    with served(BearerAuth({"t": "ada"})) as peer:
        broken = peer.post(b"{not json")
        large = peer.post(b"x" * 100_000, environ={"CONTENT_LENGTH": str(10**9)})

    assert (broken.status, large.status) == (401, 401)


def test_no_credentials_are_stored_with_a_run() -> None:
    seen: dict[str, str] = {}
    agent = Agent("curious")
    agent.message(lambda message, context: seen.update(context.headers))
    with A2AApp(agent, auth=BearerAuth({"t0ken": "ada"})) as app:
        Peer(app).call("SendMessage", message(), headers={**bearer("t0ken"), "User-Agent": "curl"})

    assert seen == {"user-agent": "curl"}


def test_calls_inside_the_process_need_no_credentials() -> None:
    with A2AApp(Known(), auth=BearerAuth({"t": "ada"}), required_scopes={"*": "read"}) as app, Client(app) as client:
        assert client.send("hi").state.terminal  # type: ignore[union-attr]


# -- combinations -------------------------------------------------------------------------------------------------------

TOKEN = BearerAuth({"t": Principal(id="ada", scopes=("a",), claims={"x": 1, "y": 1})})
KEY = ApiKeyAuth({"k": Principal(id="key", scopes=("b",), claims={"y": 2, "z": 2})}, header="X-Key")


def test_either_of_two_ways_is_enough() -> None:
    with served(TOKEN | KEY) as peer:
        assert caller_of(peer, bearer("t"))["id"] == "ada"
        assert caller_of(peer, {"X-Key": "k"})["id"] == "key"
        assert caller_of(peer, {**bearer("wrong"), "X-Key": "k"})["id"] == "key"
        refused = peer.call("SendMessage", message(), headers={"X-Key": "wrong"})

    assert refused.status == 401
    assert len(refused.headers.getlist("WWW-Authenticate")) == 2


def test_both_of_two_ways_are_needed_and_the_first_identifies_the_caller() -> None:
    with served(TOKEN & KEY) as peer:
        for some in ({}, bearer("t"), {"X-Key": "k"}, {**bearer("t"), "X-Key": "wrong"}):
            assert peer.call("SendMessage", message(), headers=some).status == 401
        known = caller_of(peer, {**bearer("t"), "X-Key": "k"})

    assert known == {"id": "ada", "scopes": ["a", "b"], "claims": {"x": 1, "y": 1, "z": 2}}


def test_and_holds_for_each_side_of_an_or() -> None:
    with served(KEY & (TOKEN | BasicAuth({"ada": "pw"}))) as peer:
        assert caller_of(peer, {"X-Key": "k", **bearer("t")})["id"] == "key"
        assert caller_of(peer, {"X-Key": "k", **basic("ada", "pw")})["id"] == "key"
        assert peer.call("SendMessage", message(), headers=bearer("t")).status == 401


def test_a_function_of_the_request_authenticates_too_alone_and_combined() -> None:
    def logged_in(request: AuthRequest) -> str | None:
        return request.environ.get("REMOTE_USER")

    with served(logged_in) as peer:
        assert caller_of(peer, environ={"REMOTE_USER": "ada"})["id"] == "ada"
        refused = peer.call("SendMessage", message())
    assert (refused.status, refused.headers.getlist("WWW-Authenticate")) == (401, [])

    with served(logged_in | KEY) as peer:
        assert caller_of(peer, environ={"REMOTE_USER": "ada"})["id"] == "ada"
        assert caller_of(peer, {"X-Key": "k"})["id"] == "key"


def test_the_login_of_a_host_can_be_asked_for() -> None:
    with served(FrameworkAuth() | KEY) as peer:
        assert caller_of(peer, environ={"a2a_sync.principal": "ada"})["id"] == "ada"
        assert caller_of(peer, {"X-Key": "k"}, environ={"a2a_sync.principal": None})["id"] == "key"
        assert peer.call("SendMessage", message(), environ={"a2a_sync.principal": ""}).status == 401


def test_what_a_host_says_does_not_stand_in_for_credentials_that_are_asked_for() -> None:
    with served(KEY) as peer:
        assert peer.call("SendMessage", message(), environ={"a2a_sync.principal": "ada"}).status == 401


def test_a_way_of_ones_own_is_a_class() -> None:
    class Stamped(Authenticator):
        name = "stamp"
        scheme = HTTPAuthSecurityScheme(scheme="Stamp")

        def authenticate(self, request: AuthRequest) -> Principal | None:
            if "stamp" not in request.headers:
                return None
            if request.headers["stamp"] != "right":
                raise UnauthenticatedError("the stamp is forged")
            return Principal(id="ada")

    with served(Stamped()) as peer:
        assert caller_of(peer, {"Stamp": "right"})["id"] == "ada"
        refused = peer.call("SendMessage", message(), headers={"Stamp": "x"})
    assert refused.error["message"] == "the stamp is forged"
    assert refused.headers["WWW-Authenticate"] == 'Stamp realm="agent"'


@pytest.mark.parametrize("auth", ["t0ken", ("ada", "pw"), 7, BearerAuth])
def test_an_object_without_authenticate_is_no_auth(auth: Any) -> None:
    with pytest.raises(TypeError, match="auth takes"):
        A2AApp(Known(), auth=auth)


def test_invalid_schemes_are_reported_at_once() -> None:
    with pytest.raises(ValueError, match="one of header="):
        ApiKeyAuth({"k": "ada"}, header="X", cookie="y")
    with pytest.raises(ValueError, match="one of header="):
        ApiKeyAuth({"k": "ada"})
    with pytest.raises(ValueError, match="empty"):
        BearerAuth({"": "ada"})
    with pytest.raises(ValueError, match="empty"):
        BasicAuth({"ada": ""})
    with pytest.raises(ValueError, match="scopes= needs auth="):
        A2AApp(Known(), required_scopes={"*": "read"})
    with pytest.raises(ValueError, match="'Send' is no operation"):
        A2AApp(Known(), auth=KEY, required_scopes={"Send": "read"})
    with pytest.raises(TypeError, match="takes a mapping of operations to scopes, not a list"):
        A2AApp(Known(), auth=KEY, required_scopes=["read"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "made",
    [
        lambda secret: A2AApp(Known(), auth=secret),
        lambda secret: A2AApp(Known(), auth={secret: "ada"}),
        BearerAuth,
        BasicAuth,
        lambda secret: ApiKeyAuth(secret, header="X"),
    ],
)
def test_a_secret_where_something_else_belongs_is_refused_and_not_shown(made: Any) -> None:
    with pytest.raises(TypeError, match="function") as refused:
        made("s3cret")
    assert "s3cret" not in str(refused.value)


def test_no_repr_shows_a_secret() -> None:
    ways = [BearerAuth({"s3cret": "ada"}), ApiKeyAuth({"s3cret": "ada"}, header="X"), BasicAuth({"ada": "s3cret"})]

    assert "s3cret" not in repr(
        [ways, [vars(way) for way in ways], [vars(way._verify) for way in ways if hasattr(way._verify, "__dict__")]]
    )


# -- scopes -------------------------------------------------------------------------------------------------------------

SCOPED = {
    "r": Principal(id="ada", scopes=("use", "read")),
    "rw": Principal(id="ada", scopes=("use", "read", "write")),
    "none": Principal(id="ada"),
}


def test_an_operation_asks_for_its_scopes() -> None:
    scopes = {"*": "use", "CancelTask": ["read", "write"], "GetTask": "read"}
    with served(BearerAuth(SCOPED), required_scopes=scopes) as peer:
        assert peer.call("ListTasks", {}, headers=bearer("r")).status == 200
        refused = peer.call("CancelTask", {"id": "x"}, headers=bearer("r"), id=7)
        assert peer.call("CancelTask", {"id": "x"}, headers=bearer("rw")).error["code"] == -32001
        everywhere = peer.call("ListTasks", {}, headers=bearer("none"))

    assert (refused.status, refused.error["code"], refused.json["id"]) == (403, -31403, 7)
    assert refused.error["data"][0]["metadata"] == {"missingScopes": "write"}
    assert refused.headers["WWW-Authenticate"] == (
        'Bearer realm="agent", error="insufficient_scope", scope="use read write"'
    )
    assert everywhere.status == 403


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_webhook_in_a_send_needs_the_scopes_of_webhooks(operation: str, version: str) -> None:
    config = {"url": "https://hooks.example.com/x"}
    if version == "0.3":
        operation = {"SendMessage": "message/send", "SendStreamingMessage": "message/stream"}[operation]
        sent = {**message_v03("hi"), "configuration": {"pushNotificationConfig": config}}
    else:
        sent = {**message(), "configuration": {"taskPushNotificationConfig": config}}
    scopes = {"CreateTaskPushNotificationConfig": "write"}
    with served(BearerAuth(SCOPED), required_scopes=scopes, push=PushOptions(sender=lambda request: None)) as peer:
        refused = peer.call(operation, sent, headers={**bearer("r"), "A2A-Version": version})
        assert (refused.status, refused.error["data"][0]["metadata"]) == (403, {"missingScopes": "write"})
        assert peer.call(operation, sent, headers={**bearer("rw"), "A2A-Version": version}).status == 200


def test_a_way_asks_for_scopes_of_its_own() -> None:
    with served(BearerAuth(SCOPED, scopes=["write"]) | KEY) as peer:
        assert caller_of(peer, bearer("rw"))["id"] == "ada"
        assert peer.call("SendMessage", message(), headers=bearer("r")).status == 403
        assert caller_of(peer, {"X-Key": "k"})["id"] == "key"


# -- both bindings, both versions ---------------------------------------------------------------------------------------


def test_http_json_answers_in_its_own_words() -> None:
    with served(BearerAuth(SCOPED), required_scopes={"ListTasks": "write"}) as peer:
        headers = {"A2A-Version": "1.0"}
        refused = peer.request("GET", "/tasks", headers=headers)
        denied = peer.request("GET", "/tasks", headers={**headers, **bearer("r")})
        options = peer.request("OPTIONS", "/tasks")

    assert (refused.status, denied.status, options.status) == (401, 403, 204)
    assert refused.json["error"]["status"] == "UNAUTHENTICATED"
    assert refused.json["error"]["code"] == 401
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="agent"'
    assert denied.json["error"]["status"] == "PERMISSION_DENIED"


def test_a_stream_is_refused_like_everything_else() -> None:
    with served(KEY) as peer:
        headers = {"Accept": "text/event-stream", "Content-Type": "application/json"}
        older = peer.request("POST", "/", rpc("message/stream", message_v03()), headers)
        newer = peer.post(rpc("SendStreamingMessage", message()), headers)

    for answer in (older, newer):
        assert (answer.status, answer.headers["Content-Type"]) == (401, "application/json")
        assert answer.error["code"] == -31401


# -- the card -----------------------------------------------------------------------------------------------------------


def card(auth: Any, version: str = "1.0", **options: Any) -> Any:
    with served(auth, **options) as peer:
        answer: Answer = peer.request("GET", CARD, headers={"A2A-Version": version})
        return answer.json


def test_the_card_says_what_is_asked_for_in_both_versions() -> None:
    auth = (TOKEN & KEY) | BasicAuth({"ada": "pw"}) | MTLSAuth()
    newer, older = card(auth), card(auth, "0.3")

    assert newer["securitySchemes"] == {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
        "mtls": {"mtlsSecurityScheme": {}},
    }
    assert newer["securityRequirements"] == [
        {"schemes": {"bearer": {}, "apiKey": {}}},
        {"schemes": {"basic": {}}},
        {"schemes": {"mtls": {}}},
    ]
    assert older["securitySchemes"]["bearer"] == {"type": "http", "scheme": "Bearer"}
    assert older["securitySchemes"]["apiKey"] == {"type": "apiKey", "in": "header", "name": "X-Key"}
    assert older["security"] == [{"bearer": [], "apiKey": []}, {"basic": []}, {"mtls": []}]


def test_a_token_server_can_be_named_with_the_scopes_that_are_needed() -> None:
    flow = ClientCredentialsOAuthFlow(token_url="https://id.example.com/token", scopes={"use": "Use it"})
    auth = BearerAuth(SCOPED, scheme=OAuth2SecurityScheme(flow=flow), name="oauth", scopes=["use"])
    said = card(auth, required_scopes={"*": "read", "CancelTask": "write"})

    assert said["securityRequirements"] == [{"schemes": {"oauth": {"list": ["use", "read"]}}}]
    assert said["securitySchemes"]["oauth"]["oauth2SecurityScheme"]["flows"]["clientCredentials"]["tokenUrl"] == (
        "https://id.example.com/token"
    )


def test_two_ways_of_one_name_get_two_names() -> None:
    said = card(BearerAuth({"a": "a"}) | BearerAuth({"b": "b"}))

    assert list(said["securitySchemes"]) == ["bearer", "bearer2"]
    assert said["securityRequirements"] == [{"schemes": {"bearer": {}}}, {"schemes": {"bearer2": {}}}]


def test_what_clients_cannot_do_is_not_in_the_card() -> None:
    own = AgentCard(
        name="x",
        description="",
        version="1",
        security_schemes={"sso": HTTPAuthSecurityScheme(scheme="Negotiate")},
        security_requirements=(SecurityRequirement(schemes={"sso": ()}),),
    )

    assert "securitySchemes" not in card(FrameworkAuth())
    assert card(FrameworkAuth() | KEY)["securityRequirements"] == [{"schemes": {"apiKey": {}}}]
    assert card(FrameworkAuth(), card=own)["securityRequirements"] == [{"schemes": {"sso": {}}}]


def test_a_card_whose_requirements_are_not_checked_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asking = AgentCard(
        name="asking",
        description="",
        version="1",
        security_schemes={"key": HTTPAuthSecurityScheme(scheme="Bearer")},
        security_requirements=(SecurityRequirement(schemes={"key": ()}),),
    )
    with served(TOKEN, card=asking), served():
        assert not caplog.records
    with served(card=asking):
        assert "the card of 'asking' requires credentials, and this app checks none" in caplog.text


def test_an_extended_card_says_it_too_and_needs_a_caller() -> None:
    extended = AgentCard(name="more", description="", version="1")
    with served(KEY, extended_card=extended, url="https://agent.test/") as peer:
        refused = peer.call("GetExtendedAgentCard", {})
        given = peer.call("GetExtendedAgentCard", {}, headers={"X-Key": "k"}).result

    assert refused.status == 401
    assert given["name"] == "more"
    assert given["securityRequirements"] == [{"schemes": {"apiKey": {}}}]


@pytest.mark.parametrize(
    "returned", ["", "a\0da", "\x1eteam red", "\x1fred", "\ud800", Principal(id=""), Principal(id="\x1eteam red")]
)
def test_an_authenticator_cannot_return_the_owner_of_other_tasks(returned: Any) -> None:
    class Stamped(Authenticator):
        name = "stamp"

        def authenticate(self, request: AuthRequest) -> Any:
            return returned

    with served(Stamped()) as peer:
        assert peer.call("SendMessage", message()).status == 401


def test_an_authenticator_may_return_an_id_as_text() -> None:
    class Stamped(Authenticator):
        name = "stamp"

        def authenticate(self, request: AuthRequest) -> str:
            return "ada"

    with served(Stamped()) as peer:
        assert caller_of(peer)["id"] == "ada"
