"""Section C, first part: the card, capabilities, extensions, versions."""

from __future__ import annotations

import re
from typing import Any

from tests.conformance.encoding import card
from tests.conformance.sending import UNKNOWN, received
from tests.conformance.suite import BOTH, C, Level, Verdict, Way
from tests.conformance.system import EXTENSION, NEEDED, Speaker, message, new_name
from tests.conformance.wire import Reply

CARD_PATH = "/.well-known/agent-card.json"
_ONCE = (Way.RPC,)
REQUIRED = (
    "name",
    "description",
    "supportedInterfaces",
    "version",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
)
_KNOWN = {
    "": {
        *REQUIRED,
        "provider",
        "documentationUrl",
        "iconUrl",
        "securitySchemes",
        "securityRequirements",
        "signatures",
    },
    "supportedInterfaces": {"url", "protocolBinding", "tenant", "protocolVersion"},
    "provider": {"url", "organization"},
    "capabilities": {"streaming", "pushNotifications", "extensions", "extendedAgentCard"},
    "extensions": {"uri", "description", "required", "params"},
    "skills": {
        "id",
        "name",
        "description",
        "tags",
        "examples",
        "inputModes",
        "outputModes",
        "securityRequirements",
    },
}


def _card(at: Speaker, path: str = CARD_PATH, verb: str = "GET", **headers: str) -> Reply:
    return at.exchange(verb, path, b"", {name.replace("_", "-"): value for name, value in headers.items()})


# -- the card -----------------------------------------------------------------------------------------------------------


@C.line("V1-CARD-01", Level.MUST, "the card is at its well-known path", ways=_ONCE)
def the_card_is_there(at: Speaker) -> None:
    reply = _card(at)
    assert (reply.status, reply.media_type) == (200, "application/json")
    assert isinstance(reply.json, dict)
    head = _card(at, verb="HEAD")
    assert (head.status, head.body) == (200, b"")


@C.line("V1-CARD-02", Level.MUST, "it has all required members", ways=_ONCE)
def the_card_is_complete(at: Speaker) -> None:
    for one in (_card(at).json, card(at), _card(at.on("modern")).json):
        assert not [name for name in REQUIRED if name not in one]
        assert all(one[name] for name in ("name", "version", "defaultInputModes", "defaultOutputModes", "skills"))
        assert all(skill["id"] and skill["name"] and skill["tags"] for skill in one["skills"])
        assert all("description" in skill for skill in one["skills"])


@C.line("V1-CARD-03", Level.MUST, "it lists interfaces, each with URL, binding and version", ways=_ONCE)
def the_card_lists_addresses(at: Speaker) -> None:
    interfaces = card(at)["supportedInterfaces"]
    assert interfaces
    for one in interfaces:
        assert one["url"].startswith("http")
        assert one["protocolBinding"] in ("JSONRPC", "HTTP+JSON")
        assert one["protocolVersion"]


@C.line("V1-CARD-04", Level.MUST, "the listed interfaces are exactly the served ones", ways=_ONCE)
def addresses_are_true(at: Speaker) -> None:
    listed = set()
    id = at.task("echo")["id"]
    for one in _card(at).json["supportedInterfaces"]:
        old, rest = one["protocolVersion"] == "0.3", one["protocolBinding"] == "HTTP+JSON"
        way = {(False, False): Way.RPC, (False, True): Way.REST, (True, False): Way.RPC_03, (True, True): Way.REST_03}
        assert at.at_url(one["url"]).by(way[old, rest]).ask("GetTask", {"id": id}).result["id"] == id
        listed.add(way[old, rest])
    assert {Way.RPC, Way.REST} <= listed


@C.line("V1-CARD-05", Level.SHOULD_NOT, "versions have no patch number", ways=_ONCE)
def versions_have_two_numbers(at: Speaker) -> None:
    versions = [one["protocolVersion"] for one in _card(at).json["supportedInterfaces"]]
    assert versions
    assert all(re.fullmatch(r"\d+\.\d+", version) for version in versions)


@C.line("V1-CARD-06", Level.MUST, "a server of 1.0 only has no other members in its card", ways=_ONCE)
def the_card_is_pure(at: Speaker) -> None:
    pure = _card(at.on("modern")).json
    assert set(REQUIRED) <= pure.keys()
    _assert_known(pure, "")


def _assert_known(value: Any, name: str) -> None:
    for item in value if isinstance(value, list) else [value]:
        if name in _KNOWN:
            assert not item.keys() - _KNOWN[name], (name, item)
            for member, inner in item.items():
                _assert_known(inner, member)


