"""The method and path of each operation over HTTP+JSON, in each version of the protocol (spec 5.3, 11.3; 0.3: 3.5.6).

One table, read in both directions: the server finds an operation and the members that its path names, the client writes
the path. Paths are percent-encoded text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

from a2a_sync import errors as e
from a2a_sync import operations as o

TENANT = "tenant"
#: How much of a method that is not allowed an error repeats, in characters.
LONGEST_VERB = 32
#: The prefix of the paths of 0.3, and therefore no tenant's name where that version is served.
V03_PREFIX = "v1"
#: Tenants that cannot be the first segment of a path: clients remove dots, and the others are paths themselves.
_RESERVED_TENANTS = {".", "..", "tasks", V03_PREFIX}


@dataclass(frozen=True, slots=True)
class Route:
    """The path of an operation, with members in braces, and its method.

    `also` are methods that a server supports besides, and that other servers may support instead.
    """

    operation: o.AnyOperation
    verb: str
    path: str
    also: tuple[str, ...] = ()

    @property
    def verbs(self) -> tuple[str, ...]:
        return (self.verb, *self.also)


#: The table. A path with a word after a colon precedes the one that would parse the word as an id.
_ROWS = (
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
#: Paths that differ in 0.3.
_V03_PATHS: dict[o.AnyOperation, str] = {o.GET_EXTENDED_CARD: "card"}
_V03_ROWS = tuple(replace(row, path=f"{V03_PREFIX}/{_V03_PATHS.get(row.operation, row.path)}") for row in _ROWS)


def routes_of(version: str) -> tuple[Route, ...]:
    """All routes of a protocol version."""
    return _V03_ROWS if version == "0.3" else _ROWS


class WrongVerbError(e.MethodNotFoundError):
    """The path is one of the protocol's and does not support the method. `allowed` is the value for ``Allow``."""

    http_status = 405
    grpc_status = "UNIMPLEMENTED"

    def __init__(self, verb: str, allowed: str) -> None:
        super().__init__(f"{verb[:LONGEST_VERB]} is not answered here; allowed: {allowed}")
        self.allowed = allowed


# -- finding ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """A path of one version of the protocol: its routes, and the members that it names."""

    version: str
    routes: tuple[Route, ...]
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        """The methods, as ``Allow`` lists them. HEAD is a GET without its body, which is useless for a stream."""
        verbs = [verb for route in self.routes for verb in route.verbs]
        heads = ["HEAD"] if any(route.verb == "GET" for route in self.routes) else []
        return ", ".join(dict.fromkeys([*verbs, *heads, "OPTIONS"]))

    def operation(self, verb: str) -> o.AnyOperation:
        """The operation of the method `verb`.

        Raises:
            WrongVerbError: the path does not support it.
        """
        for route in self.routes:
            if verb in route.verbs or (verb == "HEAD" and route.verb == "GET"):
                return route.operation
        raise WrongVerbError(verb, self.allowed)


class _Form:
    """A path of the table and its routes, parsed for comparison with the path of a request."""

    def __init__(self, path: str, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._segments = [_slot(template) for template in path.split("/")]

    def members(self, segments: list[str]) -> dict[str, str] | None:
        """The members in `segments`, still encoded; None where the segments do not have this form."""
        if len(segments) != len(self._segments):
            return None
        found = {}
        for (name, word), segment in zip(self._segments, segments, strict=True):
            if not name:
                if segment != word:
                    return None
                continue
            # Ids may contain colons: only the last one begins a word, and only if it is this word.
            text = segment.removesuffix(word)
            if not text or not segment.endswith(word):
                return None
            found[name] = text
        return found


def _slot(template: str) -> tuple[str, str]:
    """``{id}:cancel`` as ``id`` and ``:cancel``; a segment without a member has an empty name and is a word."""
    if not template.startswith("{"):
        return "", template
    name, _, word = template[1:].partition("}")
    return name, word


def _forms(routes: tuple[Route, ...]) -> tuple[_Form, ...]:
    paths = dict.fromkeys(route.path for route in routes)
    return tuple(_Form(path, (route for route in routes if route.path == path)) for path in paths)


class Paths:
    """The paths of the `versions` that are served at one URL, the preferred version first."""

    def __init__(self, versions: Iterable[str]) -> None:
        self._forms = {version: _forms(routes_of(version)) for version in versions}
        self._serves_v03 = "0.3" in self._forms

    def version(self, path: str, requested: str = "") -> str:
        """The version that an error about `path` is written in: that of its prefix, else the requested one, if it is served."""
        others = [version for version in self._forms if version != "0.3"]
        if self._serves_v03 and (not others or path.startswith(f"/{V03_PREFIX}/")):
            return "0.3"
        return requested if requested in others else others[0]

    def find(self, path: str, requested: str = "") -> RouteMatch | None:
        """The routes of a path (percent-encoded, relative to the URL of the interface), of the requested version first.

        A path that the requested version does not have is looked up in the others, for an error that names the version to
        request. None: it is no path of the protocol.

        Raises:
            InvalidParamsError: a member in it is not UTF-8.
        """
        segments = path.split("/")[1:]
        for version in sorted(self._forms, key=lambda version: version != requested):
            match = self._match(version, segments)
            if match is not None:
                return match
        return None

    def _match(self, version: str, segments: list[str]) -> RouteMatch | None:
        forms = self._forms[version]
        match = _matching(version, forms, segments, {})
        if match is None and version != "0.3" and segments and segments[0]:
            match = _matching(version, forms, segments[1:], {TENANT: segments[0]})
            if match is not None and self._serves_v03 and match.members[TENANT] == V03_PREFIX:
                return None
        return match


def _matching(
    version: str, forms: tuple[_Form, ...], segments: list[str], tenant: Mapping[str, str]
) -> RouteMatch | None:
    for form in forms:
        found = form.members(segments)
        if found is not None:
            members = {name: _decoded(name, text) for name, text in {**tenant, **found}.items()}
            return RouteMatch(version, form.routes, members)
    return None


def _decoded(name: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise e.InvalidParamsError.at(name, "is not UTF-8") from None


# -- writing ------------------------------------------------------------------------------------------------------------

_ROUTES: dict[o.AnyOperation, Route] = {row.operation: row for row in _ROWS}
_V03_ROUTES: dict[o.AnyOperation, Route] = {row.operation: row for row in _V03_ROWS}


def route_of(version: str, operation: o.AnyOperation) -> Route:
    """The route of an operation in a version."""
    return (_V03_ROUTES if version == "0.3" else _ROUTES)[operation]


def write_path(version: str, operation: o.AnyOperation, params: dict[str, Any]) -> tuple[Route, str]:
    """The route of an operation and its path, which begins with a slash. The members in it are removed from `params`.

    Raises:
        InvalidParamsError: an id that a path cannot contain.
    """
    route = route_of(version, operation)
    path = "/".join(_filled(template, params) for template in route.path.split("/"))
    if version != "0.3" and params.get(TENANT) and params[TENANT] not in _RESERVED_TENANTS:
        path = f"{quote(params.pop(TENANT), safe='')}/{path}"
    return route, "/" + path


def _filled(template: str, params: dict[str, Any]) -> str:
    name, word = _slot(template)
    if not name:
        return word
    text = params.pop(name, "")
    if not text:
        raise e.InvalidParamsError.at(name, "is required")
    if text in (".", "..") and not word:
        raise e.InvalidParamsError.at(name, f"{text!r} cannot be part of a path")
    return quote(text, safe="") + word
