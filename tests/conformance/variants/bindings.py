"""Bindings and errors, broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from a2a_sync import A2AApp, Artifact, HTTPOptions, Task, TaskState
from a2a_sync import operations as op
from a2a_sync.errors import InternalError
from a2a_sync.operations import Call, Endpoint
from tests.conformance.breaking import (
    Answer,
    Asked,
    answering,
    asking,
    asking_with,
    calling,
    changing_json,
    events,
    streaming,
    with_results,
)
from tests.conformance.ours import Variant

REST_PATHS = ("/message:", "/tasks", "/extendedAgentCard")


def _over_rest(answer: Answer | Asked) -> bool:
    return any(path in answer.environ["PATH_INFO"] for path in REST_PATHS)


def rpc_answers(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Answers of JSON-RPC are changed, events included."""
    return changing_json(lambda value: change(value) if isinstance(value, dict) and "jsonrpc" in value else value)


def _error(change: Callable[[dict[str, Any]], Any], *, rest: bool | None = None) -> Any:
    """The error of an answer is changed."""

    def whole(answer: Answer) -> None:
        value = answer.value
        if answer.error is not None and rest in (None, "jsonrpc" not in value):
            changed = change(value["error"])
            answer.value = {**value, "error": value["error"] if changed is None else changed}

    return answering(whole)


def recoded(**codes: int) -> Any:
    """Errors of JSON-RPC have another code."""
    known = {int(name.removeprefix("_").replace("m", "-")): code for name, code in codes.items()}
    return _error(lambda error: {**error, "code": known.get(error["code"], error["code"])}, rest=False)


def _details(change: Callable[[list[Any]], list[Any]]) -> Any:
    def within(error: dict[str, Any]) -> dict[str, Any]:
        return {name: change(value) if name in ("data", "details") else value for name, value in error.items()}

    return _error(within)


def _status(change: Callable[[Answer], int]) -> Any:
    def whole(answer: Answer) -> None:
        answer.status = change(answer)

    return answering(whole)


def _headers(change: Callable[[Answer], Any]) -> Any:
    return answering(lambda answer: change(answer))


def _misnamed(value: Any) -> Any:
    """One method has the name that it had in a draft."""
    if isinstance(value, dict) and value.get("method") == "ListTaskPushNotificationConfigs":
        return {**value, "method": "ListTaskPushNotificationConfig"}
    return value


