"""The client's view of an agent: equal in process, over WSGI and under gunicorn, in 1.0 and in 0.3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from a2a_sync import (
    AgentError,
    Client,
    DataPart,
    FilePart,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskNotFoundError,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError
from a2a_sync.types import Task
from tests.scenarios.agent import Sum

pytestmark = pytest.mark.timeout(60)

MakeClient = Callable[[], Client]


@pytest.fixture
def client(make_client: MakeClient) -> Iterator[Client]:
    with make_client() as client:
        yield client


def send(client: Client, text: object, **options: object) -> Task:
    """Send a message that is answered with a task."""
    answer = client.send(text, **options)  # type: ignore[arg-type]
    assert isinstance(answer, Task)
    return answer


def waiting_task(client: Client) -> Task:
    """Start a task whose run waits for a cancel."""
    return send(client, "wait", return_immediately=True)


def test_the_answer_is_an_artifact_and_in_the_history(client: Client) -> None:
    task = send(client, "echo Ada")
    assert task.state is TaskState.COMPLETED
    assert task.text == "echo: Ada"
    assert [artifact.text for artifact in task.artifacts] == ["echo: Ada"]
    again = client.get_task(task.id)
    assert [(turn.role, turn.text) for turn in again.history] == [(Role.USER, "echo Ada"), (Role.AGENT, "echo: Ada")]
    assert again.status.message is None


def test_send_and_get_return_the_same_task(client: Client) -> None:
    task = send(client, "count 3")
    again = client.get_task(task.id)
    assert (again.id, again.context_id, again.status, again.artifacts) == (
        task.id,
        task.context_id,
        task.status,
        task.artifacts,
    )


def test_a_stream_consists_of_task_progress_chunks_and_end(client: Client) -> None:
    with client.stream("count 3") as stream:
        events = list(stream)
        task = stream.task
    assert isinstance(events[0], Task)
    assert task is not None
    assert task.text == "1 2 3 "
    statuses = [event.status for event in events if isinstance(event, TaskStatusUpdateEvent)]
    if events[0].state is TaskState.SUBMITTED:
        # The run waited in a job queue.
        assert statuses.pop(0).state is TaskState.WORKING
    assert [status.state for status in statuses] == [TaskState.WORKING, TaskState.COMPLETED]
    assert statuses[0].message is not None
    assert statuses[0].message.text == "counting"
    chunks = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert len({chunk.artifact.artifact_id for chunk in chunks}) == 1
    # The last event replaces the chunks by the whole text.
    assert [(chunk.append, chunk.last_chunk, chunk.artifact.text) for chunk in chunks] == [
        (False, False, "1 "),
        (True, False, "2 "),
        (True, False, "3 "),
        (False, True, "1 2 3 "),
    ]


def test_the_new_text_of_all_events_adds_up_to_the_text_of_the_task(client: Client) -> None:
    with client.stream("count 3") as stream:
        added = [stream.new_text for _ in stream]
    assert [text for text in added if text] == ["1 ", "2 ", "3 "]


def test_the_folded_stream_equals_the_stored_task(client: Client) -> None:
    with client.stream("count 20") as stream:
        for _ in stream:
            pass
        folded = stream.task
    assert folded is not None
    stored = client.get_task(folded.id)
    assert (folded.status, folded.artifacts, folded.text) == (stored.status, stored.artifacts, stored.text)


def test_a_question_is_asked_and_its_answer_continues_the_task(client: Client) -> None:
    asked = send(client, "ask")
    assert asked.state is TaskState.INPUT_REQUIRED
    assert asked.text == "Which size?"
    done = send(client, "large", task_id=asked.id)
    assert (done.id, done.state) == (asked.id, TaskState.COMPLETED)
    assert done.text == "ask / Which size? / large"
    assert done.context_id == asked.context_id


def test_a_chat_continues_an_interrupted_task_and_keeps_its_context(client: Client) -> None:
    chat = client.chat()
    first, second, third = (chat.send(text) for text in ("ask", "large", "echo again"))
    assert isinstance(first, Task)
    assert isinstance(second, Task)
    assert isinstance(third, Task)
    assert first.id == second.id != third.id
    assert first.context_id == second.context_id == third.context_id


def test_a_task_in_auth_required_is_continued_by_the_next_message(client: Client) -> None:
    asked = send(client, "login")
    assert (asked.state, asked.text) == (TaskState.AUTH_REQUIRED, "Log in first")
    assert send(client, "done", task_id=asked.id).state is TaskState.COMPLETED


def test_a_rejected_and_a_failed_task_are_returned_not_raised(client: Client) -> None:
    assert (send(client, "reject").state, send(client, "reject").text) == (TaskState.REJECTED, "not my job")
    assert (send(client, "publicfail").state, send(client, "publicfail").text) == (TaskState.FAILED, "quota used up")


def test_a_failure_reason_that_is_not_text_is_in_the_text_of_the_task(client: Client) -> None:
    task = send(client, "reason sold out")
    assert (task.state, task.text) == (TaskState.FAILED, '{"code":7,"why":"sold out"}')


def test_a_stream_of_data_alone_is_in_the_history(client: Client) -> None:
    task = client.get_task(send(client, "pieces a b").id)
    (artifact,) = task.artifacts
    said = [part.data for part in artifact.parts if isinstance(part, DataPart)]
    assert said == [{"word": "a"}, {"word": "b"}]
    assert [turn.role for turn in task.history] == [Role.USER, Role.AGENT]
    assert [part.data for part in task.history[-1].parts if isinstance(part, DataPart)] == said


def test_the_text_of_an_exception_is_not_sent_to_clients(client: Client) -> None:
    task = send(client, "fail")
    assert task.state is TaskState.FAILED
    assert "secret" not in task.to_json()
    assert task.text.startswith("internal error (id ")


def test_a_cancel_ends_the_run_and_the_blocked_send(make_client: MakeClient) -> None:
    with make_client() as sender, make_client() as other:
        begun = threading.Event()
        answers: list[Task] = []
        ids: list[str] = []

        def follow() -> None:
            with sender.stream("wait") as stream:
                for event in stream:
                    if isinstance(event, Task):
                        ids.append(event.id)
                    begun.set()
                assert stream.task is not None
                answers.append(stream.task)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert begun.wait(60)
        cancelled = other.cancel_task(ids[0])
        thread.join(60)
        assert cancelled.state is TaskState.CANCELED
        assert [task.state for task in answers] == [TaskState.CANCELED]


def test_a_cancelled_task_stays_cancelled(client: Client) -> None:
    task = waiting_task(client)
    client.cancel_task(task.id)
    with pytest.raises(TaskNotCancelableError):
        client.cancel_task(task.id)
    assert client.get_task(task.id).state is TaskState.CANCELED
    with pytest.raises(UnsupportedOperationError):
        client.send("more", task_id=task.id)


def test_an_agent_may_refuse_to_be_cancelled(client: Client) -> None:
    task = send(client, "stubborn", return_immediately=True)
    with pytest.raises(TaskNotCancelableError, match="point of no return"):
        client.cancel_task(task.id)
    assert not client.get_task(task.id).state.terminal


def test_a_non_blocking_send_can_be_waited_for(client: Client) -> None:
    task = send(client, "count 5", return_immediately=True)
    done = client.wait(task.id, timeout=60)
    assert (done.state, done.text) == (TaskState.COMPLETED, "1 2 3 4 5 ")


def test_a_subscriber_receives_the_task_and_then_its_updates(make_client: MakeClient) -> None:
    with make_client() as client, make_client() as other:
        task = waiting_task(client)
        states = []
        with client.subscribe(task.id) as stream:
            for event in stream:
                if isinstance(event, Task):
                    other.cancel_task(event.id)
                elif isinstance(event, TaskStatusUpdateEvent):
                    states.append(event.status.state)
        assert states[-1] is TaskState.CANCELED


def test_a_finished_task_cannot_be_subscribed_to(client: Client) -> None:
    task = send(client, "echo x")
    with pytest.raises(UnsupportedOperationError), client.subscribe(task.id) as stream:
        list(stream)


def test_every_operation_refuses_an_unknown_task(client: Client) -> None:
    for operation in (
        lambda: client.get_task("no-such-task"),
        lambda: client.cancel_task("no-such-task"),
        lambda: client.send("hi", task_id="no-such-task"),
        lambda: list(client.subscribe("no-such-task")),
    ):
        with pytest.raises(TaskNotFoundError):
            operation()


def test_a_context_id_that_differs_from_that_of_the_task_is_refused(client: Client) -> None:
    asked = send(client, "ask")
    with pytest.raises(InvalidParamsError, match=r"contextId"):
        client.send("large", task_id=asked.id, context_id="another")


def test_tasks_are_listed_newest_first_and_page_by_page(client: Client, supports_lists: bool) -> None:
    if not supports_lists:
        with pytest.raises(UnsupportedOperationError, match=r"0\.3 has no ListTasks"):
            client.list_tasks()
        return
    context = send(client, "echo one").context_id
    for number in range(4):
        send(client, f"echo {number}", context_id=context)
    pages = client.list_tasks(context_id=context, page_size=2)
    assert (len(pages.tasks), pages.total_size) == (2, 5)
    everything = list(client.iter_tasks(context_id=context, page_size=2))
    assert len({task.id for task in everything}) == 5
    times = [task.status.timestamp for task in everything]
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]
    assert all(not task.artifacts for task in everything)


def test_history_length_limits_the_history(client: Client) -> None:
    task = send(client, "ask")
    send(client, "more", task_id=task.id)
    assert len(client.get_task(task.id).history) == 4
    assert [turn.text for turn in client.get_task(task.id, history_length=2).history] == ["more", "And then?"]
    assert client.get_task(task.id, history_length=0).history == ()
    with pytest.raises(InvalidParamsError, match="historyLength"):
        client.get_task(task.id, history_length=-1)


def test_files_and_data_are_sent_and_received(client: Client, supports_file_names: bool) -> None:
    content = bytes(range(256)) * 40
    task = send(client, [TextPart("file"), FilePart(raw=content, filename="a.bin")])
    (part,) = task.artifact("copy").files
    name = "copy.bin" if supports_file_names else ""
    assert (part.raw, part.filename, part.media_type) == (content, name, "image/x-test")
    summed = send(client, "data 1 2 39")
    assert summed.artifacts[0].data_as(Sum) == Sum([1, 2, 39], 42)
    assert isinstance(summed.artifacts[0].parts[0], DataPart)


def test_a_message_returned_by_a_handler_becomes_the_final_status(client: Client) -> None:
    task = send(client, "message")
    assert task.state is TaskState.COMPLETED
    assert task.status.message is not None
    assert task.status.message.text == "no task was needed"


def test_a_message_to_a_busy_task_is_run_after_the_current_run(make_client: MakeClient) -> None:
    with make_client() as client, make_client() as other:
        task = waiting_task(client)
        with pytest.raises(UnsupportedOperationError, match="busy"):
            other.send("at once", task_id=task.id, return_immediately=True)
        client.cancel_task(task.id)


def test_an_error_of_a_streaming_call_is_raised_like_any_other(client: Client) -> None:
    unnamed = Message(role=Role.USER, parts=(TextPart("hi"),), message_id="")
    with pytest.raises(InvalidParamsError, match="messageId"), client.stream(unnamed) as stream:
        list(stream)


def test_the_card_describes_the_agent(client: Client) -> None:
    card = client.card()
    assert (card.name, card.description) == ("scenario", "Runs the command in the message")
    assert card.capabilities.streaming is True
    assert card.skill("obey").tags == ("test",)


def test_twenty_threads_share_one_client(client: Client) -> None:
    answers: list[str] = []
    failures: list[BaseException] = []

    def talk(number: int) -> None:
        try:
            answers.append(client.send(f"echo {number}").text)
        except AgentError as error:
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(number,), daemon=True) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert sorted(answers) == sorted(f"echo: {number}" for number in range(20))
