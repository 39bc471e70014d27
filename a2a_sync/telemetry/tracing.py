"""W3C trace context, carried through: from a request into its run, on any worker, and out with a client's calls.

Without OpenTelemetry the trace id passes through unchanged, so that the services on both sides of an agent see one
trace. Where OpenTelemetry's API is installed and in use by the host, the library makes spans of its own for calls and
runs, and its propagator writes the headers.
"""

from __future__ import annotations

import contextvars
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

#: Longer values are not passed on, in characters (W3C Trace Context 3.3.1.5 asks for 512 of a state).
_LONGEST_PARENT = 256
_LONGEST_STATE = 512
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_trace: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar("a2a_sync_trace", default=None)


def incoming(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace context among a request's headers (names in lower case); empty where there is none or a broken one."""
    parent = headers.get("traceparent", "")
    if not parent or len(parent) > _LONGEST_PARENT:
        return {}
    found = _TRACEPARENT.fullmatch(parent)
    if found is None or found[1] == "ff" or not found[2].strip("0") or not found[3].strip("0"):
        return {}
    state = headers.get("tracestate", "")
    return {"traceparent": parent, **({"tracestate": state} if 0 < len(state) <= _LONGEST_STATE else {})}


def outgoing() -> dict[str, str]:
    """The headers that continue the current trace in a call to somebody else; empty where there is no trace."""
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
    # The same trace, and a parent of our own: the caller's span is not the parent of what we call.
    return {**trace, "traceparent": f"00-{found[2]}-{secrets.token_hex(8)}-{found[4]}"}


def traced(
    name: str, trace: Mapping[str, str], *, kind: str = "internal", **attributes: str
) -> AbstractContextManager[None]:
    """Continue `trace` in the code within; as a span called `name` where OpenTelemetry is in use.

    A span that is current already (of the host's own instrumentation, or of the request that began the run) is the
    parent; `trace` is, where there is none. `kind` is ``internal``, ``server`` or ``client``. What is raised within is
    recorded and passes through.
    """
    api = _opentelemetry()
    if api is not None:
        return _spanned(api, name, trace, kind, attributes)
    return _continued(trace) if trace else nullcontext()


@contextmanager
def _continued(trace: Mapping[str, str]) -> Iterator[None]:
    token = _trace.set(trace)
    try:
        yield
    finally:
        _trace.reset(token)


@contextmanager
def _spanned(api: Any, name: str, trace: Mapping[str, str], kind: str, attributes: Mapping[str, str]) -> Iterator[None]:
    parent = None if api.trace.get_current_span().get_span_context().is_valid else api.propagate.extract(dict(trace))
    tracer = api.trace.get_tracer("a2a_sync")
    span_kind = api.trace.SpanKind[kind.upper()]
    given = {f"a2a.{key}": value for key, value in attributes.items() if value}
    with (
        _continued(trace) if trace else nullcontext(),
        tracer.start_as_current_span(name, context=parent, kind=span_kind, attributes=given),
    ):
        yield


def _opentelemetry() -> Any:
    """OpenTelemetry's API, if the host uses it: loading it for somebody who does not would be in vain."""
    api = sys.modules.get("opentelemetry")
    if api is None or "opentelemetry.trace" not in sys.modules:
        return None
    import opentelemetry.propagate

    return opentelemetry
