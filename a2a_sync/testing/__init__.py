"""Tools for testing agents, programs that call agents, and stores, with or without a network.

Names are loaded on first use; only `plugin` and `storecontract` import pytest. The library itself does not import this
package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from a2a_sync.lazymodule import lazy_names

_MODULES = {
    "a2a_sync.testing.cuts": ("CutStreams",),
    "a2a_sync.testing.fakeclock": ("FakeClock",),
    "a2a_sync.testing.reaching": ("client_of", "outline"),
    "a2a_sync.testing.scripted": ("Cut", "Hold", "Pause", "ScriptedAgent"),
    "a2a_sync.testing.servers": ("LiveServer", "gunicorn_server", "socket_server"),
    "a2a_sync.testing.wsgi": ("WSGIAdapter", "wsgi_session"),
}

__all__ = [
    "Cut",
    "CutStreams",
    "FakeClock",
    "Hold",
    "LiveServer",
    "Pause",
    "ScriptedAgent",
    "WSGIAdapter",
    "client_of",
    "gunicorn_server",
    "outline",
    "socket_server",
    "wsgi_session",
]

if TYPE_CHECKING:
    from a2a_sync.testing.cuts import CutStreams
    from a2a_sync.testing.fakeclock import FakeClock
    from a2a_sync.testing.reaching import client_of, outline
    from a2a_sync.testing.scripted import Cut, Hold, Pause, ScriptedAgent
    from a2a_sync.testing.servers import LiveServer, gunicorn_server, socket_server
    from a2a_sync.testing.wsgi import WSGIAdapter, wsgi_session


__getattr__: Final = lazy_names(__name__, _MODULES)
