"""What a process serves, for those who look after it: servers, frameworks, gunicorn's hooks.

They need not know what an app is: an app is a `Site`, and so is a host of several.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol, runtime_checkable
from wsgiref.types import StartResponse, WSGIEnvironment

from a2a_sync.limits import Limits
from a2a_sync.wsgi.origins import Origins

#: What a server with several workers is told whose tasks cannot be shared.
ALONE = (
    "this server has several worker processes, but its tasks live in the memory of one: give the app a store that they"
    " share, such as store='sqlite:///tasks.db', or run one worker"
)


@runtime_checkable
class Site(Protocol):
    """A WSGI application that runs something: one agent or several."""

    #: Which web pages may call; hosts ask it before they do anything for a request.
    origins: Origins
    limits: Limits

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI interface."""

    @property
    def alone(self) -> bool:
        """Tasks live in the memory of this process: another one would not know them."""

    @property
    def stores(self) -> dict[str, str]:
        """By the name of each agent, the path that all processes with the same tasks have in common; none in memory."""

    @property
    def running(self) -> int:
        """Runs that this process has not ended."""

    def reserve(self, threads: int) -> None:
        """The server has so many threads: leave some free."""

    def begin(self) -> None:
        """Begin what goes on without requests."""

    def drain(self) -> None:
        """Take no more work."""

    def close(self, timeout: float = 10.0) -> None:
        """End everything; runs get `timeout` seconds."""


_served: weakref.WeakSet[Site] = weakref.WeakSet()


def serve(site: Site) -> None:
    """This process has begun to answer requests with `site`."""
    _served.add(site)


def served() -> list[Site]:
    """What this process answers requests with; a site that is part of another is not listed beside it."""
    return list(_served)
