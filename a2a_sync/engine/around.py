"""An executor with something of the host around each of its runs: database connections, a tenant, a request id.

It is an executor itself, so nothing else knows of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from a2a_sync.agent.executor import Event, RequestContext

#: Makes what is entered before user code is called and left after it, on the same thread.
AroundRun: TypeAlias = Callable[[RequestContext], AbstractContextManager[Any]]


class Surrounded:
    """`executor` as it is, but that its code, to the last event that it yields, runs within ``around(context)``.

    What `around` raises counts as raised by the executor; so does what it does to the executor's own exceptions.
    """

    def __init__(self, executor: Any, around: AroundRun) -> None:
        self._executor = executor
        self._around = around

    def execute(self, context: RequestContext) -> Iterator[Event]:
        """On the run's thread."""
        with self._around(context):
            events = self._executor.execute(context)
            if events is not None:
                yield from events

    @property
    def cancel(self) -> Callable[[RequestContext], None] | None:
        """The cancel handler, on its own thread; None where the executor has none."""
        handler: Callable[[RequestContext], None] | None = getattr(self._executor, "cancel", None)
        if handler is None:
            return None

        def surrounded(context: RequestContext) -> None:
            with self._around(context):
                handler(context)

        return surrounded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


@contextmanager
def database_connections(context: object = None) -> Iterator[None]:
    """Close unusable and expired database connections of Django on this thread, before and after the block.

    Django does it at the start and the end of each request only. Every app enters it around each run and each cancel handler;
    use it around other code outside of requests. Connections that ``CONN_MAX_AGE`` keeps stay open. Without Django it does
    nothing.
    """
    _close_old_connections()
    try:
        yield
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    # Not imported: a process that has not loaded Django has no connections.
    db, conf = sys.modules.get("django.db"), sys.modules.get("django.conf")
    if db is not None and conf is not None and conf.settings.configured:
        db.close_old_connections()