@C.line("V1-CARD-07", Level.SHOULD, "interfaces are in order of preference", ways=_ONCE)
def addresses_are_in_order(at: Speaker) -> None:
    bindings = [one["protocolBinding"] for one in card(at.on("modern"))["supportedInterfaces"]]
    turned = [one["protocolBinding"] for one in card(at.on("restful"))["supportedInterfaces"]]
    assert (bindings[0], turned[0]) == ("JSONRPC", "HTTP+JSON")
    assert sorted(bindings) == sorted(turned)


@C.line("V1-CACHE-01", Level.SHOULD, "the card has a cache lifetime", ways=_ONCE)
def the_card_may_be_kept(at: Speaker) -> None:
    assert re.search(r"max-age=[1-9]\d*", _card(at).headers["Cache-Control"])


@C.line("V1-CACHE-02", Level.SHOULD, "the ETag of an unchanged card is constant", ways=_ONCE)
def the_card_has_a_tag(at: Speaker) -> None:
    tags = {_card(at).headers["ETag"] for _ in range(3)}
    assert len(tags) == 1
    assert re.fullmatch(r'(W/)?"[^"]+"', tags.pop())


C.without_check(
    "V1-CACHE-03",
    Level.MAY,
    "the card has a modification time",
    Verdict.UNMET,
    "one validator is enough, and it is the tag",
)


@C.line("V1-CACHE-04", Level.SHOULD, "a cached card is not sent again", ways=_ONCE)
def a_cached_card_is_not_sent_again(at: Speaker) -> None:
    tag = _card(at).headers["ETag"]
    for condition in (tag, f"W/{tag.removeprefix('W/')}", f'"other", {tag}', "*"):
        reply = _card(at, If_None_Match=condition)
        assert (reply.status, reply.body, reply.headers["ETag"]) == (304, b"", tag)
    assert _card(at, If_None_Match='"other"').status == 200


@C.line("V1-CACHE-05", Level.SHOULD, "a changed card has another ETag", ways=_ONCE)
def another_card_has_another_tag(at: Speaker) -> None:
    tags = {_card(at.on(kind)).headers["ETag"] for kind in ("plain", "modern", "restful", "mute")}
    assert len(tags) == 4


# -- the extended card --------------------------------------------------------------------------------------------------


@C.line("V1-XCARD-01", Level.MUST, "without the capability there is no extended card")
def without_the_capability(at: Speaker) -> None:
    assert not card(at)["capabilities"].get("extendedAgentCard")
    at.ask("GetExtendedAgentCard", {}).refuses("UnsupportedOperation")


@C.line("V1-XCARD-02", Level.MUST, "a declared but missing extended card is reported as such")
def declared_and_not_there(at: Speaker) -> None:
    promised = at.on("promised")
    assert card(promised)["capabilities"]["extendedAgentCard"] is True
    promised.ask("GetExtendedAgentCard", {}).refuses("ExtendedCardNotConfigured")


@C.line("V1-XCARD-03", Level.MUST, "it requires authentication", ways=BOTH)
def the_extended_card_needs_a_caller(at: Speaker) -> None:
    secured = at.on("secured")
    assert secured.ask("GetExtendedAgentCard", {}).status == 401
    assert secured.as_user("ada").ask("GetExtendedAgentCard", {}).result


@C.line("V1-XCARD-04", Level.MUST, "it is a complete card", ways=BOTH)
def the_extended_card_is_whole(at: Speaker) -> None:
    extended = at.on("secured").as_user("ada").ask("GetExtendedAgentCard", {}).result
    assert not [name for name in REQUIRED if name not in extended]
    assert extended["supportedInterfaces"] == card(at.on("secured"))["supportedInterfaces"]
    assert "secret" in {skill["id"] for skill in extended["skills"]}
    _assert_known({**extended, "securitySchemes": {}}, "")


@C.line("V1-XCARD-05", Level.SHOULD, "shared caches do not store it", ways=(Way.REST,))
def the_extended_card_is_private(at: Speaker) -> None:
    reply = at.on("secured").as_user("ada").ask("GetExtendedAgentCard", {})
    assert re.search(r"\b(private|no-store)\b", reply.headers["Cache-Control"])


# -- capabilities -------------------------------------------------------------------------------------------------------


@C.line("V1-CAP-01", Level.MUST, "streaming is refused as such if it is not supported")
def streaming_is_refused_if_not_supported(at: Speaker) -> None:
    mute = at.on("mute")
    assert not card(mute)["capabilities"].get("streaming")
    mute.ask("SendStreamingMessage", message("echo")).refuses("UnsupportedOperation")
    held = mute.begin(f"hold {new_name()}")["id"]
    mute.ask("SubscribeToTask", {"id": held}).refuses("UnsupportedOperation")
    mute.ask("CancelTask", {"id": held})
    assert mute.task("echo")["artifacts"]


