"""Something of the host around each run: entered and left on the run's thread, whatever the agent's code does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    Client,
    InputRequired,
    Limits,
    Message,
    RequestContext,
    Task,
    TaskState,
)
from a2a_sync.agent.spec import AgentSpec
from a2a_sync.card import AgentCard
from a2a_sync.engine.around import with_run_context
from a2a_sync.errors import TaskNotCancelableError
from tests.engine import TIMEOUT, Background, Gate, eventually

Around = Callable[[RequestContext], AbstractContextManager[None]]


class Diary:
    """What happened, in its order, each with the thread it happened on."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []

    def note(self, what: str) -> None:
        self.lines.append((what, threading.get_ident()))

    @property
    def words(self) -> list[str]:
        return [what for what, _ in self.lines]

    @contextmanager
    def around(self, context: RequestContext) -> Iterator[None]:
        self.note(f"in {context.message.text}")
        try:
            yield
        except BaseException as error:
            self.note(type(error).__name__)
            raise
        finally:
            self.note("out")


@pytest.fixture
def diary() -> Diary:
    return Diary()


LIMITS = Limits(disconnect_check_interval=0.02, run_timeout=None, direct_reply_timeout=TIMEOUT)


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """A client of a handler, or of an executor."""
    apps: list[A2AApp] = []

    def make(handler: Any, around: Around) -> Client:
        agent, card = handler, None
        if not hasattr(handler, "execute"):
            agent = Agent("tested", description="d")
            agent.message(handler)
        elif not isinstance(handler, Agent):
            card = AgentCard(name="tested", description="d", version="1")
        apps.append(A2AApp(agent, card=card, around_run=around, limits=LIMITS))
        return Client(apps[-1])

    yield make
    for app in apps:
        app.close(0)


def test_it_surrounds_the_code_on_the_thread_of_the_run(serve: Callable[..., Client], diary: Diary) -> None:
    def handler(message: Message, context: RequestContext) -> str:
        diary.note("handler")
        return "done"

    assert serve(handler, diary.around).send("hi").text == "done"
    eventually(lambda: len(diary.lines) == 3)
    assert diary.words == ["in hi", "handler", "out"]
    assert len({thread for _, thread in diary.lines}) == 1
    assert diary.lines[0][1] != threading.get_ident()


def test_a_generator_is_surrounded_to_its_last_chunk(serve: Callable[..., Client], diary: Diary) -> None:
    def handler(message: Message, context: RequestContext) -> Iterator[str]:
        for number in "12":
            diary.note(number)
            yield number

    assert serve(handler, diary.around).send("hi").text == "12"
    eventually(lambda: diary.words == ["in hi", "1", "2", "out"])


def test_each_turn_of_a_task_is_a_run_of_its_own(serve: Callable[..., Client], diary: Diary) -> None:
    def handler(message: Message, context: RequestContext) -> Any:
        return InputRequired("and?") if len(context.history) == 1 else "done"

    client = serve(handler, diary.around)
    task = client.send("one")
    assert isinstance(task, Task)
    # The answer goes out before the run is left: two runs of one task may overlap there.
    eventually(lambda: diary.words == ["in one", "out"])
    client.send("two", task_id=task.id)
    eventually(lambda: diary.words == ["in one", "out", "in two", "out"])


def test_an_exception_passes_through_and_fails_the_task(serve: Callable[..., Client], diary: Diary) -> None:
    def handler(message: Message, context: RequestContext) -> None:
        raise ValueError("secret")

    task = serve(handler, diary.around).send("hi")
    assert isinstance(task, Task)
    assert task.state is TaskState.FAILED
    assert diary.words == ["in hi", "ValueError", "out"]


def test_a_cancelled_run_leaves_it(serve: Callable[..., Client], diary: Diary) -> None:
    began = threading.Event()

    def handler(message: Message, context: RequestContext) -> None:
        began.set()
        context.sleep(TIMEOUT)

    client = serve(handler, diary.around)
    task = client.send("hi", return_immediately=True)
    assert isinstance(task, Task)
    assert began.wait(TIMEOUT)
    assert client.cancel_task(task.id).state is TaskState.CANCELED
    eventually(lambda: diary.words == ["in hi", "TaskCancelled", "out"])


def test_what_it_raises_on_the_way_in_fails_the_task_and_the_code_is_never_called(serve: Callable[..., Client]) -> None:
    called = threading.Event()

    @contextmanager
    def locked(context: RequestContext) -> Iterator[None]:
        raise PermissionError("no database")
        yield

    task = serve(lambda message, context: called.set(), locked).send("hi")
    assert isinstance(task, Task)
    assert task.state is TaskState.FAILED
    assert "no database" not in task.text
    assert not called.is_set()


def test_what_it_raises_on_the_way_out_fails_a_task_that_has_not_ended(serve: Callable[..., Client]) -> None:
    class Executor:
        def execute(self, context: RequestContext) -> None:
            context.update("nearly")

    @contextmanager
    def lost(context: RequestContext) -> Iterator[None]:
        yield
        raise ConnectionError("could not commit")

    task = serve(Executor(), lost).send("hi")
    assert isinstance(task, Task)
    assert task.state is TaskState.FAILED


def test_a_cancel_handler_is_surrounded_too_and_may_refuse(serve: Callable[..., Client], diary: Diary) -> None:
    gate = Gate()
    agent = Agent("stubborn", description="d")

    @agent.message
    def work(message: Message, context: RequestContext) -> str:
        gate.block()
        return "done"

    @agent.on_cancel
    def refuse(context: RequestContext) -> None:
        diary.note("asked")
        raise TaskNotCancelableError("too late")

    client = serve(agent, diary.around)
    sending = Background(lambda: client.send("hi"))
    gate.wait()
    (task,) = client.list_tasks().tasks
    with pytest.raises(TaskNotCancelableError, match="too late"):
        client.cancel_task(task.id)
    gate.open.set()
    assert sending.result().text == "done"
    eventually(lambda: len(diary.words) == 6)
    assert diary.words == ["in hi", "in hi", "asked", "TaskNotCancelableError", "out", "out"]


def test_without_a_cancel_handler_nothing_is_entered_for_a_cancel(serve: Callable[..., Client], diary: Diary) -> None:
    client = serve(lambda message, context: InputRequired("and?"), diary.around)
    task = client.send("hi")
    assert isinstance(task, Task)
    assert client.cancel_task(task.id).state is TaskState.CANCELED
    assert diary.words == ["in hi", "out"]


def test_a_direct_agent_stays_direct(serve: Callable[..., Client], diary: Diary) -> None:
    agent = Agent("direct", description="d", direct=True)
    agent.message(lambda message, context: context.agent_message("no task"))
    client = serve(agent, diary.around)
    assert isinstance(client.send("hi"), Message)
    assert client.list_tasks().tasks == ()
    eventually(lambda: diary.words == ["in hi", "out"])


def test_an_agent_that_wants_lost_runs_again_still_does(diary: Diary) -> None:
    spec = with_run_context(AgentSpec.of(Agent("a", on_worker_lost="retry")), diary.around)
    assert spec.on_worker_lost() == "retry"
