"""Section G, third part: what a card of 0.3 offers, push configurations, authentication."""

from __future__ import annotations

from typing import Any

from tests.conformance.sending import UNKNOWN
from tests.conformance.suite import G, H, Level, Way
from tests.conformance.system import EXTENSION, Speaker, message_v03, new_name
from tests.conformance.v03 import begin, card, code, parts_of, send, task
from tests.conformance.wire import NAMES, Reply

HOOK = "https://hooks.example.com/a2a"
_SET, _GET = "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"
_LIST, _DELETE = "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"


@G.line("V03-CARD-03", Level.MUST, "every transport is listed and served at its URL")
def every_transport_is_spoken(at: Speaker) -> None:
    found = card(at)
    listed = [{"url": found["url"], "transport": found["preferredTransport"]}, *found["additionalInterfaces"]]
    ways = {"JSONRPC": Way.RPC_03, "HTTP+JSON": Way.REST_03}
    for one in listed:
        reply = at.at_url(one["url"]).by(ways[one["transport"]]).ask("GetTask", {"id": UNKNOWN})
        assert reply.error["message"]
        assert reply.status == (404 if one["transport"] == "HTTP+JSON" else 200)
    assert {"JSONRPC", "HTTP+JSON"} <= {one["transport"] for one in listed}


@G.line("V03-CARD-07", Level.SHOULD, "security schemes have a type and the member names of 0.3")
def schemes_have_a_type(at: Speaker) -> None:
    found = card(at.on("secured"), **{"A2A-Version": "0.3"})
    schemes = found["securitySchemes"]
    assert {scheme["type"] for scheme in schemes.values()} == {"http", "apiKey"}
    for scheme in schemes.values():
        if scheme["type"] == "apiKey":
            assert (scheme["in"], scheme["name"]) == ("header", "X-Key")
        else:
            assert scheme["scheme"] in ("Bearer", "Basic")
    assert all(set(one) <= set(schemes) for one in found["security"])
    assert found["supportsAuthenticatedExtendedCard"] is True


@G.line("V03-STRM-04", Level.MUST, "streaming is refused as such if it is not supported")
def streaming_is_refused_if_not_supported(at: Speaker) -> None:
    mute = at.on("mute")
    assert not card(mute)["capabilities"].get("streaming")
    assert code(mute.ask("SendStreamingMessage", message_v03("echo"))) == -32004
    held = begin(mute, f"hold {new_name()}")
    assert code(mute.ask("SubscribeToTask", {"id": held})) == -32004
    mute.ask("CancelTask", {"id": held})


# -- push configurations ------------------------------------------------------------------------------------------------


def _set(at: Speaker, task_id: str, **members: Any) -> dict[str, Any]:
    params = {"taskId": task_id, "pushNotificationConfig": {"url": HOOK, **members}}
    stored: dict[str, Any] = at.ask(_SET, params).result
    return stored


@G.line("V03-PUSH-01", Level.MUST, "set returns the configuration")
def set_gives_it_back(at: Speaker) -> None:
    push = at.on("push")
    id = task(push, "echo")["id"]
    authentication = {"schemes": ["Bearer"], "credentials": "for-the-hook"}
    stored = _set(push, id, id="mine", token="t", authentication=authentication)
    config = {"id": "mine", "url": HOOK, "token": "t", "authentication": authentication}
    assert stored == {"taskId": id, "pushNotificationConfig": config}


@G.line("V03-PUSH-02", Level.MUST, "get returns a configuration by its id, or the first without an id")
def get_gives_it(at: Speaker) -> None:
    push = at.on("push")
    id = task(push, "echo")["id"]
    first, second = _set(push, id, id="a"), _set(push, id, id="b")
    assert push.ask(_GET, {"id": id, "pushNotificationConfigId": "b"}).result == second
    assert push.ask(_GET, {"id": id}).result == first


@G.line("V03-PUSH-03", Level.MUST, "list returns an array")
def list_gives_an_array(at: Speaker) -> None:
    push = at.on("push")
    id = task(push, "echo")["id"]
    assert push.ask(_LIST, {"id": id}).result == []
    stored = [_set(push, id, id=name) for name in ("a", "b")]
    assert push.ask(_LIST, {"id": id}).result == stored


@G.line("V03-PUSH-04", Level.MUST, "delete returns null, also if repeated")
def delete_gives_null(at: Speaker) -> None:
    push = at.on("push")
    id = task(push, "echo")["id"]
    _set(push, id, id="a")
    for _ in range(2):
        reply = push.ask(_DELETE, {"id": id, "pushNotificationConfigId": "a"})
        assert (reply.json["result"], "error" in reply.json) == (None, False)
    assert push.ask(_LIST, {"id": id}).result == []


