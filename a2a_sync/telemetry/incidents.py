"""An unexpected exception: the caller gets an id (with ``debug`` a traceback too), the log everything under that id."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from logging import LoggerAdapter
from typing import Any

from a2a_sync.errors import InternalError
from a2a_sync.types import new_id

#: The end of a traceback that is shown, in characters.
_MAX_TRACEBACK = 16_000

#: Called with the message of each incident of this process and its exception. Testing clients put functions here.
observers: list[Callable[[str, BaseException], None]] = []


def incident(
    logger: LoggerAdapter[Any],
    what: str,
    extra: dict[str, str],
    *,
    error: BaseException | None = None,
    debug: bool = False,
) -> InternalError:
    """Log `what` with `extra` and the traceback of `error` (None: the exception being handled), and make the caller's error.

    The error shows an id that the log record has too; with `debug` it shows the traceback as well.
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
