"""Whose a request for a page is: sessions of browsers, credentials of the agents' own ``auth=``, and logging in.

With ``auth=`` the cookie of a browser holds the credential itself, which is put back as the header at every request: expiry and
revocation hold as for programs, and the server keeps no sessions.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from wsgiref.types import WSGIEnvironment

from werkzeug.wrappers import Request, Response

from a2a_sync.auth.request import split_cookies
from a2a_sync.card import APIKeySecurityScheme, HTTPAuthSecurityScheme, MutualTlsSecurityScheme
from a2a_sync.console.sessions import SESSION_AGE, Sessions
from a2a_sync.errors import AgentError
from a2a_sync.operations import Principal
from a2a_sync.wsgi.exchange import auth_request, headers_of
from a2a_sync.wsgi.pages import host_name, is_address, is_loopback

if TYPE_CHECKING:
    from a2a_sync.wsgi.app import A2AApp

PREFIX = "/console"
#: No page of the console loads anything from elsewhere, runs anything inline, or turns a string into HTML.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self';"
    " frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'; require-trusted-types-for 'script';"
    " trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # With "no-referrer" a browser would send "Origin: null" with the console's own forms, by which alone `Origins` knows them over plain HTTP.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: A cookie that is larger is refused by browsers.
_MAX_COOKIE = 3800
#: The loopback address of a server at all addresses, by the address to which it is bound.
_AT_ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # nothing is bound here  # nosec B104
#: Seconds between two login links that are printed because a browser asked for one.
_PRINT_INTERVAL = 10.0


@dataclass(frozen=True, slots=True)
class Viewer:
    """The caller behind a browser, for one agent: its principal, and the headers that prove it.

    ``operator``: it may see the tasks of all owners.
    """

    principal: Principal | None
    operator: bool
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to log in with a form: the header that carries the credential, and its parts before it."""

    name: str
    header: str
    prefix: str
    user: bool = False


