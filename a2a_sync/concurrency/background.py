"""How a thread that looks after something is started: as a daemon, with a name, and without it where the machine has none left."""

from __future__ import annotations

import threading
from collections.abc import Callable

from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)


def start_thread(name: str, target: Callable[..., object], *arguments: object) -> threading.Thread | None:
    """A daemon thread that has begun to call ``target(*arguments)``; None where there is no thread, which is logged.

    Who keeps the None tries again when a thread is wanted the next time. Callers hold the lock under which they keep it:
    nothing here waits for the new thread's code.
    """
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        logger.exception("no thread for %s; it is tried again", name)
        return None
    return thread
