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
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where in the protocol the current code runs."""

    method: str = ""
    task_id: str = ""
    context_id: str = ""


_NOWHERE = Place()
_place: contextvars.ContextVar[Place] = contextvars.ContextVar("a2a_sync_place", default=_NOWHERE)


def current_place() -> Place:
    """The call and the run that the current code belongs to. Follows context variables into threads and coroutines."""
    return _place.get()


@contextmanager
def placed(method: str | None = None, task_id: str | None = None, context_id: str | None = None) -> Iterator[None]:
    """Say where the code within belongs; what is None stays as it was."""
    before = _place.get()
    given = {"method": method, "task_id": task_id, "context_id": context_id}
    token = _place.set(before._replace(**{name: value for name, value in given.items() if value is not None}))
    try:
        yield
    finally:
        _place.reset(token)


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
