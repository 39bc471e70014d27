"""Which call, task and context a log record belongs to: on every record of the library, and on yours if you like.

The library logs through `logging` below the name ``a2a_sync`` and configures nothing. Each of its records has the
attributes ``method``, ``task_id`` and ``context_id`` (``""`` where there is none). To have them on records of your own
code in a run, add a `ContextFilter` to your handler::

    handler.addFilter(ContextFilter())
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s [%(method)s task=%(task_id)s]"))
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import MutableMapping
from typing import Any, NamedTuple


class Place(NamedTuple):
    """The call and the run that the current code belongs to. It follows context variables into threads and coroutines."""

    method: str = ""
    task_id: str = ""
    context_id: str = ""


_NOWHERE = Place()
_place: contextvars.ContextVar[Place] = contextvars.ContextVar("a2a_sync_place", default=_NOWHERE)


class placed:
    """Say where the code within belongs; what is None stays as it was."""

    # On the way of every call, where a generator would take three times as long.
    __slots__ = ("_here", "_token")

    def __init__(self, method: str | None = None, task_id: str | None = None, context_id: str | None = None) -> None:
        around = _place.get()
        self._here = Place(
            around.method if method is None else method,
            around.task_id if task_id is None else task_id,
            around.context_id if context_id is None else context_id,
        )

    def __enter__(self) -> None:
        self._token = _place.set(self._here)

    def __exit__(self, *_: object) -> None:
        _place.reset(self._token)


class ContextFilter(logging.Filter):
    """Puts ``method``, ``task_id`` and ``context_id`` on every record that passes; keeps those that it has."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _place.get()._asdict().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**_place.get()._asdict(), **(kwargs.get("extra") or {})}
        return msg, kwargs


def get_logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """The library's logger of this name; ``extra=`` stands over what the current place says."""
    return _Logger(logging.getLogger(name), {})
