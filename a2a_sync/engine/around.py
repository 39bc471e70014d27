"""Context managers of the host around each run of an agent: database connections, a tenant, a request id."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from a2a_sync.agent.executor import Event, RequestContext
from a2a_sync.agent.spec import AgentSpec, CancelHandler

#: Returns a context manager that is entered before the code of an agent is called and left after it, on the same thread.
AroundRun: TypeAlias = Callable[[RequestContext], AbstractContextManager[Any]]


def with_run_context(spec: AgentSpec, around: AroundRun) -> AgentSpec:
    """`spec` whose code, up to the last event that it yields, runs within ``around(context)``, as does its cancel handler.

    An exception raised by `around` counts as one of the agent; `around` may also replace exceptions of the agent.
    """

    def execute(context: RequestContext) -> Iterator[Event]:
        with around(context):
            events = spec.execute(context)
            if events is not None:
                yield from events

    def cancel(handler: CancelHandler, context: RequestContext) -> None:
        with around(context):
            handler(context)

    return spec.wrapped(execute, cancel)


@contextmanager
def database_connections(context: object = None) -> Iterator[None]:
    """Close unusable and expired database connections of Django on this thread, before and after the block.

    Django does it at the start and the end of each request only. Every app enters it around each run and each cancel handler;
    use it around other code outside of requests. Connections that ``CONN_MAX_AGE`` keeps stay open. Without Django it does
    nothing.
    """
    close_database_connections()
    try:
        yield
    finally:
        close_database_connections()


def close_database_connections() -> None:
    """Close unusable and expired database connections of Django on this thread; see `database_connections`."""
    # Not imported: a process that has not loaded Django has no connections.
    if "django.db" in sys.modules and sys.modules["django.conf"].settings.configured:
        sys.modules["django.db"].close_old_connections()
