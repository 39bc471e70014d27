"""The call, task and context of log records.

The library logs through `logging` below the name ``a2a_sync`` and configures nothing. Each of its records has the attributes
``method``, ``task_id`` and ``context_id`` (``""`` if there is none). To add them to the records of your own code in a run, add a
`ContextFilter` to your handler::

    handler.addFilter(ContextFilter())
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s [%(method)s task=%(task_id)s]"))
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import MutableMapping
from typing import Any, NamedTuple

__all__ = [
    "ContextFilter",
]


class LogContext(NamedTuple):
    """The call and the run of the current code. It is passed to threads and coroutines with the context variables."""

    method: str = ""
    task_id: str = ""
    context_id: str = ""


_EMPTY = LogContext()
_current: contextvars.ContextVar[LogContext] = contextvars.ContextVar("a2a_sync_log_context", default=_EMPTY)


class log_context:
    """Set the context of log records in a ``with`` block; arguments that are None stay as they are outside."""

    # Used by every call; a generator would take three times as long.
    __slots__ = ("_context", "_token")

    def __init__(self, method: str | None = None, task_id: str | None = None, context_id: str | None = None) -> None:
        outer = _current.get()
        self._context = LogContext(
            outer.method if method is None else method,
            outer.task_id if task_id is None else task_id,
            outer.context_id if context_id is None else context_id,
        )

    def __enter__(self) -> None:
        self._token = _current.set(self._context)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


class ContextFilter(logging.Filter):
    """Adds ``method``, ``task_id`` and ``context_id`` to every record that does not have them."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _current.get()._asdict().items():
            if not hasattr(record, name):
                setattr(record, name, _one_line(value))
        return True


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra = {**_current.get()._asdict(), **(kwargs.get("extra") or {})}
        kwargs["extra"] = {name: _one_line(value) for name, value in extra.items()}
        return msg, kwargs


def _one_line(value: Any) -> Any:
    """`value`; an id that a caller has chosen cannot begin a line of the log."""
    return value if not isinstance(value, str) or value.isprintable() else ascii(value)


def _escape_arguments(record: logging.LogRecord) -> bool:
    """Let no text of a caller or peer that is an argument of a record, or the text of an error, begin a line of the log."""
    if isinstance(record.args, tuple):
        record.args = tuple(_escaped(one) for one in record.args)
    return True


def _escaped(value: Any) -> Any:
    text = str(value) if isinstance(value, BaseException) else value
    if not isinstance(text, str) or text.isprintable():
        return value
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def get_logger(module: str) -> logging.LoggerAdapter[logging.Logger]:
    """The logger of the folder that `module` is in (``a2a_sync.engine``); ``extra=`` overrides the current context.

    There is one logger for each folder, so moving code between modules does not change a configuration of logging.
    """
    logger = logging.getLogger(".".join(module.split(".")[:2]))
    logger.addFilter(_escape_arguments)
    return _Logger(logger, {})
