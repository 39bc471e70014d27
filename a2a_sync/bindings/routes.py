"""Which verb and path each operation has over HTTP+JSON, in each version of the protocol (spec 5.3, 11.3; 0.3: 3.5.6).

One table, read in both directions: the server finds an operation and the members that its path names, the client writes
the path. Paths are percent-encoded text. What stands in queries and bodies is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

from a2a_sync import errors as e
from a2a_sync import operations as o

TENANT = "tenant"
#: How much of a verb that is not answered an error repeats, in characters.
LONGEST_VERB = 32
#: What the paths of 0.3 begin with, and therefore no tenant's name where both versions are served.
OLD_PREFIX = "v1"
#: Tenants that cannot be the first segment of a path: clients take dots out, and the others begin paths themselves.
_NOT_IN_FRONT = {".", "..", "tasks", OLD_PREFIX}


@dataclass(frozen=True, slots=True)
class Route:
    """Where an operation is: its path, with members in braces, and its verb.

    `also` are verbs that a server takes besides, and that other servers may take instead.
    """

    operation: o.Operation
    verb: str
    path: str
    also: tuple[str, ...] = ()

    @property
    def verbs(self) -> tuple[str, ...]:
        return (self.verb, *self.also)


#: The table. A path with a word after a colon stands before the one that would take the word for an id.
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
#: Paths that 0.3 has another word for.
_OLD_PATHS = {o.GET_EXTENDED_CARD: "card"}
#: All routes, by version.
ROUTES: Mapping[str, tuple[Route, ...]] = {
    "1.0": _ROWS,
    "0.3": tuple(replace(row, path=f"{OLD_PREFIX}/{_OLD_PATHS.get(row.operation, row.path)}") for row in _ROWS),
}


class WrongVerbError(e.MethodNotFoundError):
    """The path is one of the protocol's, and the verb is none that it takes. `allowed` is the value for ``Allow``."""

    http_status = 405
    status = "UNIMPLEMENTED"

    def __init__(self, verb: str, allowed: str) -> None:
        super().__init__(f"{verb[:LONGEST_VERB]} is not answered here; allowed: {allowed}")
        self.allowed = allowed


# -- finding ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A path of one version of the protocol: what may be done there, and the members that it names."""

    version: str
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


class _Form:
    """A path of the table and the routes that have it, made ready to be compared with what was sent."""

    def __init__(self, path: str, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._segments = [_slot(template) for template in path.split("/")]

    def members(self, segments: list[str]) -> dict[str, str] | None:
        """The members in `segments`, still encoded, if these are of this form."""
        if len(segments) != len(self._segments):
            return None
        found = {}
        for (name, word), segment in zip(self._segments, segments, strict=True):
            if not name:
                if segment != word:
                    return None
                continue
            # Ids may hold colons: only the last one begins a word, and only if it is this word.
            text = segment.removesuffix(word)
            if not text or not segment.endswith(word):
                return None
            found[name] = text
        return found


def _slot(template: str) -> tuple[str, str]:
    """``{id}:cancel`` as ``id`` and ``:cancel``; a segment without a member has no name and is a word."""
    if not template.startswith("{"):
        return "", template
    name, _, word = template[1:].partition("}")
    return name, word


def _forms(routes: tuple[Route, ...]) -> tuple[_Form, ...]:
    paths = dict.fromkeys(route.path for route in routes)
    return tuple(_Form(path, (route for route in routes if route.path == path)) for path in paths)


class Paths:
    """The paths of the `versions` that are served at one URL."""

    def __init__(self, versions: Collection[str]) -> None:
        self._old = _forms(ROUTES["0.3"]) if "0.3" in versions else ()
        self._new = _forms(ROUTES["1.0"]) if "1.0" in versions else ()

    def version(self, path: str) -> str:
        """The version that a path is of, whether there is anything at it or not."""
        old = self._old and (not self._new or path.startswith(f"/{OLD_PREFIX}/"))
        return "0.3" if old else "1.0"

    def find(self, path: str) -> Place | None:
        """What is at a path (percent-encoded, from the URL of the interface on); None: nothing of the protocol.

        Raises:
            InvalidParamsError: a member in it is not UTF-8.
        """
        segments = path.split("/")[1:]
        place = _matching("0.3", self._old, segments, {}) or _matching("1.0", self._new, segments, {})
        if place is None and segments and segments[0]:
            place = _matching("1.0", self._new, segments[1:], {TENANT: segments[0]})
            if place is not None and self._old and place.members[TENANT] == OLD_PREFIX:
                return None
        return place


def _matching(version: str, forms: tuple[_Form, ...], segments: list[str], named: Mapping[str, str]) -> Place | None:
    for form in forms:
        found = form.members(segments)
        if found is not None:
            members = {name: _decoded(name, text) for name, text in {**named, **found}.items()}
            return Place(version, form.routes, members)
    return None


def _decoded(name: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise e.InvalidParamsError.at(name, "is not UTF-8") from None


# -- writing ------------------------------------------------------------------------------------------------------------

_BY_OPERATION = {version: {route.operation: route for route in routes} for version, routes in ROUTES.items()}


def route_of(version: str, operation: o.Operation) -> Route:
    """Where an operation is in a version."""
    return _BY_OPERATION[version][operation]


def write_path(version: str, operation: o.Operation, params: dict[str, Any]) -> tuple[Route, str]:
    """The route of an operation and its path, which begins with a slash. The members in it are taken out of `params`.

    Raises:
        InvalidParamsError: an id that no path can hold.
    """
    route = route_of(version, operation)
    path = "/".join(_filled(template, params) for template in route.path.split("/"))
    if version != "0.3" and params.get(TENANT) and params[TENANT] not in _NOT_IN_FRONT:
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
        raise e.InvalidParamsError.at(name, f"{text!r} cannot stand in a path")
    return quote(text, safe="") + word
