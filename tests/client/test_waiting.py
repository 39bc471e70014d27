"""`send` and `wait` against agents of every temper: streams that are cut, agents that never block, and bad networks."""

from __future__ import annotations

import threading

import pytest

from a2a_sync import (
    Client,
    DataPart,
    FilePart,
    Message,
    Retry,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
    TextPart,
    Timeout,
    TransportError,
    TransportTimeoutError,
)
from a2a_sync.client import retry, waiting
from a2a_sync.errors import ConnectError, HTTPStatusError, StreamInterruptedError, UnsupportedOperationError
from tests.client.peer import TIMEOUT, Asked, Line, Script, chunk, peer, results, said, status, steps, streams, task
from tests.stopwatch import Stopwatch

DONE = task("COMPLETED", artifacts=[{"artifactId": "a-1", "parts": [{"text": "all"}]}])
#: As patient as these tests need.
QUICK = Retry(max_elapsed=0.5, initial_backoff=0.01, max_backoff=0.05)


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling without the wait."""
    monkeypatch.setattr(retry, "_POLL_PAUSES", (0.01, 1.0, 0.01))


def cut_stream(*events: object) -> Script:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        for event in events:
            line.event(event)
        line.hang_up()

    return script


def refuse(code: int = -32004) -> Script:
    return lambda asked, line: line.error(code)


# -- what goes out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("hi", [{"text": "hi"}]),
        (TextPart("hi"), [{"text": "hi"}]),
        (["a", DataPart({"b": 1})], [{"text": "a"}, {"data": {"b": 1}}]),
        ((FilePart(raw=b"x", filename="x.bin"),), [{"raw": "eA==", "filename": "x.bin"}]),
        (Message(role=Role.USER, parts=(TextPart("hi"),)), [{"text": "hi"}]),
    ],
)
def test_text_parts_and_messages_are_sent(content: object, parts: object) -> None:
    with peer(results({"task": DONE})) as server, Client(server.card(streaming=False)) as client:
        client.send(content)  # type: ignore[arg-type]

    message = server.asked[0].params["message"]
    assert message["parts"] == parts
    assert message["role"] == "ROLE_USER"
    assert message["messageId"]


@pytest.mark.parametrize(("content", "error"), [([], ValueError), (7, TypeError), ([7], TypeError), (None, TypeError)])
def test_what_is_no_message_is_refused_before_anything_is_sent(content: object, error: type[Exception]) -> None:
    with peer(results({})) as server, Client(server.card()) as client:
        with pytest.raises(error):
            client.send(content)  # type: ignore[arg-type]
        assert server.asked == []


def test_a_send_says_what_it_was_asked_to_say() -> None:
    with (
        peer(results({"task": DONE})) as server,
        Client(server.card(tenant="acme"), extensions=["urn:x", "urn:y"]) as client,
    ):
        client.send(
            Message(role=Role.USER, parts=(TextPart("hi"),), context_id="old"),
            task_id="t-1",
            context_id="c-1",
            return_immediately=True,
            history_length=3,
            metadata={"k": [1]},
            accepted_output_modes=["image/png"],
        )

    asked = server.asked[0]
    assert asked.operation == "SendMessage"
    assert asked.params.pop("message")["taskId"] == "t-1"
    assert {key: value for key, value in asked.params.items() if key != "message"} == {
        "configuration": {"acceptedOutputModes": ["image/png"], "historyLength": 3, "returnImmediately": True},
        "metadata": {"k": [1]},
        "tenant": "acme",
    }
    assert asked.params["message"]["contextId"] == "c-1"
    assert asked.headers["a2a-version"] == "1.0"
    assert asked.headers["a2a-extensions"] == "urn:x, urn:y"
    assert asked.headers["content-type"] == "application/json"


def test_every_request_names_the_tenant_and_the_version() -> None:
    table = {
        "SendStreamingMessage": streams({"task": DONE}),
        "SubscribeToTask": streams({"task": DONE}),
        "GetTask": results(DONE),
        "CancelTask": results(DONE),
        "ListTasks": results({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}),
    }
    with peer(table) as server, Client(server.card(tenant="acme")) as client:
        client.send("hi")
        list(client.subscribe("t-1"))
        client.get_task("t-1")
        client.cancel_task("t-1")
        client.list_tasks()

    assert server.operations == list(table)
    assert {asked.params["tenant"] for asked in server.asked} == {"acme"}
    assert {asked.headers["a2a-version"] for asked in server.asked} == {"1.0"}


def test_streams_are_asked_for_uncompressed() -> None:
    with peer(streams({"task": DONE})) as server, Client(server.card()) as client:
        client.send("hi")

    assert server.asked[0].headers["accept"] == "text/event-stream, application/json"
    assert server.asked[0].headers["accept-encoding"] == "identity"


# -- what comes back ----------------------------------------------------------------------------------------------------


def test_a_send_streams_where_the_agent_can_and_gives_the_folded_task() -> None:
    events = ({"task": task("SUBMITTED")}, status("WORKING"), chunk("a", append=False), chunk("b"), status("COMPLETED"))
    with peer(streams(*events)) as server, Client(server.card()) as client:
        answer = client.send("hi")

    assert isinstance(answer, Task)
    assert (answer.id, answer.context_id, answer.state, answer.text) == ("t-1", "c-1", TaskState.COMPLETED, "ab")
    assert server.operations == ["SendStreamingMessage"]


def test_a_failed_task_is_returned_and_not_raised() -> None:
    why = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "no luck"}]}
    with peer(streams({"task": task()}, status("FAILED", message=why))) as server, Client(server.card()) as client:
        answer = client.send("hi")

    assert isinstance(answer, Task)
    assert (answer.state, answer.text) == (TaskState.FAILED, "no luck")


def test_a_direct_answer_is_returned() -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}
    with peer(streams({"message": message})) as server, Client(server.card()) as client:
        assert client.send("hi").text == "hello"
    with peer(results({"message": message})) as server, Client(server.card(streaming=False)) as client:
        assert client.send("hi").text == "hello"


def test_asked_for_history_costs_one_more_call() -> None:
    history = [{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}]
    table = {
        "SendStreamingMessage": streams({"task": task(history=history)}, status("COMPLETED", message=said("done"))),
        "GetTask": results({**DONE, "history": history}),
    }
    with peer(table) as server, Client(server.card()) as client:
        with_history, without = client.send("hi", history_length=1), client.send("hi", history_length=0)

    assert isinstance(with_history, Task)
    assert isinstance(without, Task)
    assert [message.text for message in with_history.history] == ["hi"]
    assert without.history == ()
    assert server.operations == ["SendStreamingMessage", "GetTask", "SendStreamingMessage"]
    assert server.asked[1].params == {"id": "t-1", "historyLength": 1}


def test_a_send_returns_when_its_task_waits_for_the_client_though_the_stream_stays_open() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        line.event(status("AUTH_REQUIRED", message=said("Log in")))
        line.await_close()

    with peer(script) as server, Client(server.card()) as client:
        watch = Stopwatch()
        answer = client.send("hi")

    assert isinstance(answer, Task)
    assert answer.state is TaskState.AUTH_REQUIRED
    assert watch.within(2)


def test_the_old_question_of_a_continued_task_is_not_taken_for_its_answer() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task("INPUT_REQUIRED")})
        line.pause(3 * waiting._PAUSE_GRACE)
        line.event(status("WORKING"))
        line.event(status("COMPLETED"))
        line.end_stream()

    with peer(script) as server, Client(server.card()) as client:
        answer = client.send("large", task_id="t-1")

    assert isinstance(answer, Task)
    assert answer.state is TaskState.COMPLETED


# -- answers that are stored and not streamed --

BARE = streams({"task": task()}, status("COMPLETED"))
SPOKEN = task("COMPLETED", history=[{"messageId": "u", "role": "ROLE_USER", "parts": [{"text": "hi"}]}, said("all")])


@pytest.mark.parametrize("stored", [DONE, SPOKEN], ids=["artifact", "history"])
@pytest.mark.parametrize("retry", [QUICK, None], ids=["retry", "no retry"])
def test_an_answer_that_was_not_streamed_is_asked_for_once(stored: dict[str, object], retry: Retry | None) -> None:
    with (
        peer({"SendStreamingMessage": BARE, "GetTask": results(stored)}) as server,
        Client(server.card(), retry=retry) as client,
    ):
        assert client.send("hi").text == "all"
        with client.stream("hi") as stream:
            *_, last = stream
        assert (stream.text, stream.resynchronised, last) == ("all", True, stream.task)
        assert client.chat().send("hi").text == "all"
        assert client.as_tool(name="peer", description="x")("hi") == "all"

    assert server.operations == ["SendStreamingMessage", "GetTask"] * 4


@pytest.mark.parametrize(
    "look",
    [results(task("COMPLETED")), results(task("WORKING")), refuse(-32001), refuse(-32601)],
    ids=["completed", "working", "not found", "no method"],
)
def test_a_task_that_holds_no_answer_is_returned_as_it_was_streamed(look: Script) -> None:
    with (
        peer({"SendStreamingMessage": BARE, "GetTask": look}) as server,
        Client(server.card(), retry=QUICK) as client,
    ):
        answer = client.send("hi")
        assert isinstance(answer, Task)
        assert (answer.state, answer.text) == (TaskState.COMPLETED, "")
        assert server.operations == ["SendStreamingMessage", "GetTask"]
        assert len(list(client.stream("hi"))) == 2


@pytest.mark.parametrize(
    "events",
    [
        (chunk("x", append=False), status("COMPLETED")),
        (status("COMPLETED", message=said("x")),),
        (status("FAILED"),),
        ({"task": task("COMPLETED")},),
    ],
    ids=["artifact", "message", "failed", "snapshot"],
)
def test_a_complete_stream_needs_no_other_call(events: tuple[dict[str, object], ...]) -> None:
    with peer(streams({"task": task()}, *events)) as server, Client(server.card()) as client:
        client.send("hi")
        list(client.stream("hi"))

    assert server.operations == ["SendStreamingMessage"] * 2


@pytest.mark.usefixtures("short_pauses")
def test_a_send_without_a_stream_sends_and_polls() -> None:
    table = {"SendMessage": results({"task": task()}), "GetTask": steps(results(task()), results(DONE))}
    with peer(table) as server, Client(server.card()) as client:
        assert client.send("hi", stream=False).text == "all"
        assert client.wait("t-1", stream=False).text == "all"

    assert server.operations == ["SendMessage", "GetTask", "GetTask", "GetTask"]


# -- when the stream does not make it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [cut_stream({"task": task()}), streams({"task": task()})], ids=["broken", "ended"])
def test_a_cut_stream_is_taken_up_again(cut: Script) -> None:
    table = {
        "SendStreamingMessage": cut,
        "SubscribeToTask": streams({"task": task()}, chunk("all", append=False), status("COMPLETED")),
    }
    with peer(table) as server, Client(server.card(), retry=QUICK) as client:
        answer = client.send("hi")

    assert isinstance(answer, Task)
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "all")
    assert server.operations == ["SendStreamingMessage", "SubscribeToTask"]


@pytest.mark.usefixtures("short_pauses")
def test_the_task_of_a_cut_stream_is_polled_if_the_agent_refuses_subscriptions() -> None:
    table = {
        "SendStreamingMessage": streams({"task": task()}),
        "SubscribeToTask": refuse(),
        "GetTask": steps(*[results(task())] * 3, results(DONE)),
    }
    with peer(table) as server, Client(server.card(), retry=QUICK) as client:
        assert client.send("hi").text == "all"

    assert server.operations == [
        *("SendStreamingMessage", "SubscribeToTask", "GetTask"),
        *("GetTask", "SubscribeToTask", "GetTask", "GetTask"),
    ]


def test_without_retry_a_cut_stream_is_an_error_that_names_the_task() -> None:
    with peer(streams({"task": task()})) as server:
        client = Client(server.card(), retry=None)
        with client, pytest.raises(StreamInterruptedError) as caught:
            client.send("hi")

    assert (caught.value.task_id, caught.value.last_event_id) == ("t-1", 1)
    assert len(server.asked) == 1


def test_a_silent_stream_is_taken_up_again() -> None:
    def silent(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        line.await_close()

    table = {"SendStreamingMessage": silent, "SubscribeToTask": refuse(), "GetTask": results(DONE)}
    with peer(table) as server, Client(server.card(), timeout=Timeout(read=0.2), retry=QUICK) as client:
        assert client.send("hi").text == "all"


def test_a_send_that_was_cut_before_its_first_event_is_not_repeated() -> None:
    with peer({"SendStreamingMessage": cut_stream(), "GetTask": results(DONE)}) as server:
        client = Client(server.card())
        with client, pytest.raises(StreamInterruptedError):
            client.send("hi", task_id="t-1")

    assert server.operations == ["SendStreamingMessage"]


def test_the_overall_limit_ends_a_send_and_its_error_names_the_task() -> None:
    def endless(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        line.await_close()

    with peer(endless) as server, Client(server.card()) as client:
        watch = Stopwatch()
        with pytest.raises(TransportTimeoutError) as caught:
            client.send("hi", timeout=0.3)

    assert watch.within(2, least=0.2)
    assert (caught.value.task_id, caught.value.phase) == ("t-1", "stream")
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.usefixtures("short_pauses")
def test_an_agent_that_never_blocks_is_waited_for() -> None:
    table = {
        "SendMessage": results({"task": task("SUBMITTED")}),
        "GetTask": steps(*[results(task())] * 3, results(DONE)),
    }
    with peer(table) as server, Client(server.card(streaming=False)) as client:
        assert client.send("hi").text == "all"

    assert server.operations == ["SendMessage"] + ["GetTask"] * 4


def test_returning_immediately_does_not_wait() -> None:
    with peer({"SendMessage": results({"task": task("SUBMITTED")})}) as server, Client(server.card()) as client:
        answer = client.send("hi", return_immediately=True)

    assert isinstance(answer, Task)
    assert answer.state is TaskState.SUBMITTED


def test_streaming_from_an_agent_that_does_not_stream_gives_its_one_answer() -> None:
    with peer({"SendMessage": results({"task": DONE})}) as server, Client(server.card(streaming=False)) as client:
        stream = client.stream("hi")
        assert [type(event) for event in stream] == [Task]
        assert stream.text == "all"


# -- waiting ------------------------------------------------------------------------------------------------------------


def test_waiting_for_a_task_that_has_paused_is_one_call() -> None:
    with peer({"GetTask": results(task("INPUT_REQUIRED"))}) as server, Client(server.card()) as client:
        assert client.wait("t-1").state is TaskState.INPUT_REQUIRED

    assert server.operations == ["GetTask"]


@pytest.mark.usefixtures("short_pauses")
def test_waiting_subscribes_again_as_long_as_the_task_works() -> None:
    table = {
        "GetTask": lambda asked, line: line.result(DONE if server.operations.count("SubscribeToTask") == 3 else task()),
        "SubscribeToTask": steps(streams({"task": task()}), cut_stream({"task": task()}), streams({"task": DONE})),
    }
    with peer(table) as server, Client(server.card()) as client:
        assert client.wait("t-1").text == "all"

    assert server.operations.count("SubscribeToTask") == 3


def test_an_agent_that_ends_each_subscription_after_an_event_is_asked_less_and_less_often() -> None:
    table = {"GetTask": results(task()), "SubscribeToTask": streams({"task": task()}, status("WORKING"))}
    with peer(table) as server, Client(server.card(), retry=Retry(initial_backoff=0.01)) as client:
        with pytest.raises(TransportTimeoutError):
            client.wait("t-1", timeout=2)
        # Pauses of at least 0.005 s, doubled each time, take more than 2 seconds after nine of them.
        assert 2 < server.operations.count("SubscribeToTask") < 12


@pytest.mark.usefixtures("short_pauses")
def test_waiting_looks_at_a_task_that_cannot_be_followed() -> None:
    table = {"GetTask": steps(results(task()), results(task()), results(DONE)), "SubscribeToTask": refuse()}
    with peer(table) as server, Client(server.card()) as client:
        assert client.wait("t-1").text == "all"

    assert server.operations == ["GetTask", "SubscribeToTask", "GetTask", "GetTask"]


def test_events_without_a_snapshot_are_not_taken_for_the_whole_task() -> None:
    table = {
        "GetTask": steps(results(task()), results(DONE)),
        "SubscribeToTask": streams(chunk("the end of it"), status("COMPLETED")),
    }
    with peer(table) as server, Client(server.card()) as client:
        assert client.wait("t-1").text == "all"


def test_waiting_ends_at_its_limit_and_names_the_task() -> None:
    with peer({"GetTask": results(task())}) as server, Client(server.card(streaming=False)) as client:
        watch = Stopwatch()
        with pytest.raises(TransportTimeoutError) as caught:
            client.wait("t-1", timeout=0.4)

    assert watch.within(2, least=0.3)
    assert (caught.value.task_id, caught.value.agent) == ("t-1", server.url + "/rpc")


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    "later",
    [
        lambda asked, line: line.answer(b"wait", 503, Retry_After="1", Content_Type="text/plain"),
        lambda asked, line: line.error(-32000, http=429, Retry_After="1"),
    ],
    ids=["http", "a2a"],
)
def test_waiting_is_as_patient_as_the_agent_asks_for(later: Script) -> None:
    with peer({"GetTask": steps(later, results(DONE))}) as server, Client(server.card()) as client:
        watch = Stopwatch()
        client.wait("t-1")

    assert watch.within(3, least=0.9)


@pytest.mark.usefixtures("short_pauses")
def test_waiting_outlasts_passing_failures_but_not_lasting_ones() -> None:
    def broken(asked: Asked, line: Line) -> None:
        line.hang_up()

    script = steps(broken, broken, results(task()), broken, results(DONE))
    with peer({"GetTask": script}) as server, Client(server.card(streaming=False), retry=QUICK) as client:
        assert client.wait("t-1").text == "all"
    with peer({"GetTask": broken}) as server, Client(server.card(), retry=QUICK) as client:
        with pytest.raises(TransportError) as caught:
            client.wait("t-1")
        assert caught.value.task_id == "t-1"
    assert len(server.asked) > 1
    with Client(server.card(), retry=QUICK) as client, pytest.raises(ConnectError):
        client.wait("t-1")


def test_waiting_does_not_repeat_what_will_not_change() -> None:
    for script, error in (
        (refuse(-32001), TaskNotFoundError),
        (lambda a, line: line.answer(b"", 403), HTTPStatusError),
    ):
        with peer({"GetTask": script}) as server, Client(server.card()) as client:
            with pytest.raises(error):
                client.wait("t-1")
            assert len(server.asked) == 1


def test_closing_the_client_ends_a_wait() -> None:
    asked_once = threading.Event()

    def working(asked: Asked, line: Line) -> None:
        line.result(task())
        asked_once.set()

    outcome: list[BaseException] = []

    def wait(client: Client) -> None:
        try:
            client.wait("t-1")
        except RuntimeError as error:
            outcome.append(error)

    with peer({"GetTask": working}) as server:
        client = Client(server.card(streaming=False))
        thread = threading.Thread(target=wait, args=(client,), daemon=True)
        thread.start()
        assert asked_once.wait(TIMEOUT)
        client.close()
        thread.join(60)

    assert [str(error) for error in outcome] == ["the client is closed"]


# -- the other operations -----------------------------------------------------------------------------------------------


def test_lists_are_asked_for_with_their_filters_and_followed_over_pages() -> None:
    pages = [
        {"tasks": [task()], "nextPageToken": "2", "pageSize": 1, "totalSize": 2},
        {"tasks": [DONE], "nextPageToken": "", "pageSize": 1, "totalSize": 2},
    ]
    with peer({"ListTasks": steps(*map(results, pages))}) as server, Client(server.card()) as client:
        found = list(client.iter_tasks(context_id="c-1", status="working", page_size=1, include_artifacts=True))

    assert [one.state for one in found] == [TaskState.WORKING, TaskState.COMPLETED]
    filters = {"contextId": "c-1", "status": "TASK_STATE_WORKING", "pageSize": 1, "includeArtifacts": True}
    assert [asked.params for asked in server.asked] == [filters, {**filters, "pageToken": "2"}]


def test_a_server_that_repeats_its_page_token_does_not_keep_us_for_ever() -> None:
    page = {"tasks": [task()], "nextPageToken": "same", "pageSize": 1, "totalSize": 9}
    with peer({"ListTasks": results(page)}) as server, Client(server.card()) as client:
        assert len(list(client.iter_tasks())) == 2


def test_a_task_is_cancelled_with_the_reason_given() -> None:
    with peer({"CancelTask": results(task("CANCELED"))}) as server, Client(server.card()) as client:
        assert client.cancel_task("t-1", metadata={"why": "enough"}).state is TaskState.CANCELED

    assert server.asked[0].params == {"id": "t-1", "metadata": {"why": "enough"}}


def test_a_refusal_is_the_agents_own_error() -> None:
    script = {"SubscribeToTask": refuse()}
    with peer(script) as server, Client(server.card()) as client, pytest.raises(UnsupportedOperationError):
        client.subscribe("t-1")