@G.line("V03-PUSH-05", Level.MUST, "an unknown task is refused as such")
def configurations_of_the_unknown(at: Speaker) -> None:
    push = at.on("push")
    for operation, params in (
        (_SET, {"taskId": UNKNOWN, "pushNotificationConfig": {"url": HOOK}}),
        (_GET, {"id": UNKNOWN, "pushNotificationConfigId": "a"}),
        (_LIST, {"id": UNKNOWN}),
        (_DELETE, {"id": UNKNOWN, "pushNotificationConfigId": "a"}),
    ):
        reply = push.ask(operation, params)
        assert code(reply) == -32001
        assert "not found" in reply.error["message"].lower()


@G.line("V03-PUSH-06", Level.MUST, "push notifications are refused as such if they are not supported")
def push_is_refused_if_not_supported(at: Speaker) -> None:
    id = task(at, "echo")["id"]
    for operation, params in (
        (_SET, {"taskId": id, "pushNotificationConfig": {"url": HOOK}}),
        (_GET, {"id": id, "pushNotificationConfigId": "a"}),
        (_LIST, {"id": id}),
        (_DELETE, {"id": id, "pushNotificationConfigId": "a"}),
    ):
        assert code(at.ask(operation, params)) == -32003


# -- errors -------------------------------------------------------------------------------------------------------------


@G.line(
    "V03-ERR-02",
    Level.SHOULD,
    "unsupported media types and invalid responses have their codes",
    differs="-32005 is used; an agent that breaks the data model fails its task",
)
def media_types_have_their_code(at: Speaker) -> None:
    part = {"kind": "file", "file": {"bytes": "+/8=", "mimeType": "audio/x"}}
    assert code(send(at, "echo", part)) == -32005
    assert task(at, "broken")["status"]["state"] == "failed"


# -- authentication -----------------------------------------------------------------------------------------------------


@G.line("V03-XCARD-01", Level.MUST, "the extended card requires authentication")
def the_extended_card_needs_a_caller(at: Speaker) -> None:
    reply = at.on("secured").ask("GetExtendedAgentCard")
    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")


@G.line("V03-XCARD-02", Level.MUST, "it is a complete card of 0.3")
def the_extended_card_is_whole(at: Speaker) -> None:
    secured = at.on("secured")
    extended = secured.as_user("ada").ask("GetExtendedAgentCard").result
    public = card(secured, **{"A2A-Version": "0.3"})
    assert extended.keys() == public.keys()
    assert (extended["protocolVersion"], extended["url"]) == ("0.3.0", public["url"])
    assert "secret" in {skill["id"] for skill in extended["skills"]}
    assert "supportedInterfaces" not in extended


@G.line("V03-XCARD-03", Level.SHOULD, "a missing extended card is reported as such")
def there_is_no_extended_card(at: Speaker) -> None:
    for one in (at, at.on("promised")):
        assert code(one.ask("GetExtendedAgentCard")) == -32007


def _refusals(at: Speaker, **headers: str) -> list[Reply]:
    params = {"id": UNKNOWN, **message_v03("echo")}
    return [at.on("secured").ask(name.method, params, **headers) for name in NAMES if name.old]


@G.line("V03-AUTH-01", Level.MUST, "every request is authenticated as the card requires")
def every_request_is_authenticated(at: Speaker) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert {reply.status for reply in _refusals(at, **headers)} == {401}
    bob = at.on("secured").as_user("bob")
    assert bob.ask("CancelTask", {"id": begin(bob, f"hold {new_name()}")}).status == 403
    assert task(bob, "echo")["status"]["state"] == "completed"


@G.line("V03-AUTH-02", Level.SHOULD, "a refusal names the scheme to use")
def a_refusal_names_the_scheme(at: Speaker) -> None:
    assert all(reply.headers["WWW-Authenticate"].startswith("Bearer") for reply in _refusals(at))


# -- extensions ---------------------------------------------------------------------------------------------------------


@G.line("V03-EXT-01", Level.SHOULD, "the response lists the active extensions in X-A2A-Extensions")
def active_extensions_are_named(at: Speaker) -> None:
    asked = at.with_headers(X_A2A_Extensions=EXTENSION)
    reply = send(asked, "report")
    assert reply.headers["X-A2A-Extensions"] == EXTENSION
    assert parts_of(reply.result)[0]["data"]["extensions"] == [EXTENSION]


@H.line("DUAL-09", Level.CHOICE, "response headers have the names of their version")
def headers_have_the_names_of_their_version(at: Speaker) -> None:
    old = at.by(Way.RPC_03)
    for headers in ({"X_A2A_Extensions": EXTENSION}, {"A2A_Extensions": EXTENSION}):
        answer = send(old.with_headers(**headers), "echo").headers
        assert (answer.get("X-A2A-Extensions"), "A2A-Extensions" in answer) == (EXTENSION, False)
    answer = at.with_headers(A2A_Extensions=EXTENSION).send("echo").headers
    assert (answer["A2A-Extensions"], "X-A2A-Extensions" in answer) == (EXTENSION, False)
    assert "A2A-Extensions" not in at.with_headers(X_A2A_Extensions=EXTENSION).send("echo").headers
