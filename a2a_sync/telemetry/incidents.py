"""Unexpected exceptions: the caller receives an id (with ``debug`` also a traceback), and the log has the details under that id.

A store that cannot be reached now is expected: the caller is asked to retry.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from logging import LoggerAdapter
from typing import Any

from a2a_sync.errors import AgentError, InternalError, StoreError, UnavailableError
from a2a_sync.types import new_id

#: When a call that the store could not serve may be repeated, in seconds.
_STORE_RETRY_AFTER = 1.0
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


def call_error(logger: LoggerAdapter[Any], what: str, extra: dict[str, str], *, debug: bool = False) -> AgentError:
    """The error for the caller of a call whose exception is being handled.

    An `UnavailableError` where the store cannot be reached now, whose cause is logged in one line; else an `incident`.
    """
    caught = sys.exception()
    if isinstance(caught, StoreError) and caught.transient:
        logger.warning("%s: %s", what, caught, extra=extra, stacklevel=2)
        return UnavailableError(retry_after=_STORE_RETRY_AFTER)
    return incident(logger, what, extra, debug=debug)
