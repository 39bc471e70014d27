"""Both styles of agents, every shape of handler, and what the client sees of each."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import ClassVar

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    AgentHost,
    AgentSkill,
    AuthRequired,
    Client,
    InputRequired,
    PublicError,
)
from a2a_sync import operations as op
from a2a_sync.agent.executor import TaskCancelled
from a2a_sync.card import create_agent_card
from a2a_sync.errors import AgentError, TaskNotCancelableError
from a2a_sync.testing import client_of
from a2a_sync.types import Message, Role, Task, TaskState, TaskStatus, TaskStatusUpdateEvent, TextPart
from tests.engine import TIMEOUT, Gate, collect, serving, texts

S = TaskState


@pytest.fixture
def serve():
    yield from serving()


class Greeter(Agent):
    """Greets users.

    This paragraph is for readers of the code only.
    """

    name = "greeter"
    skills: ClassVar = [AgentSkill(id="greet", name="Greet", description="Says hello", tags=["hello"])]

    def handle_message(self, message, context):
        return f"Hello, {message.text}!"


# -- the two styles -----------------------------------------------------------------------------------------------------


def test_a_subclass_answers(serve):
    assert serve(Greeter()).send("Ada").text == "Hello, Ada!"


def test_a_decorated_function_answers_and_stays_callable(serve):
    agent = Agent("greeter", description="Greets users", version="2.0")

    @agent.message
    def greet(message, context):
        return f"Hello, {message.text}!"

    assert serve(agent).send("Ada").text == "Hello, Ada!"
    assert callable(greet)
    card = agent.describe()
    assert (card.name, card.description, card.version) == ("greeter", "Greets users", "2.0")


def test_a_subclass_may_have_an_init_of_its_own_and_forget_ours(serve):
    class Counting(Agent):
        name = "counting"

        def __init__(self, start):
            self.count = start

        def handle_message(self, message, context):
            self.count += 1
            return str(self.count)

    served = serve(Counting(41))
    assert [served.send().text, served.send().text] == ["42", "43"]
    assert served.app.agent_card().name == "counting"


def test_the_card_is_made_of_what_the_class_says():
    card = Greeter().describe()
    assert (card.name, card.description) == ("greeter", "Greets users.")
    assert [skill.id for skill in card.skills] == ["greet"]
    assert Agent().describe().name == "Agent"


@pytest.mark.parametrize("attribute", ["nmae", "handle_message", "_private_app", "execute"])
def test_an_attribute_that_no_agent_has_is_refused(attribute):
    with pytest.raises(TypeError, match=f"Agent has no attribute '{attribute}'"):
        Agent("x", **{attribute: 1})


def test_an_agent_without_a_handler_fails_its_tasks_and_says_why_in_the_log(serve, caplog):
    task = serve(Agent("mute", description="d")).send()
    assert task.state is S.FAILED
    assert "agent 'mute' has no handler" in caplog.text


class Mute(Agent):
    """Its handler is missing."""


def test_a_subclass_without_a_handler_is_refused_when_its_app_is_built():
    for build in (A2AApp, lambda agent: AgentHost({"mute": agent})):
        with pytest.raises(TypeError, match=r"'Mute' has no handler: define handle_message.* in class Mute"):
            build(Mute())


def test_an_instance_without_a_handler_is_refused_before_it_serves():
    """A decorator may follow the app, so an instance of Agent is refused only where nothing can follow any more."""
    app = A2AApp(Agent("mute"))
    for use in (app.start, Agent("mute").endpoint, lambda: Client(Agent("mute")).send("hi")):
        with pytest.raises(TypeError, match=r"'mute' has no handler: .*@agent.message"):
            use()
    with pytest.raises(TypeError, match="'mute' has no handler"), client_of(Agent("mute")):
        pass
    app.close()


@pytest.mark.parametrize("handler", ["decorator", "attribute", "execute"])
def test_every_way_to_give_a_handler_counts(handler):
    class Own(Agent):
        def execute(self, context):
            return None

    agent = Own() if handler == "execute" else Agent("late")
    with A2AApp(agent) as app:
        if handler == "decorator":
            agent.message(lambda message, context: "ok")
        elif handler == "attribute":
            agent.handle_message = lambda message, context: "ok"
        app.start()
        assert Client(app).send("hi").state is S.COMPLETED


class Executor:
    def execute(self, context):
        return None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Mute, r"Mute is a class: give an instance, Mute\("),
        (Executor, r"Executor is a class: give an instance, Executor\("),
        (A2AApp, "A2AApp is a class"),
        (lambda message, context: "x", r"a function has no execute\(context\).*@agent.message"),
        (object(), r"object has no execute\(context\)"),
        (None, r"NoneType has no execute\(context\)"),
    ],
)
def test_what_is_no_agent_is_refused_when_the_app_is_built(given, problem):
    card = create_agent_card("a", "b", skills={"x": "X"})
    for build in (lambda: A2AApp(given), lambda: A2AApp(given, card=card), lambda: AgentHost({"a": given})):
        with pytest.raises(TypeError, match=problem):
            build()


def test_an_agent_is_its_own_target_and_its_private_app_is_made_once():
    agent = Greeter()
    first = agent.endpoint()
    assert Client(agent).send("Ada").text == "Hello, Ada!"
    assert agent.endpoint().__self__ is first.__self__
    agent.close()
    agent.close()
    assert Client(agent).send("Eve").text == "Hello, Eve!"
    agent.close()


# -- exceptions ---------------------------------------------------------------------------------------------------------


def test_an_exceptions_text_never_leaves_and_its_id_leads_to_the_log(serve, caplog):
    def handler(message, context):
        raise ValueError("secret")

    served = serve(handler)
    items = collect(served.stream("go"))
    task = served.get(items[0].event.id)
    text = task.status.message.text
    assert (task.state, text[:19]) == (S.FAILED, "internal error (id ")
    assert "secret" not in "".join(one.to_json() for one in (*(item.event for item in items), task))
    assert f"run failed (id {text[19:-1]})" in caplog.text
    assert "ValueError: secret" in caplog.text


@pytest.mark.parametrize("error", [PublicError("out of stock"), AgentError("out of stock")])
def test_a_public_errors_text_is_shown(serve, error):
    def handler(message, context):
        raise error

    task = serve(handler).send("go")
    assert (task.state, task.status.message.text) == (S.FAILED, "out of stock")
    assert texts(task.history) == ["user: go"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, TaskCancelled])
def test_what_is_no_exception_fails_the_task_like_one(serve, error, caplog):
    def handler(message, context):
        raise error

    served = serve(handler)
    task = served.send()
    assert (task.state, task.status.message.text[:14]) == (S.FAILED, "internal error")
    assert error.__name__ in caplog.text
    served.quiet()


def test_a_generator_that_breaks_keeps_what_it_sent(serve):
    def handler(message, context):
        yield "a"
        raise ValueError("secret")

    task = serve(handler).send("go")
    assert (task.state, task.artifacts[0].text, texts(task.history)) == (S.FAILED, "a", ["user: go"])


# -- conversations ------------------------------------------------------------------------------------------------------


def pizza(message, context):
    said = [turn.text for turn in context.history if turn.role is Role.USER]
    if len(said) == 1:
        return InputRequired("Which size?")
    if len(said) == 2:
        return InputRequired("Which topping?")
    return " ".join(said)


def test_a_conversation_goes_on_in_its_task_and_sees_its_history(serve):
    served = serve(pizza)
    task = served.send("pizza")
    assert (task.state, task.text) == (S.INPUT_REQUIRED, "Which size?")
    task = served.send("large", task_id=task.id)
    assert (task.state, task.text) == (S.INPUT_REQUIRED, "Which topping?")
    task = served.send("basil", task_id=task.id, context_id=task.context_id)
    assert (task.state, task.text) == (S.COMPLETED, "pizza large basil")
    assert texts(task.history) == [
        "user: pizza",
        "agent: Which size?",
        "user: large",
        "agent: Which topping?",
        "user: basil",
        "agent: pizza large basil",
    ]
    assert served.states(task.id) == [
        S.SUBMITTED,
        S.WORKING,
        S.INPUT_REQUIRED,
        S.WORKING,
        S.INPUT_REQUIRED,
        S.WORKING,
        S.COMPLETED,
    ]


def test_a_streamed_turn_begins_with_the_whole_task_and_ends_at_the_question(serve):
    served = serve(pizza)
    task_id = served.send("pizza").id
    first, *rest = collect(served.stream("large", task_id=task_id))
    assert (first.event.state, texts(first.event.history)) == (
        S.WORKING,
        ["user: pizza", "agent: Which size?", "user: large"],
    )
    assert [item.event.status.state for item in rest] == [S.INPUT_REQUIRED]


def test_a_returned_log_in_ends_its_run_and_the_next_message_goes_on(serve):
    def handler(message, context):
        return AuthRequired("log in") if message.text == "go" else "in"

    served = serve(handler)
    task = served.send("go")
    assert task.state is S.AUTH_REQUIRED
    served.quiet()
    assert served.send("done", task_id=task.id).text == "in"


def test_an_emitted_log_in_pauses_the_sender_while_the_run_goes_on(serve):
    gate = Gate()

    def handler(message, context):
        waiting = TaskStatus(state=S.AUTH_REQUIRED, message=context.agent_message("log in elsewhere"))
        context.emit(TaskStatusUpdateEvent(status=waiting))
        gate.block()
        return "in"

    served = serve(handler)
    stream = served.stream("go")
    task_id = stream.poll(0)[0].event.id
    sender = served.in_background("go")
    assert sender.result().state is S.AUTH_REQUIRED
    gate.open.set()
    states = [item.event.status.state for item in collect(stream) if hasattr(item.event, "status")]
    assert states == [S.AUTH_REQUIRED, S.COMPLETED]
    assert served.get(task_id).text == "in"


def test_an_emitted_log_in_that_is_left_so_by_an_executor_stays(serve):
    class Waiting:
        def execute(self, context):
            yield TaskStatusUpdateEvent(
                status=TaskStatus(state=S.AUTH_REQUIRED, message=context.agent_message("log in"))
            )

    served = serve(Waiting())
    items = collect(served.stream("go"))
    assert items[-1].event.status.state is S.AUTH_REQUIRED
    served.quiet()
    assert served.get(items[0].event.id).state is S.AUTH_REQUIRED


def test_a_question_ends_the_run_of_a_generator_that_goes_on(serve, caplog):
    closed = threading.Event()

    def handler(message, context):
        try:
            yield "a"
            yield TaskStatusUpdateEvent(
                status=TaskStatus(state=S.INPUT_REQUIRED, message=context.agent_message("size?"))
            )
            yield "late"
        finally:
            closed.set()

    served = serve(handler)
    task = served.send("go")
    assert closed.wait(TIMEOUT)
    served.quiet()
    assert served.get(task.id) == task
    assert (task.state, task.artifacts[0].text, task.text) == (S.INPUT_REQUIRED, "a", "size?")
    assert "refused TaskArtifactUpdateEvent: the run has ended" in caplog.text


# -- async handlers -----------------------------------------------------------------------------------------------------


def test_async_handlers_run_on_the_thread_of_their_event_loop(serve):
    async def handler(message, context):
        await asyncio.sleep(0)
        return f"{message.text} on {threading.current_thread().name}"

    assert serve(handler).send("hi").text == "hi on a2a-loop"


def test_an_async_handler_in_a_subclass(serve):
    class Slow(Agent):
        async def handle_message(self, message, context):
            first, second = await asyncio.gather(asyncio.sleep(0, "a"), asyncio.sleep(0, "b"))
            return InputRequired(first + second)

    task = serve(Slow()).send()
    assert (task.state, task.text) == (S.INPUT_REQUIRED, "ab")


def test_an_async_generator_streams(serve):
    async def handler(message, context):
        for text in "abc":
            await asyncio.sleep(0)
            yield text

    task = serve(handler).send("go")
    assert (task.text, texts(task.history)[1:]) == ("abc", ["agent: abc"])


def test_cancelling_wakes_an_async_handler_at_its_await(serve):
    gate, cancelled = Gate(), threading.Event()

    async def handler(message, context):
        gate.reached.set()
        try:
            await asyncio.sleep(TIMEOUT * 10)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    assert served.cancel(task_id).state is S.CANCELED
    assert cancelled.wait(TIMEOUT)
    served.quiet()
    assert served.states(task_id)[-1] is S.CANCELED


def test_cancelling_wakes_an_async_generator_and_lets_it_clean_up(serve):
    gate, cleaned = Gate(), threading.Event()

    async def handler(message, context):
        try:
            yield "a"
            gate.reached.set()
            await asyncio.sleep(TIMEOUT * 10)
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    assert cleaned.wait(TIMEOUT)
    served.quiet()


def test_an_async_generator_that_is_cancelled_between_its_items_is_closed(serve):
    gate, cleaned = Gate(), threading.Event()

    async def handler(message, context):
        try:
            while True:
                yield "a"
                gate.reached.set()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    assert cleaned.wait(TIMEOUT)
    served.quiet()


def test_a_long_async_stream_subscribes_to_a_cancel_once(serve):
    asked = []

    async def handler(message, context):
        run = context._run
        for _number in range(200):
            yield "x"
            asked.append(len(run._stopping._callbacks))

    serve(handler).send()
    assert asked == [1] * 200


def test_a_cancel_that_the_handler_started_itself_is_a_failure_not_a_cancel(serve):
    async def handler(message, context):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    assert serve(handler).send().state is S.FAILED


def test_an_exception_in_an_async_generator_fails_the_task(serve, caplog):
    async def handler(message, context):
        yield "a"
        raise ValueError("secret")

    task = serve(handler).send()
    assert (task.state, task.artifacts[0].text) == (S.FAILED, "a")
    assert "ValueError: secret" in caplog.text


def test_an_async_handler_may_call_another_async_agent_in_this_process(serve):
    inner = Agent("inner", description="d")

    @inner.message
    async def answer(message, context):
        await asyncio.sleep(0)
        return f"inner says {message.text}"

    async def handler(message, context):
        yield Client(inner).send("a").text
        yield ", "
        yield Client(inner).send("b").text

    assert serve(handler).send().text == "inner says a, inner says b"
    inner.close()


def test_context_variables_reach_async_handlers(serve):
    trace = contextvars.ContextVar("trace", default="none")

    async def handler(message, context):
        await asyncio.sleep(0)
        yield trace.get()
        yield " " + trace.get()

    served = serve(handler)
    trace.set("t1")
    assert served.send().text == "t1 t1"


# -- direct agents ------------------------------------------------------------------------------------------------------


def direct(handler):
    agent = Agent("direct", description="d", direct=True)
    agent.message(handler)
    return agent


def hello(message, context):
    return context.agent_message("hello")


def test_a_direct_agent_answers_with_a_message_and_no_task(serve):
    served = serve(direct(hello), direct_reply_timeout=TIMEOUT)
    answer = served.send("hi", context_id="c1")
    assert isinstance(answer, Message)
    assert (answer.role, answer.text, answer.task_id, answer.context_id) == (Role.AGENT, "hello", "", "c1")
    assert served.list().total_size == 0


def test_it_does_so_in_every_mode(serve):
    served = serve(direct(hello), direct_reply_timeout=TIMEOUT)
    assert isinstance(served.send(return_immediately=True), Message)
    (item,) = collect(served.stream())
    assert (item.event.text, item.number) == ("hello", None)
    assert served.list().total_size == 0


def test_a_direct_answer_names_the_context_that_was_made_for_it(serve):
    served = serve(
        direct(lambda message, context: Message(role=Role.USER, parts=(TextPart("x"),))), direct_reply_timeout=TIMEOUT
    )
    answer = served.send()
    assert answer.context_id
    assert answer.role is Role.AGENT


def test_a_direct_agent_that_takes_longer_gets_an_ordinary_task(serve):
    gate = Gate()

    def handler(message, context):
        gate.block()
        return context.agent_message("at last")

    served = serve(direct(handler))
    task = served.send(return_immediately=True)
    gate.wait()
    assert (type(task), served.get(task.id).state) == (Task, S.WORKING)
    gate.open.set()
    task = served.until(task.id, S.COMPLETED)
    assert task.status.message.text == "at last"
    assert texts(task.history) == ["user: go"]


def test_the_stream_of_a_slow_direct_agent_begins_with_its_task(serve):
    gate = Gate()

    def handler(message, context):
        gate.block()
        return context.agent_message("at last")

    served = serve(direct(handler))
    stream = served.stream()
    gate.open.set()
    items = collect(stream)
    assert isinstance(items[0].event, Task)
    assert items[-1].event.status.message.text == "at last"


@pytest.mark.parametrize("what", ["text", "update", "history"])
def test_a_direct_agent_gets_a_task_as_soon_as_it_needs_one(serve, what):
    def handler(message, context):
        if what == "update":
            context.update("working on it")
        elif what == "history":
            assert [turn.text for turn in context.history] == ["go"]
        return "text" if what == "text" else context.agent_message("done")

    task = serve(direct(handler), direct_reply_timeout=TIMEOUT).send("go")
    assert (type(task), task.state) == (Task, S.COMPLETED)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (AgentError("no such city"), "no such city"),
        (PublicError("no such city"), "no such city"),
        (TaskNotCancelableError("odd"), "odd"),
        (ValueError("secret"), "internal error (id "),
        (TaskCancelled(), "internal error (id "),
    ],
)
def test_an_error_before_there_is_a_task_is_the_answer(serve, error, shown):
    def handler(message, context):
        raise error

    served = serve(direct(handler), direct_reply_timeout=TIMEOUT)
    expected = type(error) if isinstance(error, AgentError) else AgentError
    with pytest.raises(expected) as raised:
        served.send()
    assert raised.value.message.startswith(shown)
    with pytest.raises(expected):
        served.stream()
    assert served.list().total_size == 0
    served.quiet()


def test_an_error_after_the_task_exists_is_its_state(serve):
    def handler(message, context):
        context.update("working on it")
        raise PublicError("no such city")

    task = serve(direct(handler), direct_reply_timeout=TIMEOUT).send()
    assert (task.state, task.text) == (S.FAILED, "no such city")


def test_what_follows_a_direct_answer_is_refused_and_makes_no_task(serve, caplog):
    def execute(context):
        yield context.agent_message("the answer")
        context.update("more")

    eager = type("Eager", (), {"direct": True, "execute": lambda self, context: execute(context)})()
    served = serve(eager, direct_reply_timeout=TIMEOUT)
    assert served.send().text == "the answer"
    served.quiet()
    assert served.list().total_size == 0
    assert "refused TaskStatusUpdateEvent" in caplog.text


def test_a_direct_answer_is_sent_while_its_author_still_tidies_up(serve):
    gate = Gate()

    class Tidy:
        direct = True

        def execute(self, context):
            yield context.agent_message("the answer")
            gate.block()

    served = serve(Tidy(), direct_reply_timeout=TIMEOUT)
    assert served.in_background().result(TIMEOUT / 2).text == "the answer"
    gate.open.set()
    served.quiet()


def test_a_continued_task_of_a_direct_agent_is_an_ordinary_one(serve):
    def handler(message, context):
        return InputRequired("?") if message.text == "go" else context.agent_message("thanks")

    served = serve(direct(handler), direct_reply_timeout=TIMEOUT)
    task = served.send("go")
    task = served.send("yes", task_id=task.id)
    assert (task.state, task.status.message.text) == (S.COMPLETED, "thanks")


def test_a_direct_agent_called_by_another_agent_answers_directly(serve):
    inner = direct(hello)

    def handler(message, context):
        answer = Client(inner).send("hi")
        return f"{type(answer).__name__}: {answer.text}"

    assert serve(handler).send().text == "Message: hello"
    inner.close()


def test_a_full_pool_keeps_a_direct_run_in_line_as_a_submitted_task(serve):
    gate = Gate()

    def handler(message, context):
        if message.text == "first":
            gate.block()
        return context.agent_message("done")

    served = serve(direct(handler), max_concurrent_runs=1, max_queued_runs=1)
    first = served.send("first", return_immediately=True)
    gate.wait()
    second = served.send("second", return_immediately=True)
    assert (served.get(first.id).state, second.state) == (S.WORKING, S.SUBMITTED)
    gate.open.set()
    assert served.until(second.id, S.COMPLETED)
    assert served.states(second.id) == [S.SUBMITTED, S.WORKING, S.COMPLETED]


# -- asked before a cancel ----------------------------------------------------------------------------------------------


def test_an_async_cancel_handler_is_asked_and_may_refuse(serve):
    gate = Gate()

    class Stubborn(Agent):
        def handle_message(self, message, context):
            gate.block()

        async def handle_cancel(self, context):
            await asyncio.sleep(0)
            raise TaskNotCancelableError("too late")

    served = serve(Stubborn(description="d"))
    task_id = served.begin()
    gate.wait()
    with pytest.raises(TaskNotCancelableError, match="too late"):
        served.cancel(task_id)
    gate.open.set()
    assert served.until(task_id, S.COMPLETED)


def test_a_decorated_cancel_handler_is_asked(serve):
    agent, gate, asked = Agent("a", description="d"), Gate(), []
    agent.message(lambda message, context: gate.block())
    assert agent.agent_spec().cancel_handler() is None

    @agent.on_cancel
    def ask(context):
        asked.append((context.task_id, context.message.text, context.metadata))

    served = serve(agent)
    task_id = served.begin("work")
    gate.wait()
    assert served.cancel(task_id, metadata={"why": "bored"}).state is S.CANCELED
    assert asked == [(task_id, "work", {"why": "bored"})]
    gate.open.set()


def test_an_app_closes_as_a_context_manager():
    with A2AApp(Greeter()) as app:
        assert app.endpoint()(op.Call(op.LIST_TASKS, op.t.ListTasksRequest())).total_size == 0
    with pytest.raises(AgentError, match="stopping"):
        Client(app).send("late")
