"""Section B, third part: streams."""

from __future__ import annotations

from typing import Any

from tests.conformance.sending import UNKNOWN, state_of, text_of
from tests.conformance.suite import B, Level, Way
from tests.conformance.system import Speaker, message, new_name
from tests.conformance.wire import Events
from tests.engine import eventually

_EVENTS = {"task", "message", "statusUpdate", "artifactUpdate"}


def texts_of(events: list[Any]) -> list[str]:
    """The texts of artifact chunks in events, snapshots included, without empty ones.

    An event that replaces the chunks of an artifact by the same text is omitted, so that each text is listed once.
    """
    texts: list[str] = []
    pieces: dict[str, str] = {}
    for event in events:
        update = event.get("artifactUpdate", {})
        for artifact in (
            event["task"].get("artifacts", ()) if "task" in event else [update["artifact"]] if update else []
        ):
            chunks = [part["text"] for part in artifact["parts"] if part.get("text")]
            seen = pieces.get(artifact["artifactId"], "")
            if seen and update.get("lastChunk") and not update.get("append") and "".join(chunks) == seen:
                continue
            pieces[artifact["artifactId"]] = seen + "".join(chunks)
            texts += chunks
    return texts


def _whole(updates: list[Any]) -> str:
    """The text of one artifact after its updates."""
    text = ""
    for update in updates:
        chunks = "".join(part["text"] for part in update["artifact"]["parts"])
        text = text + chunks if update.get("append") else chunks
    return text


def last_state(events: list[Any]) -> str:
    return state_of(events[-1]["statusUpdate"])


def _follow(at: Speaker, id: str) -> Events:
    return at.open("SubscribeToTask", {"id": id})


# -- streaming sends ----------------------------------------------------------------------------------------------------


@B.line("V1-STRM-01", Level.MUST, "a stream consists of server-sent events")
def a_stream_is_server_sent_events(at: Speaker) -> None:
    with at.stream("echo") as stream:
        assert stream.answer.status == 200
        assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
        assert len(list(stream.frames())) >= 2


@B.line("V1-STRM-02", Level.MUST, "a message is the only event of its stream")
def a_message_is_alone(at: Speaker) -> None:
    (event,) = at.on("direct").stream("say").all()
    assert set(event) == {"message"}
    assert event["message"]["parts"] == [{"text": "no task was needed"}]


@B.line("V1-STRM-03", Level.MUST, "a stream has the task first, then its updates, and ends with the run")
def a_stream_contains_all_events_of_a_task(at: Speaker) -> None:
    for text, end in (("count 3", "COMPLETED"), ("reject", "REJECTED")):
        first, *rest = at.stream(text).all()
        assert set(first) == {"task"}
        assert rest
        assert all(set(event) <= {"statusUpdate", "artifactUpdate"} for event in rest)
        assert last_state(rest) == end
        stored = at.get(first["task"]["id"])
        assert stored["status"]["state"] == rest[-1]["statusUpdate"]["status"]["state"]


@B.line("V1-STRM-04", Level.MUST, "an event has exactly one of the four payloads")
def an_event_is_one_of_four(at: Speaker) -> None:
    events = [*at.stream("number 3").all(), *at.stream("ask").all(), *at.stream("count 3").all()]
    assert len(events) > 8
    assert all(len(event) == 1 and set(event) <= _EVENTS for event in events)


def _refused_stream(at: Speaker, operation: str, params: Any, name: str) -> None:
    reply = at.ask(operation, params)
    assert reply.media_type in ("application/json", "application/a2a+json")
    reply.refuses(name)


@B.line("V1-STRM-05", Level.MUST, "an invalid send is not answered with a stream")
def streams_are_refused_like_sends(at: Speaker) -> None:
    ended = at.task("echo")["id"]
    _refused_stream(at, "SendStreamingMessage", message("echo", taskId=ended), "UnsupportedOperation")
    _refused_stream(at, "SendStreamingMessage", message("echo", taskId=UNKNOWN), "TaskNotFound")
    _refused_stream(at, "SendStreamingMessage", message("echo", parts=[]), "InvalidParams")


@B.line("V1-STRM-06", Level.SDK, "an error before the stream is a plain JSON response")
def early_errors_are_plain(at: Speaker) -> None:
    reply = at.ask("SendStreamingMessage", message("echo", messageId=""), Accept="text/event-stream")
    assert reply.media_type in ("application/json", "application/a2a+json")
    reply.refuses("InvalidParams")


