"""Section G, second part: streams of 0.3."""

from __future__ import annotations

from typing import Any

from tests.conformance.sending import UNKNOWN
from tests.conformance.suite import G, Level
from tests.conformance.system import Speaker, message_v03, new_name
from tests.conformance.v03 import assert_is_event, code, get, parts_of, release
from tests.engine import eventually

# -- streams ------------------------------------------------------------------------------------------------------------


def stream(at: Speaker, text: str, **members: Any) -> list[dict[str, Any]]:
    """All events of message/stream."""
    return at.open("SendStreamingMessage", message_v03(text, **members)).all()


@G.line("V03-STRM-01", Level.MUST, "events of a stream are complete responses")
def events_are_answers(at: Speaker) -> None:
    with at.open("SendStreamingMessage", message_v03("count 2"), 7) as events:
        answers = [frame.json for frame in events.frames()]
    assert len(answers) > 2
    assert all((answer["jsonrpc"], answer["id"], "result" in answer) == ("2.0", 7, True) for answer in answers)


@G.line("V03-STRM-02", Level.MUST, "events have a kind, and status updates a final flag")
def events_have_a_kind(at: Speaker) -> None:
    events = [*stream(at, "count 2"), *stream(at, "ask"), *stream(at, "reject"), *stream(at.on("direct"), "say")]
    for event in events:
        assert_is_event(event)
    assert {event["kind"] for event in events} == {"task", "message", "status-update", "artifact-update"}


@G.line("V03-STRM-03", Level.MUST, "only the last status update is final")
def the_last_update_is_final(at: Speaker) -> None:
    for text in ("count 2", "ask", "reject"):
        finals = [event.get("final", False) for event in stream(at, text)]
        assert finals == [False] * (len(finals) - 1) + [True]
    gate = new_name()
    with at.open("SendStreamingMessage", message_v03(f"outside {gate}")) as events:
        updates = (event for event in events.results() if event["kind"] == "status-update")
        waiting = next(updates)
        release(at, gate)
        assert (waiting["status"]["state"], waiting["final"]) == ("auth-required", False)
        assert [event["final"] for event in updates] == [True]


@G.line("V03-STRM-05", Level.MUST, "tasks/resubscribe resumes a stream")
def resubscribing_goes_on(at: Speaker) -> None:
    gate = new_name()
    with at.open("SendStreamingMessage", message_v03(f"ticks {gate} 2")) as first:
        id = next(first.results())["id"]
    eventually(lambda: [part["text"] for part in parts_of(get(at, id))] == ["1 ", "2 "], "the first half")
    with at.open("SubscribeToTask", {"id": id}) as second:
        results = second.results()
        events = [next(results)]
        release(at, gate)
        events += results
    text = "".join(part["text"] for artifact in events[0]["artifacts"] for part in artifact["parts"])
    for update in events[1:]:
        chunk_text = "".join(part["text"] for part in update.get("artifact", {}).get("parts", ()))
        if "artifact" in update and not update.get("append"):
            # The last update may replace the chunks, all of which were sent, by the whole.
            assert chunk_text == text
        else:
            text += chunk_text
    assert text == "1 2 3 4 "
    assert events[-1]["final"] is True


@G.line("V03-STRM-06", Level.MUST, "tasks/resubscribe of an unknown task is refused")
def resubscribing_to_the_unknown(at: Speaker) -> None:
    assert code(at.ask("SubscribeToTask", {"id": UNKNOWN})) == -32001


@G.line("V03-STRM-07", Level.MUST, "invalid params are an error and not a stream")
def bad_params_are_no_stream(at: Speaker) -> None:
    for params in ({}, message_v03("", parts=[])):
        reply = at.ask("SendStreamingMessage", params)
        assert reply.media_type == "application/json"
        assert code(reply) == -32602
