"""Pages for those who run a server: is the process alive, can it work, what has it done.

``/healthz`` says that the process answers. ``/readyz`` says whether it can take work: the store can be read and written, and
the app is not closing. ``/metrics`` is there when the app was given `Metrics`. None of them tells anything of tasks or callers;
still, a public server's proxy need not pass them on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from werkzeug.wrappers import Response

from a2a_sync import jsontext
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.server.engine import Engine
from a2a_sync.server.metrics import Metrics
from a2a_sync.stores.base import Owner, TaskQuery, TaskStore
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: Pages that say nothing but that the process is well; whoever watches it may call it by any name.
HEALTH = ("/healthz", "/readyz")

#: How long a look at the store is good for, in seconds.
_PROBE_INTERVAL = 1.0


class OperatorPages:
    """Answers GET and HEAD for the paths in `paths`. `trouble` says why no work can be taken now, ``""`` when it can."""

    def __init__(self, trouble: Callable[[], str], metrics: Metrics | None) -> None:
        self._trouble = trouble
        self._metrics = metrics
        self.paths = (*HEALTH, *(("/metrics",) if metrics is not None else ()))

    def respond(self, path: str) -> Response:
        """The page at one of the paths."""
        if path == "/metrics" and self._metrics is not None:
            body, content_type = self._metrics.page()
            return Response(body, content_type=content_type)
        trouble = self._trouble() if path == "/readyz" else ""
        body = jsontext.dumps({"status": trouble or "ok"})
        response = Response(body, status=503 if trouble else 200, content_type="application/json")
        response.headers["Cache-Control"] = "no-store"
        return response


class Readiness:
    """Whether work can be taken that is kept in the store of `engine`. From any thread; a forked child begins anew.

    The store is read, and a shared one is written (this process's heartbeat), at most once a second: callers are not known, and
    each write is one that the agent's own have to wait for.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Know nothing yet."""
        self._found = "the store has not been tried yet"
        self._until = 0.0

    def trouble(self, *, stopping: bool) -> str:
        """Why no work can be taken now, in words that say nothing of the inside; ``""`` when it can."""
        if stopping:
            return "stopping"
        if self._engine.execution.pool.exhausted:
            return "every thread is held by a run past its time limit"
        if time.monotonic() >= self._until:
            # Others are given what was found last meanwhile: a locked store is waited for.
            self._until = math.inf
            try:
                self._found = _store_trouble(self._engine.store)
            finally:
                self._until = time.monotonic() + _PROBE_INTERVAL
        return self._found


def _store_trouble(store: TaskStore) -> str:
    try:
        store.list(Owner("", "\0readiness"), TaskQuery(size=1))
    except Exception:
        logger.exception("not ready: the store cannot be read")
        return "the store cannot be read"
    try:
        if store.workers is not None:
            store.workers.beat()
    except Exception:
        logger.exception("not ready: the store cannot be written")
        return "the store cannot be written"
    return ""
