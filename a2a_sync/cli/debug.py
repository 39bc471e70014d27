"""What ``--debug`` shows: calls, HTTP requests and tracebacks, on standard error."""

from __future__ import annotations

import logging
import re
import time
import traceback
import warnings

import click

from a2a_sync.cli.text import clean_json, print_status
from a2a_sync.codec import by_version
from a2a_sync.display import clean
from a2a_sync.errors import AgentError, TransportError
from a2a_sync.operations import Call, Endpoint, Interceptor, RequestT, ResultT

#: Characters of a request or a result.
_MAX_SHOWN = 1000
#: Members whose values are never shown.
_SECRETS = {"token", "credentials"}

_QUERY = re.compile(r"\?[^\s\"]+")

_enabled = False


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # Queries can hold keys.
        print_status(f"debug: {record.name}: {_QUERY.sub('?***', record.getMessage())}", dim=True)


def is_enabled() -> bool:
    """Calls are shown."""
    return _enabled


def enable(ctx: click.Context | None = None) -> None:
    """Show what is called until `ctx` ends, or the process. Idempotent."""
    global _enabled
    if _enabled:
        return
    _enabled = True
    if ctx is not None:
        ctx.call_on_close(_disable)
    handler = _Lines()
    for name in ("a2a_sync", "urllib3.connectionpool"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)


def _disable() -> None:
    global _enabled
    _enabled = False
    for name in ("a2a_sync", "urllib3.connectionpool"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.NOTSET)
        for handler in [one for one in logger.handlers if isinstance(one, _Lines)]:
            logger.removeHandler(handler)


def print_traceback() -> None:
    """The traceback of the current exception, if ``--debug`` was given."""
    if _enabled:
        click.secho(clean(traceback.format_exc()), err=True, dim=True, nl=False)


def interceptors() -> tuple[Interceptor, ...]:
    """The interceptors of a client: with ``--debug`` one that shows each call."""
    return (_Shown,) if _enabled else ()


def silence_certificate_warnings() -> None:
    """Without a warning for each request: ``--insecure`` asked for it."""
    warnings.filterwarnings("ignore", message="Unverified HTTPS request")


class _Shown:
    """An endpoint that shows calls and results of another."""

    def __init__(self, inner: Endpoint) -> None:
        self._inner = inner

    def __call__(self, call: Call[RequestT, ResultT], /) -> ResultT:
        name = call.operation.name
        _show(f"> {name} ({call.context.version})", call.request)
        began = time.monotonic()
        try:
            result = self._inner(call)
        except (AgentError, TransportError) as error:
            print_status(f"debug: < {name}: {type(error).__name__}: {error}", dim=True)
            raise
        _show(f"< {name} in {(time.monotonic() - began) * 1000:.0f} ms", None if call.operation.streaming else result)
        return result


def _show(head: str, value: object) -> None:
    text = "" if value is None else clean_json(_without_secrets(by_version("1.0").dump(value)))
    more = f"… ({len(text)} characters)" if len(text) > _MAX_SHOWN else ""
    print_status(f"debug: {head} {text[:_MAX_SHOWN]}{more}".rstrip(), dim=True)


def _without_secrets(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        return {name: "***" if name in _SECRETS else _without_secrets(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_secrets(inner) for inner in value]
    return _QUERY.sub("?***", value) if name == "url" and isinstance(value, str) else value
