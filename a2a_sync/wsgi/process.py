"""The sites of a process: what servers, frameworks and the hooks of gunicorn know of an app or a host of several."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from a2a_sync.engine.components import Components
from a2a_sync.limits import Limits
from a2a_sync.wsgi.origins import Origins

#: The error of a server with several workers whose tasks cannot be shared.
SINGLE_PROCESS = (
    "this server has several worker processes, but its tasks live in the memory of one: give the app a store that they"
    " share, such as store='sqlite:///tasks.db', or run one worker"
)


class Console(Protocol):
    """The console of a site, as servers know it."""

    def around(self, app: WSGIApplication) -> WSGIApplication:
        """`app`, with the console in front of it."""

    def login_link(self, base: str) -> str:
        """A link that logs one browser in at the site with the address `base`; ``""`` where callers have credentials."""


class Site(Components, ABC):
    """A WSGI application that serves one agent or several: a component of its server."""

    #: The web pages that may call; integrations check it before they do anything for a request.
    origins: Origins
    limits: Limits
    #: The pages for people at ``/console``, where they are switched on.
    console: Console | None = None

    #: The application behind `__call__`. Middleware goes around it.
    wsgi_app: WSGIApplication
    _registered = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI interface. Blocks the server's thread for as long as the call takes."""
        if not self._registered:
            self._registered = True
            with _lock:
                _served.add(self)
                _share_capacity()
        return self.wsgi_app(environ, start_response)

    @property
    @abstractmethod
    def single_process(self) -> bool:
        """Tasks live in the memory of this process, so that no other process knows them."""

    @property
    @abstractmethod
    def stores(self) -> dict[str, str]:
        """By the name of each agent, the path that all processes with the same tasks share; empty for tasks in memory."""

    @abstractmethod
    def reserve(self, threads: int, connections: int | None = None) -> None:
        """Leave some of the server's `threads`, and of the `connections` that it accepts at once, free."""


_lock = threading.Lock()
_served: weakref.WeakSet[Site] = weakref.WeakSet()
#: The threads and connections of the server; empty where they are not known.
_capacity: list[tuple[int, int]] = []


def set_capacity(threads: int, connections: int) -> None:
    """Set the numbers of the server's threads and connections, which `Site.reserve` gets at the first request to a site.

    A site inside another framework or middleware is not known before. Several of them get equal shares. Called in each worker
    before it serves requests.
    """
    _capacity.append((threads, connections))


def _share_capacity() -> None:
    if _capacity:
        threads, connections = _capacity[-1]
        for site in _served:
            site.reserve(threads // len(_served), connections // len(_served))


def served() -> list[Site]:
    """The sites that this process responds with; one that is part of another is not listed beside it."""
    with _lock:
        return list(_served)
