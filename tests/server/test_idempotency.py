"""Sends with an Idempotency-Key: run once, answered with their task however often they come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from a2a_sync import Agent, Client, InputRequired, StreamingResult
from a2a_sync import operations as op
from a2a_sync.errors import InvalidParamsError, OverloadedError, TaskNotFoundError, UnsupportedOperationError
from a2a_sync.operations import IDEMPOTENT_SEND, Principal
from a2a_sync.stores.base import SMALL_BYTES
from a2a_sync.types import Message, Task, TaskState, new_id
from tests.engine import STORES, TIMEOUT, Background, Gate, Served, collect, eventually, serving_over

S = TaskState


@pytest.fixture(params=STORES)
def serve(request, tmp_path):
    yield from serving_over(request.param, tmp_path)


class Counting:
    """A handler that counts its runs. "ask" asks, "hold" waits for the gate, all else is streamed back in pieces."""

    def __init__(self):
        self.runs = []
        self.gate = Gate()

    def __call__(self, message, context):
        self.runs.append(message.text)
        if message.text == "ask":
            return InputRequired("and then?")
        if message.text == "hold":
            self.gate.block()
        return StreamingResult(iter(message.text))


@pytest.fixture
def handler():
    return Counting()


@pytest.fixture
def served(serve, handler):
    return serve(handler)


def send(served: Served, text="go", key="k", operation=op.SEND_MESSAGE, user=None, request=None, **members):
    """Send with a key; each time as a client without memory of the first time: the message has a new id."""
    request = replace(request or served.request(text, **members))
    request = replace(request, message=replace(request.message, message_id=new_id()))
    principal = None if user is None else Principal(id=user)
    return served.call(operation, request, headers={"idempotency-key": key}, principal=principal)


def stream(served, text="go", key="k", **members):
    return collect(send(served, text, key, op.SEND_STREAMING_MESSAGE, **members))


def shown(items):
    return [(item.number, item.event) for item in items]


# -- once ---------------------------------------------------------------------------------------------------------------


def test_a_send_that_comes_again_gets_the_task_of_the_first(served, handler):
    first, again = send(served), send(served)
    assert (first, first.state, first.text) == (again, S.COMPLETED, "go")
    assert handler.runs == ["go"]
    assert served.list().total_size == 1


def test_one_that_comes_again_while_the_run_goes_on_waits_for_it(served, handler):
    callers = [Background(lambda: send(served, "hold")) for _ in range(2)]
    handler.gate.wait()
    assert send(served, "hold", return_immediately=True).state is S.WORKING
    assert all(caller.waiting for caller in callers)
    handler.gate.open.set()
    first, again = (caller.result() for caller in callers)
    assert (first.id, first.state) == (again.id, S.COMPLETED)
    assert handler.runs == ["hold"]


def test_a_stream_that_comes_again_shows_the_same_from_its_start(served, handler):
    first = stream(served, "abc")
    again = stream(served, "abc")
    assert shown(first) == shown(again)
    assert len(first) == 6
    assert handler.runs == ["abc"]


def test_a_stream_that_comes_again_begins_with_the_task_where_its_log_is_large(served, handler):
    first = stream(served, "x" * SMALL_BYTES)
    (task, *rest) = stream(served, "x" * SMALL_BYTES)
    assert task.event == served.get(first[0].event.id)
    assert rest == []
    assert len(handler.runs) == 1


def test_a_stream_that_comes_again_while_the_run_goes_on_joins_in_from_its_start(served, handler):
    first = send(served, "hold", operation=op.SEND_STREAMING_MESSAGE)
    handler.gate.wait()
    again = Background(lambda: stream(served, "hold"))
    handler.gate.open.set()
    assert shown(collect(first)) == shown(again.result())
    assert handler.runs == ["hold"]


def test_it_may_come_again_in_the_other_way(served, handler):
    events = stream(served, "abc")
    assert send(served, "abc").id == events[0].event.id
    assert stream(served, "abc")[0].event.id == events[0].event.id
    assert send(served, "later", "l").id == stream(served, "later", "l")[0].event.id
    assert handler.runs == ["abc", "later"]


def test_of_many_at_once_one_runs(served, handler):
    callers = [Background(lambda: send(served)) for _ in range(4)]
    callers += [Background(lambda: stream(served)[0].event) for _ in range(4)]
    assert len({caller.result().id for caller in callers}) == 1
    assert handler.runs == ["go"]


def test_another_key_is_another_send_and_no_key_is_none(served, handler):
    ids = {send(served).id, send(served, key="l").id, served.send("go").id, served.send("go").id}
    assert len(ids) == 4
    assert handler.runs == ["go"] * 4


def test_a_key_belongs_to_its_caller(served, handler):
    mine, yours = send(served, user="ada"), send(served, user="bob")
    assert mine.id != yours.id
    assert send(served, "other text", user="carl").text == "other text"
    assert send(served, user="ada").id == mine.id


# -- tasks that go on ---------------------------------------------------------------------------------------------------


def test_a_message_to_a_task_is_run_once_too(served, handler):
    task = send(served, "ask", "one")
    assert task.state is S.INPUT_REQUIRED
    first = send(served, "more", "two", task_id=task.id)
    # The task has ended, and takes no new message.
    assert send(served, "more", "two", task_id=task.id) == first
    assert send(served, "ask", "one").id == task.id
    with pytest.raises(UnsupportedOperationError):
        send(served, "more", "three", task_id=task.id)
    assert handler.runs == ["ask", "more"]


def test_its_stream_begins_where_its_own_run_began_and_ends_with_it(served, handler):
    asked = stream(served, "ask", "one")
    task_id = asked[0].event.id
    went_on = stream(served, "ask", "two", task_id=task_id)
    ended = stream(served, "end", "three", task_id=task_id)
    assert shown(stream(served, "ask", "one")) == shown(asked)
    assert shown(stream(served, "ask", "two", task_id=task_id)) == shown(went_on)
    assert shown(stream(served, "end", "three", task_id=task_id)) == shown(ended)
    assert [items[-1].event.status.state for items in (asked, went_on, ended)] == [
        S.INPUT_REQUIRED,
        S.INPUT_REQUIRED,
        S.COMPLETED,
    ]
    assert handler.runs == ["ask", "ask", "end"]


def test_one_that_comes_again_to_a_busy_task_does_not_take_itself_for_another(served, handler):
    task = send(served, "ask", "one")
    first = Background(lambda: send(served, "hold", "two", task_id=task.id))
    handler.gate.wait()
    assert send(served, "hold", "two", task_id=task.id, return_immediately=True).state is S.WORKING
    handler.gate.open.set()
    assert first.result().state is S.COMPLETED
    assert handler.runs == ["ask", "hold"]


# -- other content ------------------------------------------------------------------------------------------------------


def variants(request):
    message, configuration = request.message, request.configuration
    return {
        "text": replace(request, message=replace(message, parts=(replace(message.parts[0], text="other"),))),
        "media type": replace(
            request, message=replace(message, parts=(replace(message.parts[0], media_type="text/plain"),))
        ),
        "more parts": replace(request, message=replace(message, parts=message.parts * 2)),
        "metadata": replace(request, metadata={"a": 1}),
        "message metadata": replace(request, message=replace(message, metadata={"a": 1})),
        "context": replace(request, message=replace(message, context_id="c")),
        "output modes": replace(request, configuration=replace(configuration, accepted_output_modes=("a/b",))),
    }


@pytest.mark.parametrize(
    "what", ["text", "media type", "more parts", "metadata", "message metadata", "context", "output modes"]
)
@pytest.mark.parametrize("operation", [op.SEND_MESSAGE, op.SEND_STREAMING_MESSAGE])
def test_other_content_under_the_same_key_is_refused(served, handler, what, operation):
    request = served.request("go")
    first = send(served, request=request)
    with pytest.raises(InvalidParamsError, match=r"^Idempotency-Key: was used before") as caught:
        send(served, request=variants(request)[what], operation=operation)
    assert caught.value.violations[0].field == "Idempotency-Key"
    assert handler.runs == ["go"]
    assert send(served, request=request) == first


def test_another_task_is_other_content(served):
    one, two = send(served, "ask", "one"), send(served, "ask", "two")
    send(served, "end", "k", task_id=one.id)
    with pytest.raises(InvalidParamsError, match="Idempotency-Key"):
        send(served, "end", "k", task_id=two.id)


def test_what_concerns_the_answer_only_is_no_content(served, handler):
    send(served)
    assert send(served, history_length=0).history == ()
    assert len(send(served, history_length=1).history) == 1
    assert send(served, return_immediately=True).state is S.COMPLETED
    assert handler.runs == ["go"]


def test_the_order_of_members_is_no_content(served, handler):
    request = served.request("go")
    send(served, request=replace(request, metadata={"a": 1, "b": {"c": 2, "d": 3}}))
    send(served, request=replace(request, metadata={"b": {"d": 3, "c": 2}, "a": 1}))
    assert handler.runs == ["go"]


@pytest.mark.parametrize("key", ["", "x" * 256, "schlüssel", "two\nlines", "tab\t", "\x7f"])
def test_a_key_is_printable_and_not_too_long(served, handler, key):
    for operation in (op.SEND_MESSAGE, op.SEND_STREAMING_MESSAGE):
        with pytest.raises(InvalidParamsError, match="255 printable ASCII"):
            send(served, key=key, operation=operation)
    assert handler.runs == []
    assert send(served, key="x" * 255).id == send(served, key="x" * 255).id
    assert send(served, key="with space ~!").id == send(served, key="with space ~!").id


# -- bad times ----------------------------------------------------------------------------------------------------------


def test_one_that_comes_again_needs_no_free_thread(serve, handler):
    served = serve(handler, max_concurrent_runs=1, max_queued_runs=0)
    first = Background(lambda: send(served, "hold"))
    handler.gate.wait()
    with pytest.raises(OverloadedError):
        send(served, "other", "l")
    assert send(served, "hold", return_immediately=True).state is S.WORKING
    again = Background(lambda: stream(served, "hold"))
    handler.gate.open.set()
    assert first.result().id == again.result()[0].event.id
    assert served.list().total_size == 1


def test_what_was_refused_is_not_remembered(serve, handler):
    served = serve(handler, max_concurrent_runs=1, max_queued_runs=0)
    first = Background(lambda: send(served, "hold"))
    handler.gate.wait()
    with pytest.raises(OverloadedError):
        send(served, "other", "l")
    handler.gate.open.set()
    first.result()
    served.quiet()
    assert send(served, "other", "l").text == "other"


def test_a_key_is_kept_as_long_as_its_task(served, handler):
    from a2a_sync.stores.base import Owner

    first = send(served)
    served.store.delete(Owner(), first.id)
    assert send(served).id != first.id
    with pytest.raises(TaskNotFoundError):
        served.get(first.id)


def test_a_failed_run_is_not_run_again(serve):
    def fails(message, context):
        runs.append(1)
        raise ValueError("no")

    runs: list[int] = []
    served = serve(fails)
    assert (send(served).state, send(served).state) == (S.FAILED, S.FAILED)
    assert len(runs) == 1


def test_it_is_known_again_after_a_restart(tmp_path, handler):
    url = f"sqlite:///{tmp_path}/t.db"
    first = Served(handler, store=url)
    events = stream(first, "abc")
    asked = send(first, "ask", "a")
    first.close()
    second = Served(handler, store=url)
    try:
        assert shown(stream(second, "abc")) == shown(events)
        assert send(second, "abc").id == events[0].event.id
        assert send(second, "ask", "a").id == asked.id
        with pytest.raises(InvalidParamsError):
            send(second, "other")
    finally:
        second.close()
    assert handler.runs == ["abc", "ask"]


# -- announcement in the card --------------------------------------------------------------------------------------------------------


def test_the_card_says_so(served):
    assert [one.uri for one in served.app.agent_card().capabilities.extensions] == [IDEMPOTENT_SEND]


class Quick(Agent):
    direct = True

    def __init__(self):
        super().__init__("quick")
        self.runs = 0

    def handle_message(self, message, context):
        self.runs += 1
        return context.agent_message("at once")


def test_an_agent_that_answers_without_a_task_does_not_but_keeps_the_promise(serve):
    agent = Quick()
    served = serve(agent, direct_reply_timeout=TIMEOUT)
    assert served.app.agent_card().capabilities.extensions == ()
    assert isinstance(served.send("hi"), Message)
    first = send(served)
    assert isinstance(first, Task)
    assert send(served) == first
    assert agent.runs == 2


def test_in_one_process_a_key_is_the_callers_own(handler):
    agent = Agent("counting")
    agent.message(handler)
    with Client(agent) as client:
        first = client.send("go", idempotency_key="order 17")
        assert client.send("go", idempotency_key="order 17") == first
        assert next(client.stream("go", idempotency_key="order 17")).id == first.id
        with pytest.raises(InvalidParamsError):
            client.send("stop", idempotency_key="order 17")
        with pytest.raises(ValueError, match="printable"):
            client.send("go", idempotency_key="")
        client.send("go")
        client.send("go")
    agent.close()
    assert handler.runs == ["go"] * 3


def test_no_listener_remains_after_it(served):
    send(served)
    stream(served)
    with pytest.raises(InvalidParamsError):
        stream(served, "other")
    eventually(lambda: not served.app._engine.hub.has_listeners, "silence")
