"""W3C trace context: passed from a request to its run, on any worker, and to the calls of clients.

Without OpenTelemetry the trace id is passed on unchanged, so that the services before and after an agent belong to one trace. If
the host uses OpenTelemetry's API, the library creates spans for calls and runs, and its propagator writes the headers.
"""

from __future__ import annotations

import contextvars
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

#: Longer values are dropped, in characters (W3C Trace Context 3.3.1.5 requires 512 for a state).
_MAX_PARENT_CHARS = 256
_MAX_STATE_CHARS = 512
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_trace: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar("a2a_sync_trace", default=None)


def incoming(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace context in the headers of a request (names in lower case); empty without a valid one."""
    parent = headers.get("traceparent", "")
    if not parent or len(parent) > _MAX_PARENT_CHARS:
        return {}
    found = _TRACEPARENT.fullmatch(parent)
    if found is None or found[1] == "ff" or not found[2].strip("0") or not found[3].strip("0"):
        return {}
    state = headers.get("tracestate", "")
    return {"traceparent": parent, **({"tracestate": state} if 0 < len(state) <= _MAX_STATE_CHARS else {})}


def outgoing() -> dict[str, str]:
    """The headers that continue the current trace in an outgoing call; empty without a trace."""
    api = _opentelemetry()
    if api is not None:
        carrier: dict[str, str] = {}
        api.propagate.inject(carrier)
        if carrier:
            return carrier
    trace = _trace.get()
    if not trace:
        return {}
    found = _TRACEPARENT.fullmatch(trace["traceparent"])
    if found is None:
        return {}
    # The same trace with a new parent: the span of the caller is not the parent of outgoing calls.
    return {**trace, "traceparent": f"00-{found[2]}-{secrets.token_hex(8)}-{found[4]}"}


def traced(
    name: str, trace: Mapping[str, str], *, kind: str = "internal", **attributes: str
) -> AbstractContextManager[None]:
    """Continue `trace` in a ``with`` block; as a span called `name` if OpenTelemetry is in use.

    The current span, if there is one (of the host's instrumentation, or of the request that started the run), is the parent;
    else `trace` is. `kind` is ``internal``, ``server`` or ``client``. Exceptions are recorded and pass through.
    """
    if "opentelemetry.trace" in sys.modules and (api := _opentelemetry()) is not None:
        return _span(api, name, trace, kind, attributes)
    return _continue(trace) if trace else nullcontext()


@contextmanager
def _continue(trace: Mapping[str, str]) -> Iterator[None]:
    token = _trace.set(trace)
    try:
        yield
    finally:
        _trace.reset(token)


@contextmanager
def _span(api: Any, name: str, trace: Mapping[str, str], kind: str, attributes: Mapping[str, str]) -> Iterator[None]:
    parent = None if api.trace.get_current_span().get_span_context().is_valid else api.propagate.extract(dict(trace))
    tracer = api.trace.get_tracer("a2a_sync")
    span_kind = api.trace.SpanKind[kind.upper()]
    named = {f"a2a.{key}": value for key, value in attributes.items() if value}
    with (
        _continue(trace) if trace else nullcontext(),
        tracer.start_as_current_span(name, context=parent, kind=span_kind, attributes=named),
    ):
        yield


def _opentelemetry() -> Any:
    """OpenTelemetry's API, if the host has loaded it."""
    api = sys.modules.get("opentelemetry")
    if api is None or "opentelemetry.trace" not in sys.modules:
        return None
    import opentelemetry.propagate

    return opentelemetry