@C.line("V1-CAP-02", Level.MUST, "features that the card does not declare are not offered")
def what_is_not_named_is_not_offered(at: Speaker) -> None:
    named = card(at)["capabilities"]
    assert not {name for name in ("pushNotifications", "extendedAgentCard") if named.get(name)}
    at.ask("ListTaskPushNotificationConfigs", {"taskId": UNKNOWN}).refuses("PushNotificationNotSupported")
    at.ask("GetExtendedAgentCard", {}).refuses("UnsupportedOperation")


# -- extensions ---------------------------------------------------------------------------------------------------------


@C.line("V1-EXT-01", Level.MUST, "a required extension must be requested")
def a_required_extension_must_be_named(at: Speaker) -> None:
    demanding = at.on("demanding")
    demanding.send("echo").refuses("ExtensionSupportRequired")
    demanding.ask("SendStreamingMessage", message("echo")).refuses("ExtensionSupportRequired")
    assert demanding.with_headers(A2A_Extensions=NEEDED).task("echo")["artifacts"]


@C.line("V1-EXT-02", Level.SHOULD, "an unknown extension is ignored")
def an_unknown_extension_is_passed_over(at: Speaker) -> None:
    assert at.with_headers(A2A_Extensions="https://example.com/unheard-of").task("echo")["artifacts"]


@C.line("V1-EXT-03", Level.SHOULD, "the response lists the active extensions")
def active_extensions_are_named(at: Speaker) -> None:
    asked = at.with_headers(A2A_Extensions=f"https://example.com/unheard-of, {EXTENSION}")
    assert asked.send("echo").headers["A2A-Extensions"] == EXTENSION
    assert received(asked)["extensions"] == [EXTENSION]
    assert "A2A-Extensions" not in at.send("echo").headers


@C.line("V1-EXT-04", Level.MUST_NOT, "another version of an extension is another extension")
def versions_of_extensions_differ(at: Speaker) -> None:
    asked = at.with_headers(A2A_Extensions=EXTENSION.replace("/v1", "/v2"))
    assert "A2A-Extensions" not in asked.send("echo").headers
    assert EXTENSION not in received(asked)["extensions"]


@C.line("V1-EXT-05", Level.MUST, "header names are case-insensitive")
def headers_have_no_case(at: Speaker) -> None:
    asked = at.request("SendMessage", message("report"))
    headers = {name.lower(): value for name, value in asked.headers.items()} | {"a2a-EXTENSIONS": EXTENSION}
    task = at.exchange(asked.verb, asked.path, asked.body, headers).result["task"]
    assert task["artifacts"][0]["parts"][0]["data"]["extensions"] == [EXTENSION]


# -- versions -----------------------------------------------------------------------------------------------------------


def _under(at: Speaker, version: str | None, query: str = "") -> Reply:
    asked = at.request("SendMessage", message("echo"), A2A_Version=version)
    return at.exchange(asked.verb, asked.path + query, asked.body, asked.headers)


@C.line("V1-VER-01", Level.MUST, "version 1.0 selects 1.0")
def version_1_0_is_known(at: Speaker) -> None:
    assert set(_under(at, "1.0").result) == {"task"}


@C.line("V1-VER-02", Level.MUST, "an unknown version is refused")
def unknown_versions_are_refused(at: Speaker) -> None:
    for version in ("99.0", "2.0", "1.1", "0.9", "abc"):
        _under(at, version).refuses("VersionNotSupported")


@C.line("V1-VER-03", Level.MUST, "an absent version selects 0.3", ways=BOTH)
def no_version_is_0_3(at: Speaker) -> None:
    for one in (at, at.on("modern")):
        for version in (None, "", "0.3"):
            _under(one, version).refuses("VersionNotSupported")


@C.line("V1-VER-04", Level.MUST, "a patch number is ignored")
def patch_numbers_change_nothing(at: Speaker) -> None:
    assert set(_under(at, "1.0.7").result) == {"task"}


@C.line("V1-VER-05", Level.CHOICE, "the version may be in the query", ways=BOTH)
def the_version_may_stand_in_the_query(at: Speaker) -> None:
    assert set(_under(at, None, "?A2A-Version=1.0").result) == {"task"}
    _under(at, None, "?A2A-Version=99.0").refuses("VersionNotSupported")


@C.line("V1-VER-06", Level.SHOULD, "the error for another version lists the supported ones")
def versions_are_named(at: Speaker) -> None:
    reply = _under(at, "99.0")
    assert "1.0" in str(reply.error)