@B.line("V1-STRM-07", Level.MUST, "events are sent when they occur")
def events_come_as_they_happen(at: Speaker) -> None:
    gate = new_name()
    with at.stream(f"ticks {gate} 2") as stream:
        results = stream.results()
        seen: list[Any] = []
        while texts_of(seen) != ["1 ", "2 "]:
            seen.append(next(results))
        assert state_of(at.get(seen[0]["task"]["id"])) == "WORKING"
        at.release(gate)
        assert texts_of([*seen, *results]) == ["1 ", "2 ", "3 ", "4 "]


@B.line("V1-STRM-08", Level.SDK, "an event is one data line and a blank line")
def an_event_is_one_line(at: Speaker) -> None:
    with at.stream("echo", parts=[{"text": "echo"}, {"text": "a\r\nb\rc\n\u2028d"}]) as stream:
        frames = list(stream.frames())
        assert len(frames) > 2
        assert all(len(frame.values("data")) == 1 for frame in frames)
        lines = stream.raw.replace(b"\r\n", b"\n").split(b"\n")
    assert stream.raw.endswith((b"\n\n", b"\r\n\r\n"))
    assert b"\r" not in b"".join(lines)
    assert sum(line.startswith(b"data:") for line in lines) == len(frames)
    assert all(lines[place + 1] == b"" for place, line in enumerate(lines) if line.startswith(b"data:"))


@B.line("V1-STRM-09", Level.CHOICE, "a question ends the stream")
def a_question_ends_the_stream(at: Speaker) -> None:
    events = at.stream("ask").all()
    assert last_state(events) == "INPUT_REQUIRED"
    assert events[-1]["statusUpdate"]["status"]["message"]["parts"] == [{"text": "Which size?"}]


@B.line("V1-STRM-10", Level.SHOULD, "a stream continues while the agent waits for out-of-band credentials")
def a_stream_outlives_a_login(at: Speaker) -> None:
    gate = new_name()
    with at.stream(f"outside {gate}") as stream:
        results = stream.results()
        states = [next(results)["task"]["status"]["state"]]
        while states[-1] != "TASK_STATE_AUTH_REQUIRED":
            states.append(next(results)["statusUpdate"]["status"]["state"])
        at.release(gate)
        rest = list(results)
    assert texts_of(rest) == [f"outside {gate}"]
    assert last_state(rest) == "COMPLETED"


@B.line("V1-STRM-11", Level.SDK, "an error within a stream is its last event")
def late_errors_are_events(at: Speaker) -> None:
    cut = at.on("cut")
    with cut.stream("count 300") as stream:
        frames = stream.frames()
        first = next(frames).json
        cut.until((first if at.rest else first["result"])["task"]["id"], "COMPLETED", "FAILED")
        *_, last = frames
    assert last.json["error"]["message"]
    assert "secret" not in stream.raw.decode()
    if at.rest:
        assert last.values("event") == ["error"]
        assert last.json["error"]["code"] == 500
    else:
        assert (last.json["id"], last.json["error"]["code"]) == ("c-1", -32603)


@B.line("V1-STRM-12", Level.MUST, "chunks of an artifact add up to it")
def pieces_add_up(at: Speaker) -> None:
    task, *events = at.stream("count 5").all()
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    # The last event may append to the chunks or replace them by the whole.
    assert [update.get("append", False) for update in updates[:-1]] == [False] + [True] * (len(updates) - 2)
    assert [update.get("lastChunk", False) for update in updates] == [False] * (len(updates) - 1) + [True]
    (artifact,) = at.get(task["task"]["id"])["artifacts"]
    assert {update["artifact"]["artifactId"] for update in updates} == {artifact["artifactId"]}
    assert _whole(updates) == "".join(part["text"] for part in artifact["parts"]) == "1 2 3 4 5 "
    assert _whole(updates[:-1]) in ("1 2 3 4 ", "1 2 3 4 5 ")


# -- several streams ----------------------------------------------------------------------------------------------------


@B.line("V1-ORD-01", Level.MUST, "events are in order")
def events_are_in_order(at: Speaker) -> None:
    wanted = [str(number + 1) for number in range(60)]
    events = at.stream("number 60").all()
    assert texts_of(events) == wanted


