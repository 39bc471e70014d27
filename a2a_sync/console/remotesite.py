"""The application of ``a2a-sync console``: a console for agents elsewhere, without an agent of its own."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import chain, count
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from a2a_sync.console.access import PREFIX
from a2a_sync.console.remote import RemoteApp
from a2a_sync.console.site import ConsoleSite
from a2a_sync.limits import Limits
from a2a_sync.urls import may_share_credentials
from a2a_sync.wsgi.options import HTTPOptions
from a2a_sync.wsgi.origins import Origins
from a2a_sync.wsgi.process import Site

#: Options of a client that may contain secrets of one agent.
_SECRETS = ("auth", "headers", "cert")


class RemoteConsole(Site):
    """A console for the agents at `urls`, as an application of one process. Parameters: as `RemoteAgent`, and for all of them,
    but ``auth``, ``headers`` and ``cert``, which are for agents with the origin of the first: one agent must not see what is for another.

    Raises:
        ImportError: a package of the extra ``console`` is missing.
    """

    single_process = True

    def __init__(self, urls: Iterable[str], options: Mapping[str, Any], trusted_keys: object = None) -> None:
        self.agents: dict[str, RemoteApp] = {}
        urls = list(urls)
        others = {name: value for name, value in options.items() if name not in _SECRETS}
        for url in urls:
            app = RemoteApp(url, options if may_share_credentials(urls[0], url) else others, trusted_keys)
            self.agents[_free_name(app.remote.name, self.agents)] = app
        super().__init__(*self.agents.values())
        self.limits: Limits = next(iter(self.agents.values())).limits
        self.origins: Origins = Origins()
        self.console: ConsoleSite = ConsoleSite(self.agents, True, HTTPOptions(), None)
        self.wsgi_app: WSGIApplication = self.console.around(_to_console)

    @property
    def stores(self) -> dict[str, str]:
        """See `Site.stores`."""
        return {}

    def reserve(self, threads: int, connections: int | None = None) -> None:
        """See `Site.reserve`."""
        for app in self.agents.values():
            app.reserve(threads, connections)


def _free_name(text: str, taken: Container[str]) -> str:
    """A name of an agent that fits into a path."""
    plain = (
        "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower()).strip("-")
        or "agent"
    )
    return next(name for name in chain([plain], (f"{plain}-{n}" for n in count(2))) if name not in taken)


def _to_console(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Other paths lead to the console."""
    start_response(
        "303 See Other", [("Location", f"{environ.get('SCRIPT_NAME', '')}{PREFIX}/"), ("Content-Length", "0")]
    )
    return []
