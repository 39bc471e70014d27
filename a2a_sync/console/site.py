"""The console as WSGI middleware in front of an app or a host: which requests are its own, and what guards them.

What renders pages is loaded with the first request for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from a2a_sync.console.access import PREFIX, Access, refusal
from a2a_sync.wsgi.agentpage import CONSOLE_PATH
from a2a_sync.wsgi.options import ConsoleOptions, HTTPOptions
from a2a_sync.wsgi.origins import Origins
from a2a_sync.wsgi.pages import LONG_LISTS, has_long_lists, host_is_served, host_name, is_loopback, werkzeug_request

if TYPE_CHECKING:
    from a2a_sync.console.pages import Pages
    from a2a_sync.engine.engine import Engine
    from a2a_sync.engine.run import Run
    from a2a_sync.wsgi.app import A2AApp

#: The modules that pages need, and the packages that have them.
_NEEDED = {"jinja2": "jinja2", "markdown_it": "markdown-it-py", "nh3": "nh3"}


def _answer(engine: Engine, run: Run) -> None:
    from a2a_sync.console.operate import answer

    answer(engine, run)


class ConsoleSite:
    """The console of the apps in `agents`, by name; one mapping may change while it is served.

    Parameters:
        agents: the apps by the name that their pages have.
        options: True, or what the console shows.
        http: which hosts may be named.
        url: the public address, whose host may be named too.
        mounted: each agent is served below its name.
        engine: executes the runs of the apps, and answers the consoles of other processes; None: no process shares the store.

    Raises:
        ImportError: a package of the extra ``console`` is missing.
        TypeError: `options` is of another type.
    """

    def __init__(
        self,
        agents: Mapping[str, A2AApp],
        options: ConsoleOptions | bool,
        http: HTTPOptions,
        url: str | None,
        *,
        mounted: bool = False,
        engine: Engine | None = None,
    ) -> None:
        if options is not True and not isinstance(options, ConsoleOptions):
            raise TypeError(f"console takes True, False or ConsoleOptions(…), not a {type(options).__name__}")
        missing = [package for module, package in _NEEDED.items() if find_spec(module) is None]
        if missing:
            raise ImportError(f"console= needs {', '.join(missing)}: pip install 'a2a-sync[console]'")
        self._access = Access(agents, options.operator if isinstance(options, ConsoleOptions) else None)
        self._http = http
        self._mounted = mounted
        self._url_host = (urlsplit(url).hostname or "") if url else ""
        self._origins = Origins()
        self._pages: Pages | None = None
        if engine is not None:
            engine.runs.on_asked = partial(_answer, engine)

    def around(self, app: WSGIApplication) -> WSGIApplication:
        """`app`, with the console in front of it."""

        def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path: str = environ.get("PATH_INFO", "")
            if path == PREFIX or path.startswith(f"{PREFIX}/"):
                return self._respond(environ, start_response)
            environ[CONSOLE_PATH] = f"{environ.get('SCRIPT_NAME', '')}{PREFIX}/"
            return app(environ, start_response)

        return respond

    def _respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        response: WSGIApplication
        if not self._serves_host(environ):
            response = refusal(
                400,
                "The console is not served under this host name; list it in HTTPOptions(trusted_hosts=…) or give url=.",
            )
        elif has_long_lists(environ):
            response = refusal(400, LONG_LISTS)
        elif self._origins.refuse(environ):
            response = refusal(403, "A page of another site may not use the console.")
        elif environ.get("wsgi.multiprocess") and not self._access.sessions.shared and self._access.has_open_agents:
            response = refusal(
                503,
                "This server has several worker processes, so the console needs a key that they share: set"
                " A2A_SYNC_CONSOLE_KEY to a long random text before the server starts, or give the app auth=.",
            )
        else:
            return self.pages.respond(werkzeug_request(environ))(environ, start_response)
        return response(environ, start_response)

    @property
    def pages(self) -> Pages:
        """The pages, which load what they need when they are first used."""
        if self._pages is None:
            from a2a_sync.console.pages import Pages

            self._pages = Pages(self._access, self._http, mounted=self._mounted)
        return self._pages

    def _serves_host(self, environ: WSGIEnvironment) -> bool:
        """The request names this machine or a trusted host: a name of another site may lead here (DNS rebinding)."""
        host = host_name(environ.get("HTTP_HOST", ""))
        if host and (host in ("localhost", self._url_host) or is_loopback(host)):
            return True
        return host_is_served(environ, self._http.trusted_hosts or ())

    def login_link(self, base: str) -> str:
        """See `Access.login_link`."""
        return self._access.login_link(base)
