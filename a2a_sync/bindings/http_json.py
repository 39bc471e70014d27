"""HTTP+JSON: where the members of a request go, and how results and errors are written (spec 11).

For both sides of the wire and all versions; the methods and paths of operations are in `routes`. Queries are
percent-encoded text, bodies are bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints
from urllib.parse import parse_qsl, quote, urlencode

from a2a_sync import errors as e
from a2a_sync import operations as o
from a2a_sync.bindings.routes import TENANT, RouteMatch, write_path
from a2a_sync.codec import Codec, DecodeError
from a2a_sync.codec.base import has_long_texts, load_answer
from a2a_sync.codec.records import camel
from a2a_sync.jsontext import dumps, loads

JSON = "application/json"
_V03 = "0.3"


def media_type(version: str) -> str:
    """The media type of the binding (spec 11.1; 0.3: 3.2.3). Peers of 1.0 use plain JSON as well."""
    return JSON if version == _V03 else "application/a2a+json"


# -- server -------------------------------------------------------------------------------------------------------------


def read_params(match: RouteMatch, operation: o.AnyOperation, query: str, body: bytes | None) -> dict[str, Any]:
    """The members of a request: those of the path override those of the body, and these those of the query.

    `body` is None for a method without one. Beside a body, only the tenant is read from the query.

    Raises:
        JSONParseError, InvalidRequestError, InvalidParamsError: the query or the body cannot be read.
    """
    params = _read_query(operation, query, None if body is None else (TENANT,)) if query else {}
    if body is not None:
        params |= _read_body(body)
    return {**{name: value for name, value in params.items() if camel(name) not in match.members}, **match.members}


def _read_query(operation: o.AnyOperation, query: str, only: Iterable[str] | None) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise e.InvalidParamsError.at("query", "is not UTF-8") from None
    request: type = operation.request
    readers = _readers(request)
    params: dict[str, Any] = {}
    for key, text in pairs:
        name = camel(key)
        if name not in readers or not text or (only is not None and name not in only):
            continue
        if name in params:
            raise e.InvalidParamsError.at(name, "is given more than once")
        params[name] = readers[name](text)
    return params


@cache
def _readers(request: type) -> dict[str, Callable[[str], Any]]:
    """By member that a query can hold (no lists, no objects), the conversion of its text to the JSON that a codec reads."""
    readers: dict[str, Callable[[str], Any]] = {}
    for name, hint in get_type_hints(request).items():
        kinds = set(get_args(hint) or (hint,)) - {type(None)}
        kind = kinds.pop()
        if kinds or not isinstance(kind, type):
            continue
        if issubclass(kind, enum.Enum):
            readers[camel(name)] = _read_name
        elif kind is bool:
            readers[camel(name)] = _read_flag
        elif kind in (str, int, datetime):
            readers[camel(name)] = str
    return readers


def _read_flag(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def _read_name(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else text


def _read_body(body: bytes) -> dict[str, Any]:
    """The object in a body; no body and ``null`` are an empty one."""
    value = loads(body) if body.strip() else None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise e.InvalidRequestError("The body of a request is a JSON object")
    return value


def write_result(result: Any) -> bytes:
    """The body that carries `result`.

    Raises:
        ValueError: it cannot be written as JSON.
    """
    return dumps(result, long_texts=has_long_texts(result))


def write_error(error: e.AgentError, codec: Codec) -> bytes:
    """The body of an error (spec 11.6). It never fails.

    0.3 does not specify a form, so that of 0.3 has the members besides that known clients of 0.3 read.
    """
    written = codec.dump_error(error)
    try:
        return dumps(_error_body(error, codec.version, written, written["message"], written["data"]))
    except ValueError:
        # Its text comes from user code and may be one that UTF-8 cannot hold.
        return dumps(_error_body(error, codec.version, written, error.default_message, None))


def _error_body(
    error: e.AgentError, version: str, written: dict[str, Any], message: str, details: Any
) -> dict[str, Any]:
    status: dict[str, Any] = {"code": error.http_status, "status": error.grpc_status, "message": message}
    if details is not None:
        status["details"] = details
    if version != _V03:
        return {"error": status}
    return {"type": _protocol_name(error), "code": written["code"], "message": message, "error": status}


def _protocol_name(error: e.AgentError) -> str:
    """The protocol's name of an error: that of the nearest class that has one."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == e.__name__)


