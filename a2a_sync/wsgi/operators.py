"""Pages for those who run a server: is the process alive, can it work, what has it done.

``/healthz`` says that the process answers. ``/readyz`` says whether it can take work: the store can be read and the app
is not closing. ``/metrics`` is there when the app was given `Metrics`. None of them tells anything of tasks or callers;
still, a public server's proxy need not pass them on.
"""

from __future__ import annotations

from collections.abc import Callable

from werkzeug.wrappers import Response

from a2a_sync import jsontext
from a2a_sync.logs import get_logger
from a2a_sync.metrics import Metrics
from a2a_sync.stores.base import Scope, TaskQuery, TaskStore

logger = get_logger(__name__)

#: Pages that say nothing but that the process is well; whoever watches it may call it by any name.
HEALTH = ("/healthz", "/readyz")


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


def trouble_of(store: TaskStore, *, stopping: bool) -> str:
    """Why no work can be taken that is kept in `store`, in words that say nothing of the inside; ``""`` when it can."""
    if stopping:
        return "stopping"
    try:
        store.list(Scope("", "\0readiness"), TaskQuery(size=1))
    except Exception:
        logger.exception("not ready: the store cannot be read")
        return "the store cannot be read"
    return ""
