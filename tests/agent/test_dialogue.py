"""Questions in the middle of a handler: `ask`, `confirm` and `choose`, over runs, processes and restarts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    AuthRequired,
    Client,
    DataPart,
    InputRequired,
    Limits,
    Message,
    Role,
    Task,
    TextPart,
)
from a2a_sync import operations as op
from a2a_sync.agent.dialogue import MARK, NO, YES, Answer, Dialogue, chosen_option, yes_or_no
from a2a_sync.card import AgentCard
from a2a_sync.server.metrics import Metrics
from a2a_sync.types import SendMessageRequest, TaskState
from tests.engine import STORES, TIMEOUT, Gate, Served, collect, eventually, serving_over
from tests.engine.test_membership import lose, meet
from tests.live import gunicorn


@pytest.fixture(params=STORES)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    yield from serving_over(request.param, tmp_path)


def talk(served: Served, *texts: str, task_id: str = "") -> Any:
    """The task after these messages, one after the other."""
    for text in texts:
        task = served.send(text, task_id=task_id)
        task_id = task.id
    return task


def order(message: Message, context: Any) -> str:
    size = context.ask("Which size?")
    topping = context.ask("Which topping?")
    return f"{message.text}: {size} with {topping}"


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return "".join(str(record.exc_info[1]) for record in caplog.records if record.exc_info)


# -- straight-line code -------------------------------------------------------------------------------------------------


def test_each_answer_runs_the_handler_again_up_to_the_next_question(serve):
    calls = []

    def handler(message: Message, context: Any) -> str:
        calls.append((message.text, context.message.text))
        return order(message, context)

    served = serve(handler)
    task = talk(served, "pizza")
    assert (task.state, task.text) == (TaskState.INPUT_REQUIRED, "Which size?")
    task = talk(served, "large", task_id=task.id)
    assert (task.state, task.text) == (TaskState.INPUT_REQUIRED, "Which topping?")
    task = talk(served, "tuna", task_id=task.id)
    assert (task.state, task.text) == (TaskState.COMPLETED, "pizza: large with tuna")
    assert calls == [("pizza", "pizza")] * 3


def test_the_history_holds_each_question_and_answer_once(serve):
    task = talk(serve(order), "pizza", "large", "tuna")
    assert [(str(message.role), message.text) for message in task.history] == [
        ("user", "pizza"),
        ("agent", "Which size?"),
        ("user", "large"),
        ("agent", "Which topping?"),
        ("user", "tuna"),
        ("agent", "pizza: large with tuna"),
    ]


def test_no_thread_waits_for_an_answer(serve):
    served = serve(order)
    for _ in range(20):
        talk(served, "pizza")
    served.quiet()
    assert served.pool.running == 0


def test_an_answer_is_a_text_with_the_whole_message(serve):
    def handler(message: Message, context: Any) -> Any:
        answer = context.ask("What?")
        return [f"{answer.upper()} {isinstance(answer, str)}", DataPart(answer.message.parts[1].data)]

    served = serve(handler)
    task = talk(served, "go")
    parts = (TextPart("this"), DataPart({"n": 1}))
    message = Message(role=Role.USER, parts=parts, task_id=task.id)
    done = served.call(op.SEND_MESSAGE, SendMessageRequest(message=message))
    assert done.artifacts[0].parts[0].text == "THIS True"
    assert done.artifacts[0].parts[1].data == {"n": 1}


def test_an_answer_that_is_given_back_is_stored_as_plain_text(serve):
    task = talk(serve(lambda message, context: context.ask("What?")), "go", "this")
    assert [type(part.text) for part in (task.artifacts[0].parts[0], task.history[-1].parts[0])] == [str, str]


def test_a_question_may_have_parts_and_metadata(serve):
    def handler(message: Message, context: Any) -> str:
        parts = (TextPart("Which?"), DataPart({"form": ["a", "b"]}))
        return context.ask(Message(role=Role.AGENT, parts=parts, metadata={"k": 1}))

    served = serve(handler)
    task = talk(served, "go")
    question = task.status.message
    assert question.parts[1].data == {"form": ["a", "b"]}
    assert question.metadata["k"] == 1
    assert talk(served, "a", task_id=task.id).text == "a"


def test_a_question_says_what_it_is_to_programs(serve):
    def handler(message: Message, context: Any) -> str:
        return context.ask("What?") + context.choose("Which?", ["a", "b"])

    served = serve(handler)
    task = talk(served, "go")
    assert task.status.message.metadata == {MARK: {"number": 1}}
    task = talk(served, "x", task_id=task.id)
    assert task.status.message.metadata == {MARK: {"number": 2, "options": ["a", "b"]}}


def test_loops_and_branches_may_hold_questions(serve):
    def handler(message: Message, context: Any) -> str:
        items = []
        while (item := context.ask(f"Item {len(items) + 1}?")) != "done":
            items.append(str(item))
        return ",".join(items) if items else context.ask("Nothing?")

    served = serve(handler)
    assert talk(served, "go", "a", "b", "c", "done").text == "a,b,c"
    assert talk(served, "go", "done", "no").text == "no"


def test_the_same_question_may_be_asked_again(serve):
    def handler(message: Message, context: Any) -> str:
        while not (answer := context.ask("A number?")).isdigit():
            pass
        return answer

    assert talk(serve(handler), "go", "x", "y", "7").text == "7"


def test_two_tasks_have_dialogues_of_their_own(serve):
    served = serve(order)
    one, two = talk(served, "one"), talk(served, "two")
    talk(served, "large", task_id=one.id)
    talk(served, "small", task_id=two.id)
    assert talk(served, "tuna", task_id=two.id).text == "two: small with tuna"
    assert talk(served, "salami", task_id=one.id).text == "one: large with salami"


def test_what_comes_after_the_last_question_may_emit(serve):
    def handler(message: Message, context: Any) -> str:
        size = context.ask("Which size?")
        context.update("baking")
        with context.artifact("smell") as smell:
            smell.write("mmh")
        return f"a {size} one"

    task = talk(serve(handler), "pizza", "large")
    assert task.state is TaskState.COMPLETED
    assert [artifact.text for artifact in task.artifacts] == ["mmh", "a large one"]


def test_a_stream_of_a_question_ends_with_it(serve):
    served = serve(order)
    events = collect(served.stream("pizza"))
    assert events[-1].event.status.message.text == "Which size?"
    task_id = events[0].event.id
    events = collect(served.stream("large", task_id=task_id))
    assert events[-1].event.status.message.text == "Which topping?"


def test_a_handler_may_stop_before_it_comes_to_an_answered_question(serve):
    sold_out = []

    def handler(message: Message, context: Any) -> str:
        return "sold out" if sold_out else order(message, context)

    served = serve(handler)
    task = talk(served, "pizza")
    sold_out.append(True)
    assert talk(served, "large", task_id=task.id).text == "sold out"


def test_cancelling_ends_a_dialogue(serve):
    served = serve(order)
    task = talk(served, "pizza")
    assert served.cancel(task.id).state is TaskState.CANCELED


def test_except_and_finally_see_a_question_pass_but_no_handler_catches_it_as_an_error(serve):
    seen = []

    def handler(message: Message, context: Any) -> str:
        try:
            return order(message, context)
        except Exception:
            return "caught"
        finally:
            seen.append("left")

    assert talk(serve(handler), "pizza", "large", "tuna").text == "pizza: large with tuna"
    # A question ends its run before the handler has left its `finally`.
    eventually(lambda: seen == ["left"] * 3)


def test_a_handler_that_swallows_a_question_cannot_answer_behind_it(serve, caplog):
    def handler(message: Message, context: Any) -> str:
        try:
            context.ask("Which?")
        except BaseException:
            pass
        return "too late"

    served = serve(handler)
    task = talk(served, "go")
    served.quiet()
    assert served.get(task.id).state is TaskState.INPUT_REQUIRED
    assert served.get(task.id).artifacts == ()
    assert "refused" in caplog.text


# -- with what else a handler does --------------------------------------------------------------------------------------


def test_what_a_handler_returns_ends_the_dialogue(serve):
    calls = []

    def handler(message: Message, context: Any) -> Any:
        calls.append(message.text)
        if message.text == "late":
            return f"late, {context.ask('Sure?')}"
        context.ask("One?")
        return AuthRequired("Log in") if message.text == "login" else InputRequired("More?")

    served = serve(handler)
    for first in ("more", "login"):
        calls.clear()
        task = talk(served, first, "1", "late")
        assert task.text == "Sure?"
        assert talk(served, "yes", task_id=task.id).text == "late, yes"
        assert calls == [first, first, "late", "late"]


def test_a_question_of_the_usual_kind_comes_before_a_dialogue(serve):
    def handler(message: Message, context: Any) -> Any:
        if message.text == "go":
            return InputRequired("What?")
        return f"{message.text}: {context.ask('Which?')}"

    assert talk(serve(handler), "go", "pizza", "large").text == "pizza: large"


def test_a_dialogue_sees_its_own_turns_in_history_and_conversation(serve):
    seen = []

    def handler(message: Message, context: Any) -> str:
        context.ask("Which?")
        seen.append([turn.text for turn in context.history])
        seen.append([turn.text for turn in context.conversation()])
        return "done"

    talk(serve(handler), "go", "this")
    assert seen == [["go", "Which?", "this"]] * 2


def test_the_state_of_the_context_is_at_hand(serve):
    def handler(message: Message, context: Any) -> str:
        size = context.state.get("size") or context.ask("Which size?")
        context.state["size"] = str(size)
        return str(size)

    served = serve(handler)
    task = talk(served, "go", "large")
    assert served.send("again", context_id=task.context_id).text == "large"


def test_a_direct_agent_that_asks_gets_a_task(serve):
    agent = Agent("direct", direct=True)
    agent.message(order)
    task = talk(serve(agent, direct_reply_timeout=TIMEOUT), "pizza", "large", "tuna")
    assert task.text == "pizza: large with tuna"


def test_a_client_message_id_that_comes_twice_confuses_nothing(serve):
    served = serve(order)
    task = talk(served, "pizza")
    for text in ("large", "tuna"):
        message = Message(role=Role.USER, parts=(TextPart(text),), task_id=task.id, message_id="same")
        task = served.call(op.SEND_MESSAGE, SendMessageRequest(message=message))
    assert task.text == "pizza: large with tuna"


def test_a_run_that_asks_counts_as_one_that_returned(serve):
    class Asking:
        def execute(self, context: Any) -> None:
            context.ask("Which?")

    pytest.importorskip("prometheus_client")
    metrics = Metrics()
    card = AgentCard(name="asking", description="d", version="1")
    for target, options in ((Asking(), {"card": card}), (Agent("a"), {})):
        if isinstance(target, Agent):
            target.message(order)
        with A2AApp(target, metrics=metrics, **options) as app, Client(app) as client:
            answer = client.send("go")
            assert isinstance(answer, Task)
            assert answer.state is TaskState.INPUT_REQUIRED
    assert metrics.registry.get_sample_value("a2a_runs_total", {"outcome": "returned"}) == 2


# -- generators, executors, async ---------------------------------------------------------------------------------------


def test_a_generator_asks_before_it_yields(serve):
    def handler(message: Message, context: Any) -> Iterator[str]:
        size = context.ask("Which size?")
        yield "a "
        yield f"{size} one"

    task = talk(serve(handler), "pizza", "large")
    assert task.artifacts[0].text == "a large one"


def test_an_executor_asks_too(serve):
    class Ordering:
        def execute(self, context: Any) -> Iterator[Any]:
            text = order(context.message, context)
            yield context.agent_message(text)

    task = talk(serve(Ordering()), "pizza", "large", "tuna")
    assert task.status.message.text == "pizza: large with tuna"


async def ordering(message: Message, context: Any) -> str:
    await asyncio.sleep(0)
    size = context.ask("Which size?")
    await asyncio.sleep(0)
    return f"{size} with {context.ask('Which topping?')}"


async def ordering_in_pieces(message: Message, context: Any) -> Any:
    size = context.ask("Which size?")
    topping = context.ask("Which topping?")
    yield f"{size} with "
    yield topping


@pytest.mark.parametrize("handler", [ordering, ordering_in_pieces])
def test_async_handlers_ask_as_others_do(serve, handler):
    assert talk(serve(handler), "pizza", "large", "tuna").text == "large with tuna"


# -- where it cannot work -----------------------------------------------------------------------------------------------


def yielding(message: Message, context: Any) -> Iterator[str]:
    yield "piece"
    context.ask("Which?")


async def async_yielding(message: Message, context: Any) -> Any:
    yield "piece"
    context.ask("Which?")


def updating(message: Message, context: Any) -> None:
    context.update("working")
    context.ask("Which?")


def writing(message: Message, context: Any) -> None:
    with context.artifact() as artifact:
        artifact.write("piece")
        context.ask("Which?")


def between(message: Message, context: Any) -> None:
    context.ask("Which?")
    context.update("working")
    context.ask("And now?")


@pytest.mark.parametrize("handler", [yielding, async_yielding, updating, writing])
def test_asking_after_something_was_emitted_is_an_error(serve, handler, caplog):
    assert talk(serve(handler), "go").state is TaskState.FAILED
    assert "call ask() before yield, update() and artifact()" in logged(caplog)


def test_asking_again_after_something_was_emitted_is_an_error(serve, caplog):
    task = talk(serve(between), "go", "this")
    assert task.state is TaskState.FAILED
    assert "call ask() before yield, update() and artifact()" in logged(caplog)


def test_only_the_handlers_own_thread_asks(serve):
    errors = []

    def handler(message: Message, context: Any) -> str:
        def ask() -> None:
            try:
                context.ask("Which?")
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        return "done"

    assert talk(serve(handler), "go").text == "done"
    assert errors == ["only the handler itself can ask, not a thread or task that it has started, nor a cancel handler"]


@pytest.mark.parametrize("way", ["task", "thread"])
def test_what_an_async_handler_has_started_cannot_ask(serve, way, caplog):
    async def ask(context: Any) -> None:
        context.ask("Which?")

    async def handler(message: Message, context: Any) -> None:
        if way == "task":
            await asyncio.create_task(ask(context))
        else:
            await asyncio.to_thread(context.ask, "Which?")

    assert talk(serve(handler), "go").state is TaskState.FAILED
    assert "only the handler itself can ask" in logged(caplog)


def test_a_cancel_handler_cannot_ask(serve, caplog):
    agent, gate = Agent("cancelled"), Gate()
    agent.message(lambda message, context: gate.block())
    agent.on_cancel(lambda context: context.ask("Sure?"))
    served = serve(agent, cancel_handler_timeout=TIMEOUT)
    task_id = served.begin()
    gate.wait()
    assert served.cancel(task_id).state is TaskState.CANCELED
    gate.open.set()
    served.quiet()
    assert "only the handler itself can ask" in logged(caplog)


def test_a_handler_that_asks_something_else_than_before_is_noticed(serve, caplog):
    questions = ["Which size?", "Which topping?"]

    def handler(message: Message, context: Any) -> str:
        return " ".join(context.ask(question) for question in questions)

    served = serve(handler)
    task = talk(served, "pizza", "large")
    questions[0] = "How big?"
    task = talk(served, "tuna", task_id=task.id)
    assert (task.state, task.text) == (
        TaskState.FAILED,
        "This dialogue cannot continue: question 1 was 'Which size?' and is now 'How big?'. Please begin again.",
    )
    assert "question 1 was 'Which size?'" in caplog.text


def test_a_question_put_before_others_is_noticed(serve):
    questions = ["b"]

    def handler(message: Message, context: Any) -> str:
        return " ".join(context.ask(question) for question in questions)

    served = serve(handler)
    task = talk(served, "go")
    questions.insert(0, "a")
    assert talk(served, "x", task_id=task.id).state is TaskState.FAILED


# -- confirm and choose -------------------------------------------------------------------------------------------------


def test_confirm_asks_until_it_hears_yes_or_no(serve):
    def handler(message: Message, context: Any) -> str:
        return repr(context.confirm("Bake it?"))

    served = serve(handler)
    task = talk(served, "go")
    assert task.text == "Bake it?"
    task = talk(served, "maybe", task_id=task.id)
    assert task.text == "Please answer yes or no. Bake it?"
    assert talk(served, "Yes, please!", task_id=task.id).text == "True"
    assert talk(served, "go", "no").text == "False"


def test_confirm_understands_the_words_it_is_given(serve):
    def handler(message: Message, context: Any) -> str:
        return repr(context.confirm("Backen?", yes=("ja", "jawohl"), no=("nein",)))

    served = serve(handler)
    assert talk(served, "go", "yes").text == "Please answer ja or nein. Backen?"
    assert talk(served, "go", "Jawohl").text == "True"
    assert talk(served, "go", "nein, danke").text == "False"


def test_choose_asks_until_it_hears_an_option(serve):
    def handler(message: Message, context: Any) -> str:
        return context.choose("Which size?", ["small", "Large"])

    served = serve(handler)
    task = talk(served, "go")
    assert task.text == "Which size? (small, Large)"
    task = talk(served, "huge", task_id=task.id)
    assert task.text == "Please choose one of these. Which size? (small, Large)"
    assert talk(served, "large, please", task_id=task.id).text == "Large"


@pytest.mark.parametrize("options", [[], ["a", "A"], ["a", " "]])
def test_options_that_cannot_be_distinguished_are_refused(serve, options, caplog):
    task = talk(serve(lambda message, context: context.choose("Which?", options)), "go")
    assert task.state is TaskState.FAILED
    assert "option" in logged(caplog)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("yes", True),
        ("OK!", True),
        ("sure, go ahead", True),
        ("No.", False),
        ("nope", False),
        ("yes and no", None),
        ("yesterday", None),
        ("", None),
        ("not ok", None),
        ("I'm not sure", None),
        ("Don\u2019t! That is okay for others", None),
        ("it isnt ok", None),
        ("OK, stop", None),
        ("yes, but only the first one", None),
        ("sure, if it is free", None),
        ("is that true?", None),
        ("ok?", None),
        ("Show me the true path first", None),
        ("ok what would that delete", None),
        ("I refuse, ok", None),
        ("yes, deny it", None),
        ("ok nein", None),
        ("ok, none of them", None),
        ("yes to the first one", None),
        ("it's true", None),
        ("Yes, please do that. Thank you!", True),
        ("I agree, of course, ok", True),
        ("no, do not", False),
        ("No, but thanks", False),
    ],
)
def test_yes_and_no_are_heard_by_their_words(text: str, meaning: bool | None) -> None:
    assert yes_or_no(text, YES, NO) is meaning


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("large", "large"),
        ("  LARGE! ", "large"),
        ("extra large, please", "extra large"),
        ("a small one", "small"),
        ("small or large", None),
        ("enlarge", None),
        ("", None),
        ("c++", "C++"),
        ("in C++ please", "C++"),
    ],
)
def test_an_option_is_heard_in_what_is_said(text: str, option: str | None) -> None:
    assert chosen_option(text, ["small", "large", "extra large", "C++"]) == option


# -- the history as the record ------------------------------------------------------------------------------------------


def said(role: Role, text: str, number: int = 0) -> Message:
    return Message(role=role, parts=(TextPart(text),), metadata={MARK: {"number": number}} if number else {})


def test_only_marked_questions_of_the_agent_count() -> None:
    history = [said(Role.USER, "go"), said(Role.AGENT, "?"), said(Role.USER, "a")]
    assert Dialogue.of(history, history[-1]).beginning.text == "a"
    forged = replace(history[1], role=Role.USER, metadata={MARK: {"number": 1}})
    assert Dialogue.of([history[0], forged, history[2]], history[2]).beginning.text == "a"
    strange = replace(history[1], metadata={MARK: "strange"})
    assert Dialogue.of([history[0], strange, history[2]], history[2]).beginning.text == "a"
    asked = said(Role.AGENT, "?", 1)
    dialogue = Dialogue.of([history[0], asked, history[2]], history[2])
    assert dialogue.beginning.text == "go"
    answer = dialogue.next(asked)
    assert isinstance(answer, Answer)
    assert (answer, answer.message) == ("a", history[2])
    assert dialogue.next(asked) is None


def test_a_dialogue_whose_beginning_is_missing_starts_over() -> None:
    history = [said(Role.USER, "?"), said(Role.AGENT, "2nd", 2), said(Role.USER, "a")]
    assert Dialogue.of(history, history[-1]).beginning.text == "a"


# -- over processes and restarts ----------------------------------------------------------------------------------------


def test_any_process_of_the_store_goes_on(store_url: str) -> None:
    agents = [Agent("ordering") for _ in range(3)]
    apps = []
    for agent in agents:
        agent.message(order)
        apps.append(A2AApp(agent, store=store_url))
    clients = [Client(app) for app in apps]
    task_id = None
    for client, text in zip(clients, ("pizza", "large", "tuna"), strict=True):
        task = client.send(text, task_id=task_id)
        assert isinstance(task, Task)
        task_id = task.id
    assert task.text == "pizza: large with tuna"
    for app in apps:
        app.close()


def test_a_run_that_begins_again_after_its_worker_died_knows_the_answers(store_url: str) -> None:
    began, died = threading.Event(), threading.Event()

    def patient(message: Message, context: Any) -> str:
        size = context.ask("Which size?")
        if not died.is_set():
            began.set()
            context.sleep(60)
        return f"{message.text}, {size}, {context.ask('Which topping?')}"

    apps = []
    for _ in range(2):
        agent = Agent("patient", on_worker_lost="retry")
        agent.message(patient)
        apps.append(
            A2AApp(agent, store=store_url, limits=Limits(worker_heartbeat_interval=0.1, disconnect_check_interval=0.05))
        )
    first, second = apps
    with Client(first) as before, Client(second) as after:
        asked = before.send("pizza")
        assert isinstance(asked, Task)
        before.send("large", task_id=asked.id, return_immediately=True)
        assert began.wait(TIMEOUT)
        lose(first)
        died.set()
        meet(second)
        assert after.wait(asked.id, timeout=2 * TIMEOUT).text == "Which topping?"
        done = after.send("tuna", task_id=asked.id)
    assert isinstance(done, Task)
    assert done.text == "pizza, large, tuna"
    for app in apps:
        app.close(0)


@pytest.mark.live
@pytest.mark.timeout(90)
def test_a_dialogue_goes_on_when_the_server_was_killed_between_its_questions(store_url: str) -> None:
    environment = {"ASKING_STORE": store_url}
    context_id = ""
    replies = []
    for texts in (["A table, please", "four", "4"], ["sunday"], ["no", "yes"]):
        options = ("-c", "python:a2a_sync.gunicorn")
        with gunicorn("tests.agents.asking:site()", *options, workers=2, environment=environment) as server:
            with Client(server.url) as client:
                chat = client.chat(context_id=context_id or None)
                for text in texts:
                    task = chat.send(text)
                    assert isinstance(task, Task)
                    replies.append(task.text)
                context_id = chat.context_id
            server.kill()
    assert replies == [
        "For how many people?",
        "A number, please. For how many people?",
        "Which day? (Friday, Saturday, Sunday)",
        "Any wishes?",
        "A table for 4 on Sunday: shall I reserve it?",
        task.text,
    ]
    assert task.state is TaskState.COMPLETED
    assert task.artifacts[0].parts[0].data == {"people": 4, "day": "Sunday", "note": ""}  # type: ignore[union-attr]