class Access:
    """Decides which callers see the pages of which agents.

    Parameters:
        agents: the apps by the name that their pages have; the mapping may change.
        operator: returns whether a principal may see the tasks of all owners; None: no principal may.
    """

    def __init__(self, agents: Mapping[str, A2AApp], operator: Callable[[Principal], bool] | None) -> None:
        self.agents = agents
        self.sessions: Sessions = Sessions()
        self._operator = operator
        self._lock = threading.Lock()
        self._printed = -_PRINT_INTERVAL

    @property
    def has_open_agents(self) -> bool:
        """An agent has no ``auth=``, so that its pages need a session."""
        return any(not app.service.secured for app in list(self.agents.values()))

    def viewers(self, environ: WSGIEnvironment, agents: Mapping[str, A2AApp]) -> dict[str, Viewer]:
        """The caller of a request for pages about each of `agents`, by name; without those for which it has to log in.

        Agents with the same ``auth=`` and the same ways to log in have the same caller, which is found once for all of them.
        """
        cookies = _cookies(environ)
        session, kept = (cookies.get(cookie_name(environ, kind)) for kind in ("session", "auth"))
        known: dict[tuple[int, tuple[Scheme, ...]], Viewer | None] = {}
        found: dict[str, Viewer] = {}
        for name, app in agents.items():
            secured = app.service.secured
            schemes = tuple(login_schemes(app)) if secured and kept is not None else ()
            # By its identity, because an ``auth=`` may be a function without a hash; `agents` keeps it in memory.
            key = id(app.service.auth), schemes
            if key not in known:
                known[key] = self._caller(environ, app, kept, schemes) if secured else self._holder(session)
            if (viewer := known[key]) is not None:
                found[name] = viewer
        return found

    def _holder(self, session: str | None) -> Viewer | None:
        """The viewer with the cookie of a session."""
        return Viewer(None, True) if session is not None and self.sessions.admits(session) else None

    def _caller(
        self, environ: WSGIEnvironment, app: A2AApp, kept: str | None, schemes: Iterable[Scheme]
    ) -> Viewer | None:
        """The viewer with the credentials in the cookie `kept`, or else with those of the request."""
        attempts = [{}] if kept is None else [_read_credentials(kept, schemes), {}]
        for credentials in filter(lambda one: one is not None, attempts):
            viewer = self.authenticate(environ, app, credentials or {})
            if viewer is not None:
                return viewer
        return None

    def authenticate(self, environ: WSGIEnvironment, app: A2AApp, credentials: Mapping[str, str]) -> Viewer | None:
        """The caller with these headers; None where they are refused."""
        headers = {**headers_of(environ), **credentials}
        try:
            principal = app.service.authenticate(auth_request(environ, headers))
        except AgentError:
            return None
        operator = self._operator is not None and principal is not None and bool(self._operator(principal))
        return Viewer(principal, operator, credentials)

    # -- logging in --

    def login(self, request: Request, form: Mapping[str, str]) -> Response | None:
        """The response to a login form with valid credentials; None for others."""
        token = form.get("token", "")
        if token:
            valid = self.has_open_agents and self.sessions.redeem(token.strip().rpartition("#")[2])
            return self._logged_in(request, form, "session", self.sessions.cookie()) if valid else None
        # Each way to log in is tried once, also where several agents have the same ``auth=``.
        attempts = {
            (id(app.service.auth), scheme): (app, scheme)
            for app in list(self.agents.values())
            if app.service.secured
            for scheme in login_schemes(app)
            if scheme.name == form.get("scheme")
        }
        for app, scheme in attempts.values():
            credentials = _credentials(scheme, form.get("user", ""), form.get("secret", ""))
            if self.authenticate(request.environ, app, credentials) is not None:
                return self._logged_in(request, form, "auth", _write_credentials(credentials))
        return None

    def _logged_in(self, request: Request, form: Mapping[str, str], kind: str, value: str) -> Response:
        if len(value) > _MAX_COOKIE:
            return refusal(400, "These credentials are longer than a cookie may be; send them as a header instead.")
        home, back = f"{request.root_path}{PREFIX}/", form.get("back", "")
        # The page whose login has ended, if it is one of this console.
        response = redirect(back if back.startswith(home) and re.fullmatch("[!-~]+", back) else home)
        response.set_cookie(
            cookie_name(request.environ, kind),
            value,
            max_age=SESSION_AGE,
            path=f"{request.root_path}{PREFIX}",
            secure=request.scheme == "https",
            httponly=True,
            samesite="Strict",
        )
        return response

    def log_out(self, request: Request) -> Response:
        """Remove the cookies of this console."""
        response = redirect(f"{request.root_path}{PREFIX}/login")
        for kind in ("session", "auth"):
            response.delete_cookie(cookie_name(request.environ, kind), path=f"{request.root_path}{PREFIX}")
        return response

    def print_link(self, request: Request) -> None:
        """Print a login link to standard error: only the operator of the server sees that. Not too often.

        Only the token is printed where the request names an address that may be one of another program.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._printed < _PRINT_INTERVAL:
                return
            self._printed = now
        host = _own_host(request.environ)
        # A client chose the host and the path: a terminal must not take a part of them for a command.
        base = re.sub(r"[^!-~]", "", f"{request.scheme}://{host or request.host}{request.root_path}")
        link = self.login_link(base)
        sys.stderr.write(f"Console: {link if host else 'log in with the token ' + link.rpartition('#')[2]}\n")
        sys.stderr.flush()

    def login_link(self, base: str) -> str:
        """A link that logs one browser in, once, within ten minutes. The fragment reaches no log and no proxy.

        ``""`` where all agents have ``auth=``.
        """
        return f"{base.rstrip('/')}{PREFIX}/login#{self.sessions.token()}" if self.has_open_agents else ""


def refusal(status: int, message: str) -> Response:
    """A refusal as plain text."""
    return Response(message + "\n", status, HEADERS, content_type="text/plain; charset=utf-8")


def redirect(path: str) -> Response:
    """Go to `path` with GET."""
    return Response("", 303, {**HEADERS, "Location": path}, content_type="text/plain; charset=utf-8")


def _own_host(environ: WSGIEnvironment) -> str:
    """The host and port of this server in the words of a request; ``""`` where it names a port of another program.

    Other users of the machine can listen on other loopback addresses, which ``localhost`` may mean too.
    """
    given, name, port = str(environ.get("HTTP_HOST", "")), environ["SERVER_NAME"], str(environ["SERVER_PORT"])
    local = host_name(given) == "localhost" or is_loopback(host_name(given))
    if not (local and is_loopback(name)) and _port(given) not in ("", port):
        return ""
    if local and (is_loopback(name) or _port(given)) and is_address(name):
        # A server at all addresses of a kind is also at this one; at any other address it is at no loopback address.
        own = _AT_ALL_ADDRESSES.get(name) or str(name)
        return "" if not is_loopback(own) else f"[{own}]:{port}" if ":" in own else f"{own}:{port}"
    return given


def _port(host: str) -> str:
    port = host.rpartition("]")[2].partition(":")[2]
    return port if port.isascii() and port.isdigit() else ""


def cookie_name(environ: WSGIEnvironment, kind: str) -> str:
    """The name of a cookie. It contains the port: browsers send the cookies of one port of a host to all others."""
    return f"a2a_console_{kind}_{_port(environ.get('HTTP_HOST', ''))}"


def _cookies(environ: WSGIEnvironment) -> dict[str, str]:
    """The cookies of the console in a request, by name.

    Other programs of the same host can set cookies of these names. Of several with one name the first counts, because browsers
    send that of the longest path first.
    """
    found: dict[str, str] = {}
    for cookie in split_cookies(environ.get("HTTP_COOKIE", "")):
        name, _, value = cookie.partition("=")
        if name.startswith("a2a_console_"):
            found.setdefault(name, value)
    return found


def without_cookies(environ: WSGIEnvironment) -> str:
    """The cookies of a request but those of the console, which agents must not see."""
    given = split_cookies(environ.get("HTTP_COOKIE", ""))
    return "; ".join(cookie for cookie in given if not cookie.startswith("a2a_console_"))


def login_schemes(app: A2AApp) -> list[Scheme]:
    """The ways to log in with a form that the card of `app` declares."""
    found: dict[str, Scheme] = {}
    for name, scheme in app.agent_card().security_schemes.items():
        if isinstance(scheme, APIKeySecurityScheme):
            if scheme.location == "header":
                found[name] = Scheme(name, scheme.name.lower(), "")
        elif isinstance(scheme, HTTPAuthSecurityScheme) and scheme.scheme.lower() == "basic":
            found[name] = Scheme(name, "authorization", "Basic ", user=True)
        elif not isinstance(scheme, MutualTlsSecurityScheme):
            found[name] = Scheme(name, "authorization", "Bearer ")
    return list(found.values())


def _credentials(scheme: Scheme, user: str, secret: str) -> dict[str, str]:
    text = secret.strip()
    if scheme.user:
        text = base64.b64encode(f"{user}:{secret}".encode()).decode()
    # A line break would end the header.
    return {scheme.header: f"{scheme.prefix}{text}"} if text.isprintable() else {}


def _write_credentials(credentials: Mapping[str, str]) -> str:
    text = "\n".join(f"{name}:{value}" for name, value in credentials.items())
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_credentials(cookie: str, schemes: Iterable[Scheme]) -> dict[str, str] | None:
    """The headers in a cookie; None where they are none that a form can have set."""
    try:
        text = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    name, _, value = text.partition(":")
    known = any(name == scheme.header and value.startswith(scheme.prefix) for scheme in schemes)
    return {name: value} if known and value.isprintable() else None