def _first_of_batch(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _redirecting(app: A2AApp) -> Any:
    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == "" or (environ["PATH_INFO"] == "/" and not environ.get("SCRIPT_NAME")):
            start_response("308 Permanent Redirect", [("Location", "/rpc/")])
            return [b""]
        return app(environ, start_response)

    return answer


def _not_found(answer: Answer) -> int:
    return 404 if answer.status == 405 else answer.status


def _unwrapped(result: Any) -> Any:
    return next(iter(result.values())) if set(result) in ({"task"}, {"message"}) else result


def _bare_over_rest(answer: Answer) -> None:
    if _over_rest(answer) and isinstance(answer.value, dict):
        answer.value = _unwrapped(answer.value)


def _enveloped(value: Any) -> Any:
    return value if "jsonrpc" in value else {"jsonrpc": "2.0", "id": None, "result": value}


def _enveloped_over_rest(answer: Answer) -> None:
    if _over_rest(answer) and answer.value is not None and answer.error is None:
        answer.value = {"result": answer.value}


def _by_post(asked: Asked) -> None:
    if asked.environ["REQUEST_METHOD"] == "DELETE":
        asked.environ["PATH_INFO"] += "/no-such-path"


def _without_tenant(asked: Asked) -> None:
    """The first segment is passed over."""
    head, slash, rest = asked.environ["PATH_INFO"].lstrip("/").partition("/")
    if slash and head not in ("tasks", "v1", ".well-known") and not head.startswith("message:"):
        asked.environ["PATH_INFO"] = "/" + rest
        for name in ("REQUEST_URI", "RAW_URI"):
            asked.environ.pop(name, None)


def _body_needed(app: A2AApp) -> Any:
    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        bare = environ["REQUEST_METHOD"] == "POST" and environ.get("CONTENT_LENGTH") in (None, "", "0")
        if bare and _over_rest(Answer(environ, 0, None, b"")):  # type: ignore[arg-type]
            body = b'{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"a body is required","details":[]}}'
            start_response(
                "400 Bad Request", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
            )
            return [body]
        return app(environ, start_response)

    return answer


def _body_wins(asked: Asked) -> None:
    """A task that the body names stands over that of the path."""
    path, value = asked.environ["PATH_INFO"], asked.value
    if "/pushNotificationConfigs" in path and isinstance(value, dict) and value.get("taskId"):
        asked.environ["PATH_INFO"] = f"/tasks/{value['taskId']}/pushNotificationConfigs"


def _empty_body(answer: Answer) -> None:
    if answer.status in (404, 405) and answer.error is not None:
        answer.body = b""


def _crashing(answer: Answer) -> int:
    error = answer.error or {}
    return 500 if _over_rest(answer) and "JSON" in str(error.get("message")) else answer.status


def _query(change: Callable[[dict[str, str]], dict[str, str]]) -> Any:
    def whole(asked: Asked) -> None:
        if asked.environ["QUERY_STRING"]:
            asked.query = change(asked.query)

    return asking(whole)


def _numbers_only(query: dict[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in query.items() if name not in ("pageSize", "historyLength") or value.isdigit()
    }


def _known_only(query: dict[str, str]) -> dict[str, str]:
    return {**query, "pageSize": "0"} if query.keys() & {"foo", "unknown", "x"} else query


def _unlike_rpc(answer: Answer) -> None:
    value = answer.value
    if _over_rest(answer) and isinstance(value, dict) and "history" in value:
        answer.value = {name: item for name, item in value.items() if name != "history"}


def _other_reason(answer: Answer) -> None:
    if _over_rest(answer):
        answer.body = answer.body.replace(b"TASK_NOT_FOUND", b"NOT_FOUND")


def _open_over_rest(asked: Asked) -> None:
    """HTTP+JSON does not authenticate."""
    if _over_rest(asked):
        asked.environ["HTTP_AUTHORIZATION"] = "Bearer token-of-ada"


def _frankly(endpoint: Endpoint, call: Call) -> Any:
    try:
        return endpoint(call)
    except InternalError as error:
        raise InternalError(
            f"{error.message}: Traceback (most recent call last): ValueError: secret-of-the-agent"
        ) from None


def _raising(endpoint: Endpoint, call: Call) -> Any:
    """A task that has failed is an error of the call."""
    result = endpoint(call)
    if isinstance(result, Task) and call.operation is op.SEND_MESSAGE and result.state is TaskState.FAILED:
        raise InternalError("the agent failed")
    return result


def _unchecked(result: Any) -> Any:
    """An artifact without parts is a result."""
    if not isinstance(result, Task) or result.state is not TaskState.FAILED:
        return result
    return replace(result, status=replace(result.status, state=TaskState.COMPLETED), artifacts=(Artifact(parts=()),))


def _untyped(details: list[Any]) -> list[Any]:
    return [{name: value for name, value in one.items() if name != "@type"} for one in details]


def _no_retry(answer: Answer) -> None:
    answer.headers.pop("Retry-After", None)


BROKEN: dict[str, Variant] = {
    "other ids": Variant(
        "V1-RPC-01",
        "numeric ids are returned as strings",
        wsgi=rpc_answers(lambda value: {**value, "id": value["id"] if value["id"] is None else str(value["id"])}),
    ),
    "zero is no id": Variant(
        "V1-RPC-01",
        "the id 0 is returned as null",
        wsgi=rpc_answers(lambda value: {**value, "id": value["id"] or None}),
    ),
    "plain text": Variant(
        "V1-RPC-02",
        "responses have the media type `text/plain`",
        wsgi=_headers(lambda answer: answer.headers.set("Content-Type", "text/plain")),
    ),
    "ten methods": Variant("V1-RPC-03", "a method is missing", wsgi=asking_with(_misnamed)),
    "result and error": Variant(
        "V1-RPC-04",
        "absent members of answers are null",
        wsgi=rpc_answers(lambda value: {"error": None, **value}),
    ),
    "not JSON": Variant("V1-RPC-05", "a body that is not JSON is an invalid request", wsgi=recoded(_m32700=-32600)),
    "id of nothing": Variant(
        "V1-RPC-05",
        "the error for a body that is not JSON has an id",
        wsgi=rpc_answers(lambda value: {**value, "id": "" if value["id"] is None else value["id"]}),
    ),
    "any JSON-RPC": Variant(
        "V1-RPC-06",
        "the version of JSON-RPC is ignored",
        wsgi=asking_with(
            lambda value: {**value, "jsonrpc": "2.0"} if isinstance(value, dict) and "method" in value else value
        ),
    ),
    "unknown methods": Variant("V1-RPC-07", "an unknown method is an invalid request", wsgi=recoded(_m32601=-32600)),
    "bad params": Variant("V1-RPC-08", "invalid params are an invalid request", wsgi=recoded(_m32602=-32600)),
    "one code": Variant(
        "V1-RPC-09",
        "all A2A errors have the same code",
        wsgi=_error(lambda e: {**e, "code": -32000 if -32099 <= e["code"] <= -32001 else e["code"]}, rest=False),
    ),
    "codes mixed up": Variant(
        "V1-RPC-09", "a task that cannot be cancelled is an unsupported operation", wsgi=recoded(_m32002=-32004)
    ),
    "errors without details": Variant(
        "V1-RPC-10",
        "errors have no details",
        wsgi=_error(lambda e: {n: v for n, v in e.items() if n != "data"}, rest=False),
    ),
    "another domain": Variant(
        "V1-RPC-10",
        "the details have another domain",
        wsgi=_details(lambda all: [{**one, "domain": "example.com"} if "domain" in one else one for one in all]),
    ),
    "untyped details": Variant("V1-RPC-11", "details have no type", wsgi=_details(_untyped)),
    "events of no request": Variant(
        "V1-RPC-12",
        "events do not have the id of the request",
        wsgi=streaming(events(lambda value: {**value, "id": None} if "jsonrpc" in value else value)),
    ),
    "events without envelope": Variant(
        "V1-RPC-12",
        "events have no JSON-RPC envelope",
        wsgi=streaming(events(lambda value: value.get("result", value))),
    ),
    "params required": Variant(
        "V1-RPC-13",
        "a request without params is refused",
        wsgi=asking_with(
            lambda value: {"params": [], **value} if isinstance(value, dict) and "method" in value else value
        ),
    ),
    "redirected": Variant("V1-RPC-14", "the URL without a trailing slash is redirected", wsgi=_redirecting),
    "nothing to get": Variant("V1-RPC-15", "a GET of the endpoint is not found", wsgi=_status(_not_found)),
    "no Allow header": Variant(
        "V1-RPC-15",
        "a refusal of another verb does not name the allowed ones",
        wsgi=_headers(lambda answer: answer.headers.pop("Allow", None)),
    ),
    "empty object": Variant(
        "V1-RPC-16",
        "a delete returns an empty object",
        wsgi=rpc_answers(
            lambda value: {**value, "result": {}} if "result" in value and value["result"] is None else value
        ),
    ),
    "first of a batch": Variant(
        "V1-RPC-17", "the first request of a batch is answered", wsgi=asking_with(_first_of_batch)
    ),
    "errors by status": Variant(
        "V1-RPC-18",
        "errors of JSON-RPC have status 400",
        wsgi=_status(lambda answer: 400 if answer.error is not None and answer.status == 200 else answer.status),
    ),
    "delete by POST": Variant("V1-REST-01", "DELETE is not implemented", wsgi=asking(_by_post)),
    "always plain": Variant(
        "V1-REST-02",
        "responses always have the media type `application/json`",
        app=lambda agent, **options: A2AApp(agent, **options, http=HTTPOptions(response_media_type="application/json")),
    ),
    "never plain": Variant(
        "V1-REST-03",
        "responses never have the media type `application/json`",
        app=lambda agent, **options: A2AApp(
            agent, **options, http=HTTPOptions(response_media_type="application/a2a+json")
        ),
    ),
    "bare sends": Variant("V1-REST-04", "a send is answered with the task itself", wsgi=answering(_bare_over_rest)),
    "wrapped results": Variant("V1-REST-04", "results are wrapped", wsgi=answering(_enveloped_over_rest)),
    "codes of JSON-RPC": Variant(
        "V1-REST-05", "errors have the codes of JSON-RPC", wsgi=_error(lambda e: {**e, "code": -32001}, rest=True)
    ),
    "no status name": Variant(
        "V1-REST-05",
        "errors lack the name of their status",
        wsgi=_error(lambda e: {n: v for n, v in e.items() if n != "status"}, rest=True),
    ),
    "no error info": Variant(
        "V1-REST-06", "errors have no reason", wsgi=_details(lambda all: [one for one in all if "reason" not in one])
    ),
    "always 400": Variant(
        "V1-REST-07",
        "every error has status 400",
        wsgi=_status(lambda answer: 400 if answer.status >= 400 else answer.status),
    ),
    "statuses of 1.0.0": Variant(
        "V1-REST-07",
        "a task that cannot be cancelled has status 409",
        wsgi=_status(lambda answer: 409 if b"TASK_NOT_CANCELABLE" in answer.body else answer.status),
    ),
    "events in envelopes": Variant("V1-REST-08", "events have a JSON-RPC envelope", wsgi=streaming(events(_enveloped))),
    "no tenants": Variant("V1-REST-09", "the tenant of a path is dropped", wsgi=asking(_without_tenant)),
    "body required": Variant("V1-REST-10", "a POST without a body is refused", wsgi=_body_needed),
    "wrong verbs": Variant("V1-REST-11", "a wrong verb is not found", wsgi=_status(_not_found)),
    "nothing said": Variant("V1-REST-11", "an unknown path has an empty response", wsgi=answering(_empty_body)),
    "malformed": Variant("V1-REST-12", "a body that is not JSON is an internal error", wsgi=_status(_crashing)),
    "body wins": Variant("V1-REST-13", "a task id in the body overrides the path", wsgi=asking(_body_wins)),
    "page size unread": Variant(
        "V1-QRY-01",
        "`pageSize` in a query is ignored",
        wsgi=_query(lambda query: {name: value for name, value in query.items() if name != "pageSize"}),
    ),
    "everything true": Variant(
        "V1-QRY-02",
        "`false` in a query counts as true",
        wsgi=_query(lambda query: {name: value.replace("false", "true") for name, value in query.items()}),
    ),
    "not decoded": Variant(
        "V1-QRY-02",
        "values in a query are not decoded",
        wsgi=asking(lambda asked: asked.environ.update(QUERY_STRING=asked.environ["QUERY_STRING"].replace("%", "%25"))),
    ),
    "invalid is absent": Variant("V1-QRY-03", "an invalid number is ignored", wsgi=_query(_numbers_only)),
    "unknown refused": Variant("V1-QRY-04", "an unknown parameter is refused", wsgi=_query(_known_only)),
    "unlike each other": Variant("V1-BIND-02", "over HTTP+JSON tasks lack the history", wsgi=answering(_unlike_rpc)),
    "reasons differ": Variant("V1-BIND-03", "the bindings report different reasons", wsgi=answering(_other_reason)),
    "open over one": Variant("V1-BIND-04", "HTTP+JSON does not authenticate", wsgi=asking(_open_over_rest)),
    "errors without message": Variant(
        "V1-ERR-01", "errors have no message", wsgi=_error(lambda e: {**e, "message": ""})
    ),
    "tracebacks": Variant("V1-ERR-02", "internal errors contain the traceback", app=calling(_frankly)),
    "failed calls": Variant("V1-ERR-03", "a failed task is an error of the call", app=calling(_raising)),
    "no time to retry": Variant("V1-ERR-04", "an overload error does not say when to retry", wsgi=answering(_no_retry)),
    "broken output": Variant(
        "V1-ERR-05", "output of an agent is not validated", app=with_results(_unchecked, op.SEND_MESSAGE)
    ),
}