def _two_streams(at: Speaker) -> tuple[list[Any], list[Any]]:
    """The events of two subscribers of one task, each from its snapshot."""
    gate = new_name()
    id = at.begin(f"ticks {gate} 20")["id"]
    eventually(lambda: text_of(at.get(id)).endswith("20 "), "the first half")
    with _follow(at, id) as first, _follow(at, id) as second:
        streams = [first.results(), second.results()]
        begun = [[next(stream)] for stream in streams]
        at.release(gate)
        one, other = ([*events, *stream] for events, stream in zip(begun, streams, strict=True))
    return one, other


@B.line("V1-ORD-02", Level.MUST, "every stream of a task receives every event")
def every_stream_gets_everything(at: Speaker) -> None:
    wanted = [f"{number + 1} " for number in range(40)]
    assert [texts_of(events) for events in _two_streams(at)] == [wanted, wanted]


@B.line("V1-ORD-03", Level.MUST, "all streams of a task have the same order")
def every_stream_has_one_order(at: Speaker) -> None:
    gate = new_name()
    id = at.begin(f"ticks {gate} 1")["id"]
    eventually(lambda: text_of(at.get(id)) == "1 ", "the first piece")
    with _follow(at, id) as first, _follow(at, id) as second:
        streams = [first.results(), second.results()]
        assert next(streams[0]) == next(streams[1])
        at.release(gate)
        assert list(streams[0]) == list(streams[1])


@B.line("V1-ORD-04", Level.MUST, "closing one stream does not affect others")
def closing_one_leaves_the_others(at: Speaker) -> None:
    gate = new_name()
    with at.stream(f"hold {gate}") as first:
        id = next(first.results())["task"]["id"]
        second = _follow(at, id)
    with second:
        at.release(gate)
        assert last_state(list(second.results())) == "COMPLETED"


@B.line("V1-ORD-05", Level.MUST, "closing its streams does not end a task")
def a_task_outlives_its_streams(at: Speaker) -> None:
    gate = new_name()
    with at.stream(f"hold {gate}") as stream:
        id = next(stream.results())["task"]["id"]
    at.release(gate)
    assert text_of(at.until(id, "COMPLETED")) == f"hold {gate}"


# -- subscribing --------------------------------------------------------------------------------------------------------


@B.line("V1-SUB-01", Level.MUST, "the first event is the current task")
def the_task_comes_first(at: Speaker) -> None:
    gate = new_name()
    id = at.begin(f"hold {gate}")["id"]
    with _follow(at, id) as stream:
        first = next(stream.results())
    at.release(gate)
    assert set(first) == {"task"}
    assert (first["task"]["id"], state_of(first["task"])) in ((id, "WORKING"), (id, "SUBMITTED"))


@B.line("V1-SUB-02", Level.MUST, "the stream ends with the task")
def the_end_ends_the_stream(at: Speaker) -> None:
    gate = new_name()
    with _follow(at, at.begin(f"hold {gate}")["id"]) as stream:
        results = stream.results()
        next(results)
        at.release(gate)
        assert last_state(list(results)) == "COMPLETED"


@B.line("V1-SUB-03", Level.MUST, "a terminal task cannot be subscribed to")
def the_ended_cannot_be_followed(at: Speaker) -> None:
    _refused_stream(at, "SubscribeToTask", {"id": at.task("echo")["id"]}, "UnsupportedOperation")


@B.line("V1-SUB-04", Level.MUST, "an unknown task cannot be subscribed to")
def the_unknown_cannot_be_followed(at: Speaker) -> None:
    _refused_stream(at, "SubscribeToTask", {"id": UNKNOWN}, "TaskNotFound")


@B.line("V1-SUB-05", Level.MUST, "no event is lost or repeated between the snapshot and the following events")
def nothing_is_lost(at: Speaker) -> None:
    wanted = [f"{number + 1} " for number in range(200)]
    for _ in range(5):
        gate = new_name()
        # The first half is emitted during the subscription.
        with _follow(at, at.begin(f"ticks {gate} 100")["id"]) as stream:
            at.release(gate)
            assert texts_of(list(stream.results())) == wanted


@B.line("V1-SUB-06", Level.CHOICE, "POST and GET subscribe in the same way", ways=(Way.REST,))
def both_verbs_subscribe(at: Speaker) -> None:
    gate = new_name()
    id = at.begin(f"hold {gate}")["id"]
    for verb in ("POST", "GET"):
        asked = at.request("SubscribeToTask", {"id": id})
        with at.opened(verb, asked.path, b"", asked.headers) as stream:
            assert set(next(stream.results())) == {"task"}
    at.release(gate)
