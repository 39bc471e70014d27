"""What went wrong inside, told to two readers: the peer gets an id, the log everything under that id."""

from __future__ import annotations

from logging import LoggerAdapter
from typing import Any

from a2a_sync.errors import InternalError
from a2a_sync.types import new_id


def incident(
    logger: LoggerAdapter[Any], what: str, extra: dict[str, str], *, error: BaseException | bool = True
) -> InternalError:
    """An error with nothing but an id, which is logged with `what`, `extra` and the traceback of `error` (True: of what is
    being handled)."""
    number = new_id()[-8:]
    logger.error("%s (id %s)", what, number, exc_info=error, extra=extra, stacklevel=2)
    return InternalError(f"internal error (id {number})")
