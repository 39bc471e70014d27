"""An executor with something of the host around each of its runs: database connections, a tenant, a request id.

It is an executor itself, so nothing else knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from a2a_sync.executor import Event, RequestContext

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
