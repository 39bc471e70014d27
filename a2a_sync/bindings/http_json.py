"""HTTP+JSON as the protocol uses it: which verb and path an operation has, and where the members of a request go (spec 11).

One table, read in both directions: the client makes paths, queries and bodies of it, the server finds operations in them.
Paths and queries are percent-encoded text, bodies are bytes. What a member means, and HTTP itself, are not known here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints
from urllib.parse import parse_qsl, quote, unquote, urlencode

from a2a_sync import errors as e
from a2a_sync import operations as o
from a2a_sync.codec import Codec, InvalidAnswer
from a2a_sync.codec.records import camel
from a2a_sync.jsontext import MAX_ANSWER_DEPTH, dumps, loads

#: The media type of the binding (spec 11.1). Peers use plain ``application/json`` as well.
MEDIA_TYPE = "application/a2a+json"
TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Route:
    """Where an operation is: its path, with members in braces, and its verb. `also` are verbs that a server takes besides."""

    operation: o.Operation
    verb: str
    path: str
    also: tuple[str, ...] = ()

    @property
    def verbs(self) -> tuple[str, ...]:
        return (self.verb, *self.also)


#: The table (spec 5.3, 11.3). A path with a word after a colon stands before the one that would take the word for an id.
ROUTES = (
    Route(o.SEND_MESSAGE, "POST", "message:send"),
    Route(o.SEND_STREAMING_MESSAGE, "POST", "message:stream"),
    Route(o.CANCEL_TASK, "POST", "tasks/{id}:cancel"),
    Route(o.SUBSCRIBE_TO_TASK, "POST", "tasks/{id}:subscribe", also=("GET",)),
    Route(o.GET_TASK, "GET", "tasks/{id}"),
    Route(o.LIST_TASKS, "GET", "tasks"),
    Route(o.CREATE_PUSH_CONFIG, "POST", "tasks/{taskId}/pushNotificationConfigs"),
    Route(o.LIST_PUSH_CONFIGS, "GET", "tasks/{taskId}/pushNotificationConfigs"),
    Route(o.GET_PUSH_CONFIG, "GET", "tasks/{taskId}/pushNotificationConfigs/{id}"),
    Route(o.DELETE_PUSH_CONFIG, "DELETE", "tasks/{taskId}/pushNotificationConfigs/{id}"),
    Route(o.GET_EXTENDED_CARD, "GET", "extendedAgentCard"),
)
_BY_OPERATION = {route.operation: route for route in ROUTES}
#: Tenants that cannot be the first segment of a path: clients take dots out, and ``tasks`` is the beginning of others.
_NOT_IN_FRONT = {".", "..", "tasks"}


class WrongVerbError(e.MethodNotFoundError):
    """The path is one of the protocol's, and the verb is none that it takes. `allowed` is the value for ``Allow``."""

    http_status = 405
    status = "UNIMPLEMENTED"

    def __init__(self, verb: str, allowed: str) -> None:
        super().__init__(f"{verb} is not answered here; allowed: {allowed}")
        self.allowed = allowed


# -- server -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A path of the protocol: what may be done there, and the members that it names."""

    routes: tuple[Route, ...]
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        """The verbs, as ``Allow`` has them. HEAD asks for a GET without its body, which a stream has no use for."""
        verbs = [verb for route in self.routes for verb in route.verbs]
        heads = ["HEAD"] if any(route.verb == "GET" for route in self.routes) else []
        return ", ".join(dict.fromkeys([*verbs, *heads, "OPTIONS"]))

    def operation(self, verb: str) -> o.Operation:
        """What `verb` does here.

        Raises:
            WrongVerbError: nothing.
        """
        for route in self.routes:
            if verb in route.verbs or (verb == "HEAD" and route.verb == "GET"):
                return route.operation
        raise WrongVerbError(verb, self.allowed)

    def params(self, operation: o.Operation, query: str, body: bytes | None) -> dict[str, Any]:
        """The request's members: those in the path stand over those in the body, and these over those in the query.

        `body` is None for a verb that has none. Only the tenant may stand in a query beside a body.

        Raises:
            JSONParseError, InvalidRequestError, InvalidParamsError: what is there cannot be read.
        """
        params = _read_query(operation, query, None if body is None else (TENANT,))
        if body is not None:
            params |= _read_body(body)
        return {**{name: value for name, value in params.items() if camel(name) not in self.members}, **self.members}


def find(path: str) -> Place | None:
    """What is at a path (percent-encoded, from the URL of the interface on); None: nothing of the protocol.

    Raises:
        InvalidParamsError: a member in it is not UTF-8.
    """
    segments = path.split("/")[1:]
    tenant = {TENANT: segments[0]} if segments and segments[0] else None
    for named, rest in (({}, segments), (tenant, segments[1:])):
        members = None if named is None else _matching(rest, named)
        if members is not None:
            return members
    return None


def _matching(segments: list[str], named: Mapping[str, str]) -> Place | None:
    for route in ROUTES:
        found = _members(route.path, segments)
        if found is not None:
            same = tuple(other for other in ROUTES if other.path == route.path)
            return Place(same, {name: _decoded(name, text) for name, text in {**named, **found}.items()})
    return None


def _members(path: str, segments: list[str]) -> dict[str, str] | None:
    """The members in `segments`, still encoded, if these are of the form `path`."""
    templates = path.split("/")
    if len(templates) != len(segments):
        return None
    found = {}
    for template, segment in zip(templates, segments, strict=True):
        name, word = _slot(template)
        if not name:
            if segment != template:
                return None
            continue
        # Ids may hold colons: only the last one begins a word, and only if it is this word.
        text = segment.removesuffix(word)
        if not text or not segment.endswith(word):
            return None
        found[name] = text
    return found


