"""Unexpected exceptions: the caller receives an id (with ``debug`` also a traceback), and the log has the details under that id."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from logging import LoggerAdapter
from typing import Any

from a2a_sync.errors import InternalError
from a2a_sync.types import new_id

#: The most characters of a traceback, from its end.
_MAX_TRACEBACK = 16_000

#: Functions called with the message and the exception of each incident of this process; used by testing clients.
observers: list[Callable[[str, BaseException], None]] = []


def incident(
    logger: LoggerAdapter[Any],
    what: str,
    extra: dict[str, str],
    *,
    error: BaseException | None = None,
    debug: bool = False,
) -> InternalError:
    """Log `what` with `extra` and the traceback of `error` (None: the exception being handled); the error for the caller.

    The error contains an id that is also in the log record, and with `debug` the traceback.
    """
    number = new_id()[-8:]
    caught = error or sys.exception()
    logger.error("%s (id %s)", what, number, exc_info=caught, extra=extra, stacklevel=2)
    message = f"internal error (id {number})"
    if caught is not None:
        if debug:
            message += "\n" + "".join(traceback.format_exception(caught))[-_MAX_TRACEBACK:].rstrip()
        for observe in observers:
            observe(message, caught)
    return InternalError(message)
