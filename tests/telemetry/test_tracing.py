"""A trace goes through an agent: in with the request, through the run, out with the calls that its code makes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext, Task
from a2a_sync import operations as op
from a2a_sync.operations import Call, CallContext
from a2a_sync.telemetry.tracing import incoming, outgoing, traced
from a2a_sync.testing import wsgi_session
from a2a_sync.types import Role, SendMessageRequest, TextPart
from tests.engine import eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have loaded its API, which passes the parent on."""
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


@pytest.mark.parametrize(
    "broken",
    ["", "junk", f"ff-{TRACE}-00f067aa0ba902b7-01", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE}-{'0' * 16}-01"],
)
def test_a_broken_trace_is_no_trace(broken: str) -> None:
    assert incoming({"traceparent": broken, "tracestate": "a=b"}) == {}


def test_long_values_are_not_passed_on() -> None:
    assert incoming({"traceparent": f"{PARENT}-{'x' * 300}"}) == {}
    assert incoming({"traceparent": PARENT, "tracestate": "a=" + "b" * 511}) == {"traceparent": PARENT}
    longest = {"traceparent": PARENT, "tracestate": "a=" + "b" * 510}
    assert incoming(longest) == longest


@pytest.mark.usefixtures("without_opentelemetry")
def test_a_trace_is_continued_with_a_parent_of_our_own() -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1", "cookie": "no"}
    with traced("test", incoming(headers)):
        sent = outgoing()
    assert re.fullmatch(rf"00-{TRACE}-[0-9a-f]{{16}}-01", sent["traceparent"])
    assert sent["traceparent"] != PARENT
    assert sent["tracestate"] == "vendor=1"
    assert "cookie" not in sent
    assert outgoing() == {}


def asking(app: A2AApp, headers: dict[str, str]) -> Any:
    message = Message(role=Role.USER, parts=(TextPart("hi"),))
    return app.endpoint()(Call(op.SEND_MESSAGE, SendMessageRequest(message=message), CallContext(headers=headers)))


@pytest.fixture
def chain() -> Iterator[tuple[A2AApp, list[str]]]:
    """An agent that asks another one over HTTP; what that one saw."""
    seen: list[str] = []
    last, first = Agent("last", description="Ends"), Agent("first", description="Asks")

    @last.message
    def end(message: Message, context: RequestContext) -> str:
        seen.append(context.headers.get("traceparent", ""))
        return "end"

    with A2AApp(last) as last_app, A2AApp(first) as first_app:

        @first.message
        def ask(message: Message, context: RequestContext) -> str:
            with Client("http://last.test", session=wsgi_session(last_app)) as client:
                answer = client.send("go on")
            assert isinstance(answer, Task)
            return answer.text

        yield first_app, seen


@pytest.mark.usefixtures("without_opentelemetry")
def test_a_trace_id_passes_from_agent_to_agent_without_opentelemetry(chain: tuple[A2AApp, list[str]]) -> None:
    app, seen = chain
    assert asking(app, {"traceparent": PARENT}).text == "end"
    assert [header.split("-")[1] for header in seen] == [TRACE]


@pytest.mark.usefixtures("without_opentelemetry")
def test_without_a_trace_none_is_invented(chain: tuple[A2AApp, list[str]]) -> None:
    app, seen = chain
    asking(app, {})
    assert seen == [""]


def test_with_opentelemetry_calls_and_runs_are_spans_of_the_callers_trace(
    chain: tuple[A2AApp, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    # `set_tracer_provider` would trace all later tests of this process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    app, seen = chain
    asking(app, {"traceparent": PARENT})
    # The span of a run ends after its last event was sent.
    expected = ["A2A SendMessage", "A2A SendStreamingMessage", "A2A SendStreamingMessage", "A2A run", "A2A run"]
    eventually(lambda: sorted(span.name for span in spans.get_finished_spans()) == expected, "all spans")
    assert {f"{span.context.trace_id:032x}" for span in spans.get_finished_spans()} == {TRACE}
    assert [header.split("-")[1] for header in seen] == [TRACE]
