"""Whether a server can accept work: its store can be read and written, and it has threads for runs."""

from __future__ import annotations

from typing import Final

from a2a_sync.concurrency.background import BoundedRead
from a2a_sync.engine.engine import Engine
from a2a_sync.stores.base import Owner, TaskQuery
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: How long the result of a probe of the store is used, in seconds.
_PROBE_INTERVAL = 1.0
#: How long a caller waits for a probe, in seconds: less than the time limit that a caller has.
_PROBE_TIMEOUT = 1.0
#: It has no tasks.
_NO_OWNER = Owner("", "\x1freadiness\x1f")


class Readiness:
    """The readiness of `engine`. From any thread.

    The store is read, and a shared one is written (the heartbeat of this process), at most once a second: any caller may
    ask, and each write delays those of the agent.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found = "the store has not been tried yet"
        self._probe = BoundedRead("a2a-readiness", self._try_store, interval=_PROBE_INTERVAL, timeout=_PROBE_TIMEOUT)

    def not_ready_reason(self, *, stopping: bool) -> str:
        """Why no work can be accepted now, without internal details; ``""`` when it can."""
        if stopping:
            return "stopping"
        if self._engine.runs.pool.exhausted:
            return "every thread is held by a run past its time limit"
        if not self._probe.refresh():
            # Until the probe returns.
            self._found = "the store does not answer"
        return self._found

    def _try_store(self) -> None:
        self._found = _probe(self._engine)


def _probe(engine: Engine) -> str:
    try:
        engine.store.list(_NO_OWNER, TaskQuery(size=1))
    except Exception:
        logger.exception("not ready: the store cannot be read")
        return "the store cannot be read"
    try:
        if engine.membership is not None:
            engine.membership.beat()
    except Exception:
        logger.exception("not ready: the store cannot be written")
        return "the store cannot be written"
    return ""