def _slot(template: str) -> tuple[str, str]:
    """``{id}:cancel`` as ``id`` and ``:cancel``; a segment without a member has no name."""
    if not template.startswith("{"):
        return "", ""
    name, _, word = template[1:].partition("}")
    return name, word


def _decoded(name: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise e.InvalidParamsError.at(name, "is not UTF-8") from None


def _read_query(operation: o.Operation, query: str, only: Iterable[str] | None) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise e.InvalidParamsError.at("query", "is not UTF-8") from None
    readers = _readers(operation.request)
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
    """How the members that a query can say (no lists, no objects) become the JSON that a codec reads."""
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
        ValueError: JSON cannot say it.
    """
    return dumps(result)


def write_error(error: e.A2AError, codec: Codec) -> bytes:
    """The body that tells an error (spec 11.6). It never fails."""
    said: dict[str, Any] = {"code": error.http_status, "status": error.status}
    written = codec.dump_error(error)
    try:
        return dumps({"error": {**said, "message": written["message"], "details": written["data"]}})
    except ValueError:
        # Its text comes from user code and may be one that UTF-8 cannot hold.
        return dumps({"error": {**said, "message": error.default_message}})


class BareEvents:
    """The events of a stream as they are (spec 11.7); an error in the middle has a name of its own."""

    error_event = "error"

    def wrap(self, event: bytes) -> bytes:
        """The data of one event."""
        return event

    def wrap_error(self, error: e.A2AError, codec: Codec) -> bytes:
        """The data of an event that tells an error."""
        return write_error(error, codec)


# -- client -------------------------------------------------------------------------------------------------------------


class WireRequest(NamedTuple):
    """A request as it goes out: `path` begins with a slash and goes behind the interface's URL."""

    verb: str
    path: str
    query: str = ""
    body: bytes | None = None


def write_request(operation: o.Operation, params: Mapping[str, Any]) -> WireRequest:
    """The request that says `params`.

    Raises:
        InvalidParamsError: an id that no path can hold.
        ValueError: JSON, or a URL, cannot say the params.
    """
    route = _BY_OPERATION[operation]
    left = dict(params)
    path = "/".join(_filled(template, left) for template in route.path.split("/"))
    if left.get(TENANT) and left[TENANT] not in _NOT_IN_FRONT:
        path = f"{quote(left.pop(TENANT), safe='')}/{path}"
    if route.verb == "POST":
        return WireRequest(route.verb, "/" + path, body=dumps(left))
    query = urlencode({name: _said(value) for name, value in left.items()}, quote_via=quote)
    return WireRequest(route.verb, "/" + path, query)


def _filled(template: str, params: dict[str, Any]) -> str:
    name, word = _slot(template)
    if not name:
        return template
    text = params.pop(name, "")
    if not text:
        raise e.InvalidParamsError.at(name, "is required")
    if text in (".", "..") and not word:
        raise e.InvalidParamsError.at(name, f"{text!r} cannot stand in a path")
    return quote(text, safe="") + word


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


#: What a status stands for where no reason is given. Some are those of an earlier release (1.0.0).
_BY_STATUS: dict[int, type[e.A2AError]] = {
    400: e.InvalidParamsError,
    401: e.UnauthenticatedError,
    403: e.PermissionDeniedError,
    404: e.TaskNotFoundError,
    409: e.TaskNotCancelableError,
    413: e.RequestTooLargeError,
    415: e.ContentTypeNotSupportedError,
    429: e.OverloadedError,
    500: e.InternalError,
    502: e.InvalidAgentResponseError,
}


def read_answer(body: bytes, status: int, codec: Codec) -> Any:
    """The result in an answer; None where the body is empty.

    Raises:
        A2AError: the answer is an error; this is the peer's.
        InvalidAnswer: it is neither.
    """
    value = _value(body) if body.strip() or status >= 300 else None
    if status >= 300:
        raise _error(value, codec)
    return value


def read_event(data: str, name: str, codec: Codec) -> Any:
    """The JSON in one event of a stream.

    Raises:
        A2AError: the event tells an error; this is the peer's.
        InvalidAnswer: it cannot be read.
    """
    value = _value(data)
    if name == "error" or (isinstance(value, dict) and isinstance(value.get("error"), dict)):
        raise _error(value, codec)
    return value


def _value(body: bytes | str) -> Any:
    try:
        return loads(body, max_depth=MAX_ANSWER_DEPTH)
    except e.JSONParseError as error:
        raise InvalidAnswer(error.message) from None


def _error(value: Any, codec: Codec) -> e.A2AError:
    """The error in a body, chosen by its reason, and by its HTTP status where there is none."""
    said = value.get("error") if isinstance(value, dict) else None
    if not isinstance(said, dict) or not {"status", "details"} & said.keys():
        # Many a proxy says {"error": …} too.
        raise InvalidAnswer("The answer is not an error of the protocol")
    error = codec.load_error({"message": said.get("message"), "data": said.get("details")})
    status = said.get("code")
    if type(error) is e.A2AError and error.reason == e.A2AError.reason and isinstance(status, int):
        error = _BY_STATUS.get(status, e.A2AError)(
            error.message, metadata=error.metadata, violations=error.violations, retry_after=error.retry_after
        )
    return error
