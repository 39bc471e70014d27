"""Version 0.3, broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from a2a_sync import operations as op
from a2a_sync.client.stream import TaskStream
from a2a_sync.errors import (
    AgentError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.operations import Call, Endpoint
from tests.conformance.breaking import (
    Answer,
    Asked,
    answering,
    around_calls,
    asking,
    asking_with,
    calling,
    changing_json,
    deep,
    events,
    forgiving,
    in_parameters,
    posting,
    replaced,
    result_of,
    streaming,
    with_requests,
    with_streams,
)
from tests.conformance.ours import Variant
from tests.conformance.variants.bindings import recoded, rpc_answers
from tests.conformance.variants.both import only
from tests.conformance.variants.offers import changed_card, notification_headers
from tests.conformance.variants.operations import SENDS, as_new, configured, looked_at
from tests.conformance.variants.streams import Fixed, Missing


def _without(*names: str) -> Any:
    return changing_json(deep(lambda members: {n: v for n, v in members.items() if n not in names}))


def _state(members: dict[str, Any]) -> dict[str, Any]:
    state = members.get("state")
    return {**members, "state": "TASK_STATE_" + state.upper().replace("-", "_")} if isinstance(state, str) else members


def _wrapped(result: Any) -> Any:
    kind = result.get("kind") if isinstance(result, dict) else None
    return {kind: result} if kind in ("task", "message") else result


def _always_final(value: Any) -> Any:
    return deep(lambda members: {**members, "final": True} if "final" in members else members)(value)


def _never_final(value: Any) -> Any:
    return deep(lambda members: {**members, "final": False} if "final" in members else members)(value)


def _unframed(answer: Answer) -> None:
    if answer.error is not None and answer.error.get("code") == -32700:
        answer.status = 400


def _listing(asked: Asked) -> None:
    value = asked.value
    if isinstance(value, dict) and value.get("method") == "tasks/list":
        asked.value = {**value, "method": "ListTasks", "params": {}}
        asked.environ["HTTP_A2A_VERSION"] = "1.0"


def _as_object(value: Any) -> Any:
    return {**value, "result": {"configs": value["result"]}} if isinstance(value.get("result"), list) else value


def _config_needed(endpoint: Endpoint, call: Call) -> Any:
    if call.operation is op.GET_PUSH_CONFIG and not call.request.id:
        raise InvalidParamsError.at("pushNotificationConfigId", "is required")
    return endpoint(call)


def _raise(error: AgentError) -> Callable[[Endpoint, Call], Any]:
    def instead(endpoint: Endpoint, call: Call) -> Any:
        raise error

    return instead


def _bare_schemes(card: dict[str, Any]) -> None:
    for scheme in card.get("securitySchemes", {}).values():
        scheme.pop("type", None)


def _transport(card: dict[str, Any]) -> None:
    if "preferredTransport" in card:
        card["preferredTransport"] = "HTTP+JSON" if card["preferredTransport"] == "JSONRPC" else "JSONRPC"


def _without_main(card: dict[str, Any]) -> None:
    if "additionalInterfaces" in card:
        card["additionalInterfaces"] = [
            one for one in card["additionalInterfaces"] if one["transport"] != card["preferredTransport"]
        ]


def _conflicting(card: dict[str, Any]) -> None:
    if "additionalInterfaces" in card:
        card["additionalInterfaces"].append({"url": card["url"], "transport": "GRPC"})


def _one_transport(card: dict[str, Any]) -> None:
    card["additionalInterfaces"] = [
        one for one in card.get("additionalInterfaces", ()) if one["transport"] == card["preferredTransport"]
    ]


def _not_there(answer: Answer) -> None:
    if answer.environ["PATH_INFO"] == "/.well-known/agent.json":
        answer.status = 404


def _anonymous(asked: Asked) -> None:
    if asked.is_for("agent/getAuthenticatedExtendedCard", "/v1/card"):
        asked.environ.setdefault("HTTP_AUTHORIZATION", "Bearer token-of-ada")


def _authenticated(asked: Asked) -> None:
    asked.environ.setdefault("HTTP_AUTHORIZATION", "Bearer token-of-ada")


def _over_rest(change: Callable[[Any], Any]) -> Any:
    def whole(answer: Answer) -> None:
        if "/v1/" in answer.environ["PATH_INFO"] and answer.value is not None:
            answer.value = change(answer.value)

    return answering(whole)


def _kinds(members: dict[str, Any]) -> dict[str, Any]:
    state = members.get("state")
    if isinstance(state, str):
        return {**members, "state": state.removeprefix("TASK_STATE_").lower().replace("_", "-")}
    return {"kind": "task", **members} if "status" in members else members


def _camel_only(asked: Asked) -> None:
    if "/v1/" in asked.environ["PATH_INFO"] and asked.value is not None:
        asked.value = deep(lambda members: {n: v for n, v in members.items() if "_" not in n})(asked.value)


def _no_echo(answer: Answer) -> None:
    answer.headers.pop("X-A2A-Extensions", None)


def _objects_only(asked: Asked) -> None:
    """Data that is no object is refused."""
    if asked.value is not None:
        asked.value = deep(
            lambda members: {n: 1 if n == "data" and isinstance(v, list) else v for n, v in members.items()}
        )(asked.value)


def _never_over(method: Any) -> Any:
    """`final` is ignored."""

    def take(self: Any, item: Any) -> None:
        method(self, replace(item, last=False))
        if not self.state.terminal:
            self._over = False

    return take


def _generic(endpoint: Endpoint, call: Call) -> Any:
    try:
        return endpoint(call)
    except AgentError as error:
        raise AgentError(error.message) from None


def _as_1_0(asked: dict[str, Any]) -> None:
    if asked.get("data"):
        body = b"".join(asked["data"]) if not isinstance(asked["data"], (bytes, str)) else asked["data"]
        asked["data"] = body.replace(b'"role":"user"', b'"role":"ROLE_USER"') if isinstance(body, bytes) else body


BROKEN: dict[str, Variant] = {
    "card without version": Variant(
        "V03-CARD-01",
        "the card lacks `protocolVersion`",
        wsgi=changed_card(lambda card: card.pop("protocolVersion", None)),
    ),
    "another transport": Variant("V03-CARD-02", "the preferred transport is wrong", wsgi=changed_card(_transport)),
    "one transport": Variant("V03-CARD-03", "the card lists one transport of two", wsgi=changed_card(_one_transport)),
    "main not repeated": Variant(
        "V03-CARD-04", "the main transport is not listed again", wsgi=changed_card(_without_main)
    ),
    "conflicting": Variant("V03-CARD-05", "two transports conflict at one URL", wsgi=changed_card(_conflicting)),
    "no old path": Variant("V03-CARD-06", "the card is not at the path of 0.2", wsgi=answering(_not_there)),
    "bare schemes": Variant("V03-CARD-07", "security schemes have no `type`", wsgi=changed_card(_bare_schemes)),
    "ids as texts": Variant(
        "V03-RPC-01",
        "ids are returned as strings",
        wsgi=rpc_answers(lambda value: {**value, "id": value["id"] if value["id"] is None else str(value["id"])}),
    ),
    "status of malformed": Variant(
        "V03-RPC-02", "a body that is not JSON has another status", wsgi=answering(_unframed)
    ),
    "any kind of request": Variant(
        "V03-RPC-03",
        "the version of JSON-RPC is ignored",
        wsgi=asking_with(lambda value: {**value, "jsonrpc": "2.0"} if isinstance(value, dict) else value),
    ),
    "tasks listed": Variant("V03-RPC-04", "`tasks/list` is implemented", wsgi=asking(_listing)),
    "params unread": Variant("V03-RPC-05", "invalid params are an invalid request", wsgi=recoded(_m32602=-32600)),
    "nine methods": Variant(
        "V03-RPC-06",
        "a method is missing",
        wsgi=asking_with(
            lambda value: (
                {**value, "method": "tasks/unsubscribe"}
                if isinstance(value, dict) and value.get("method") == "tasks/resubscribe"
                else value
            )
        ),
    ),
    "no kind": Variant("V03-SEND-01", "results have no `kind`", wsgi=_without("kind")),
    "wrapped": Variant("V03-SEND-01", "results are wrapped, as in 1.0", wsgi=changing_json(result_of(_wrapped))),
    "new states": Variant("V03-SEND-01", "states are those of 1.0", wsgi=changing_json(deep(_state))),
    "never continued": Variant(
        "V03-SEND-02",
        "a message to a task starts a new one",
        app=with_requests(lambda request: replace(request, message=replace(request.message, task_id="")), *SENDS),
    ),
    "ended and begun": Variant(
        "V03-SEND-03",
        "a message to a terminal task starts a new one",
        app=forgiving(UnsupportedOperationError, as_new, op.SEND_MESSAGE),
    ),
    "unknown and begun": Variant(
        "V03-SEND-04",
        "a message to an unknown task starts a new one",
        app=forgiving(TaskNotFoundError, as_new, op.SEND_MESSAGE),
    ),
    "files without names": Variant("V03-SEND-05", "files lose their names", wsgi=_without("name", "mimeType")),
    "empty message": Variant(
        "V03-SEND-06",
        "a message without parts is accepted",
        wsgi=in_parameters("parts", lambda parts: parts or [{"kind": "text", "text": "echo"}]),
    ),
    "any kind": Variant(
        "V03-SEND-07",
        "a part of an unknown kind is accepted as text",
        wsgi=asking_with(
            deep(
                lambda members: (
                    {"kind": "text", "text": "echo"}
                    if isinstance(members.get("kind"), str)
                    and members["kind"] not in ("text", "file", "data", "message")
                    else members
                )
            )
        ),
    ),
    "waits anyway": Variant(
        "V03-SEND-08",
        "`blocking: false` waits",
        app=with_requests(configured(return_immediately=False), op.SEND_MESSAGE),
    ),
    "never waits": Variant(
        "V03-SEND-08",
        "a send does not wait by default",
        app=with_requests(configured(return_immediately=True), op.SEND_MESSAGE),
    ),
    "whole history": Variant(
        "V03-SEND-09",
        "the history length is ignored",
        app=with_requests(lambda request: replace(request, history_length=None), op.GET_TASK),
    ),
    "no arrays": Variant("V03-SEND-10", "data that is an array is refused", wsgi=asking(_objects_only)),
    "references refused": Variant(
        "V03-SEND-11",
        "references to other tasks are refused",
        wsgi=in_parameters("referenceTaskIds", lambda ids: "none"),
    ),
    "tasks without state": Variant("V03-TASK-01", "a task has no status", wsgi=_without("status")),
    "empty tasks": Variant(
        "V03-TASK-02",
        "an unknown task cannot be read",
        app=forgiving(TaskNotFoundError, _raise(InvalidParamsError("no such task")), op.GET_TASK),
    ),
    "two spellings": Variant(
        "V03-TASK-03",
        "a task that is canceled is `cancelled`",
        wsgi=changing_json(
            deep(lambda members: {**members, "state": "cancelled"} if members.get("state") == "canceled" else members)
        ),
    ),
    "cancelled again": Variant(
        "V03-TASK-04",
        "the cancel of a terminal task succeeds",
        app=forgiving(TaskNotCancelableError, looked_at, op.CANCEL_TASK),
    ),
    "bare frames": Variant(
        "V03-STRM-01", "events have no JSON-RPC envelope", wsgi=streaming(events(lambda value: value.get("result")))
    ),
    "frames without kind": Variant(
        "V03-STRM-02",
        "events have no `kind`",
        wsgi=streaming(events(deep(lambda members: {n: v for n, v in members.items() if n != "kind"}))),
    ),
    "all final": Variant("V03-STRM-03", "every status is final", wsgi=streaming(events(_always_final))),
    "none final": Variant("V03-STRM-03", "no status is final", wsgi=streaming(events(_never_final))),
    "gap after joining": Variant(
        "V03-STRM-05", "events after the task are dropped", app=with_streams(Missing, op.SUBSCRIBE_TO_TASK)
    ),
    "silence for nothing": Variant(
        "V03-STRM-06",
        "a stream of an unknown task is empty",
        app=forgiving(TaskNotFoundError, lambda endpoint, call: Fixed(), op.SUBSCRIBE_TO_TASK),
    ),
    "webhook without URL": Variant(
        "V03-PUSH-01",
        "a configuration is returned without its URL",
        wsgi=changing_json(deep(lambda members: {n: v for n, v in members.items() if n != "url"})),
    ),
    "config id needed": Variant("V03-PUSH-02", "the id of a configuration is required", app=calling(_config_needed)),
    "list in an object": Variant(
        "V03-PUSH-03", "the list of configurations is an object", wsgi=rpc_answers(_as_object)
    ),
    "deleted object": Variant(
        "V03-PUSH-04",
        "a delete returns an empty object",
        wsgi=rpc_answers(
            lambda value: {**value, "result": {}} if "result" in value and value["result"] is None else value
        ),
    ),
    "webhooks of nothing": Variant(
        "V03-PUSH-05",
        "a configuration for an unknown task is accepted",
        app=forgiving(TaskNotFoundError, lambda endpoint, call: call.request, op.CREATE_PUSH_CONFIG),
    ),
    "no webhooks": Variant(
        "V03-PUSH-06", "the error for missing push support has another code", wsgi=recoded(_m32003=-32004)
    ),
    "new notifications": Variant(
        "V03-PUSH-07",
        "notifications are those of 1.0",
        inside=replaced("a2a_sync.push.notification", "by_version", only("1.0")),
    ),
    "no credentials": Variant(
        "V03-PUSH-08",
        "notifications have no credentials",
        inside=notification_headers(lambda headers: {n: v for n, v in headers.items() if n != "Authorization"}),
    ),
    "invented codes": Variant("V03-ERR-01", "errors have other codes", wsgi=recoded(_m32001=-32050, _m32002=-32051)),
    "types unsupported": Variant(
        "V03-ERR-02", "media types are refused with another code", wsgi=recoded(_m32005=-32602)
    ),
    "open card": Variant("V03-XCARD-01", "the extended card is public", wsgi=asking(_anonymous)),
    "new card": Variant(
        "V03-XCARD-02",
        "the extended card lacks members of 0.3",
        wsgi=changing_json(
            deep(lambda members: {n: v for n, v in members.items() if n not in ("url", "protocolVersion")})
        ),
    ),
    "no card": Variant("V03-XCARD-03", "a missing extended card has another code", wsgi=recoded(_m32007=-32603)),
    "old prefix": Variant(
        "V03-REST-01",
        "paths have no `/v1`",
        wsgi=asking(lambda asked: asked.environ.update(PATH_INFO=asked.environ["PATH_INFO"].replace("/v1/", "/v0/"))),
    ),
    "kinds over HTTP+JSON": Variant(
        "V03-REST-02", "HTTP+JSON uses the JSON of JSON-RPC", wsgi=_over_rest(deep(_kinds))
    ),
    "camel over HTTP+JSON": Variant("V03-REST-03", "snake_case names are ignored", wsgi=asking(_camel_only)),
    "type of 1.0": Variant(
        "V03-REST-04",
        "HTTP+JSON has the media type of 1.0",
        wsgi=answering(
            lambda answer: (
                answer.headers.set("Content-Type", "application/a2a+json")
                if "/v1/" in answer.environ["PATH_INFO"]
                else None
            )
        ),
    ),
    "unlike transports": Variant(
        "V03-REST-05",
        "tasks over HTTP+JSON lack their artifacts",
        wsgi=_over_rest(deep(lambda members: {n: v for n, v in members.items() if n != "artifacts"})),
    ),
    "unauthenticated": Variant("V03-AUTH-01", "requests are not authenticated", wsgi=asking(_authenticated)),
    "no challenge": Variant(
        "V03-AUTH-02",
        "a refusal does not name the scheme",
        wsgi=answering(lambda answer: answer.headers.remove("WWW-Authenticate")),
    ),
    "silent extensions": Variant("V03-EXT-01", "the active extensions are not returned", wsgi=answering(_no_echo)),
    "roles of 1.0": Variant("V03-C-02", "the client sends the roles of 1.0", client=posting(_as_1_0)),
    "generic errors": Variant("V03-C-03", "the client raises one class for all errors", client=around_calls(_generic)),
    "final ignored": Variant(
        "V03-C-04", "the client ignores `final`", inside=replaced(TaskStream, "_apply", _never_over)
    ),
    "one place": Variant(
        "V03-C-05",
        "the client requests the card at one path only",
        inside=replaced("a2a_sync.client.cards", "card_urls", lambda made: lambda url: made(url)[:1]),
    ),
}
