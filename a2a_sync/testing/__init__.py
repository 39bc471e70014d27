"""Everything for testing agents, programs that call agents, and stores; without a network where none is wanted.

Names are loaded on first use, and pytest only by `plugin` and `storecontract`. Nothing of the library itself imports this.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "a2a_sync.testing.cuts": ("CutStreams",),
    "a2a_sync.testing.fakeclock": ("FakeClock",),
    "a2a_sync.testing.reaching": ("client_of", "outline"),
    "a2a_sync.testing.scripted": ("Cut", "Hold", "Pause", "ScriptedAgent"),
    "a2a_sync.testing.servers": ("LiveServer", "gunicorn_server", "socket_server"),
    "a2a_sync.testing.wsgi": ("WSGIAdapter", "wsgi_session"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

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
    from a2a_sync.testing.cuts import CutStreams as CutStreams
    from a2a_sync.testing.fakeclock import FakeClock as FakeClock
    from a2a_sync.testing.reaching import client_of as client_of
    from a2a_sync.testing.reaching import outline as outline
    from a2a_sync.testing.scripted import Cut as Cut
    from a2a_sync.testing.scripted import Hold as Hold
    from a2a_sync.testing.scripted import Pause as Pause
    from a2a_sync.testing.scripted import ScriptedAgent as ScriptedAgent
    from a2a_sync.testing.servers import LiveServer as LiveServer
    from a2a_sync.testing.servers import gunicorn_server as gunicorn_server
    from a2a_sync.testing.servers import socket_server as socket_server
    from a2a_sync.testing.wsgi import WSGIAdapter as WSGIAdapter
    from a2a_sync.testing.wsgi import wsgi_session as wsgi_session


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