class BareEvents:
    """The events of a stream as they are (spec 11.7); an error in the middle has a name of its own."""

    error_event = "error"

    def wrap(self, event: bytes) -> bytes:
        """The data of one event."""
        return event

    def wrap_error(self, error: e.AgentError, codec: Codec) -> bytes:
        """The data of an event that holds an error."""
        return write_error(error, codec)


# -- client -------------------------------------------------------------------------------------------------------------


class WireRequest(NamedTuple):
    """A request of the client: `path` begins with a slash and is appended to the interface's URL."""

    verb: str
    path: str
    query: str = ""
    body: bytes | None = None


def write_request(
    operation: o.AnyOperation, params: Mapping[str, Any], version: str = "1.0", verb: str = ""
) -> WireRequest:
    """The request with `params`, with the operation's own method or with `verb`, another one of its route.

    Raises:
        InvalidParamsError: an id that a path cannot contain.
        ValueError: the params cannot be written as JSON or as a query.
    """
    left = dict(params)
    route, path = write_path(version, operation, left)
    verb = verb or route.verb
    if verb == "POST":
        return WireRequest(verb, path, body=dumps(left))
    query = urlencode({name: _query_text(value) for name, value in left.items()}, quote_via=quote)
    return WireRequest(verb, path, query)


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


#: The error of a status where the body names none. Some are those of an earlier release (1.0.0).
_BY_STATUS: dict[int, type[e.AgentError]] = {
    400: e.InvalidParamsError,
    401: e.UnauthenticatedError,
    403: e.PermissionDeniedError,
    404: e.TaskNotFoundError,
    409: e.TaskNotCancelableError,
    413: e.RequestTooLargeError,
    415: e.ContentTypeNotSupportedError,
    422: e.InvalidParamsError,
    429: e.OverloadedError,
    500: e.InternalError,
    501: e.UnsupportedOperationError,
    502: e.InvalidAgentResponseError,
}
#: Those that a server of 0.3 sends with a message only. Proxies do that too, with the others.
_SENT_BY_V03_SERVERS = {400, 404, 409, 415, 422, 500, 501}


def read_answer(body: bytes, status: int, codec: Codec) -> Any:
    """The result in an answer; None where the body is empty.

    Raises:
        AgentError: the error that the peer sent.
        DecodeError: it is neither.
    """
    value = load_answer(body) if body.strip() or status >= 300 else None
    if status >= 300:
        raise _error(value, status, codec)
    return value


def read_event(data: str, name: str, codec: Codec) -> Any:
    """The JSON in one event of a stream.

    Raises:
        AgentError: the error that the peer sent.
        DecodeError: it cannot be read.
    """
    value = load_answer(data)
    if name == "error" or (isinstance(value, dict) and isinstance(value.get("error"), dict)):
        raise _error(value, 500, codec)
    return value


def _error(value: Any, status: int, codec: Codec) -> e.AgentError:
    """The error in a body: by its reason, then by its code, which only 0.3 has, then by the status."""
    body = value if isinstance(value, dict) else {}
    sent = body.get("error")
    if isinstance(sent, dict) and {"status", "details"} & sent.keys():
        sent = {"message": sent.get("message"), "data": sent.get("details"), "status": sent.get("code")}
        if codec.version == _V03:
            sent["code"] = body.get("code")
    elif codec.version == _V03 and isinstance(body.get("message"), str) and _from_v03_server(body, status):
        sent = body
    else:
        # Many proxies send {"error": …} too.
        raise DecodeError("The answer is not an error of the protocol")
    error = codec.load_error(sent)
    if (
        type(error) is e.AgentError
        and error.reason == e.AgentError.reason
        and error.jsonrpc_code == e.AgentError.jsonrpc_code
    ):
        status = sent["status"] if isinstance(sent.get("status"), int) else status
        error = _BY_STATUS.get(status, e.AgentError)(
            error.message, metadata=error.metadata, violations=error.violations, retry_after=error.retry_after
        )
    return error


def _from_v03_server(body: dict[str, Any], status: int) -> bool:
    return isinstance(body.get("code"), int) or status in _SENT_BY_V03_SERVERS
