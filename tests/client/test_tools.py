"""An agent as a plain function: what a framework reads of it, what it sends, what it says of the answer."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_sync import (
    A2AApp,
    Agent,
    AgentSkill,
    Artifact,
    AuthRequired,
    Client,
    DataPart,
    Failed,
    FilePart,
    InputRequired,
    Message,
    Rejected,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
    TextPart,
)
from a2a_sync.client.tools import one_line, tool_name, tool_result
from a2a_sync.errors import TaskFailedError
from a2a_sync.testing import wsgi_session

CONVERT = AgentSkill(
    id="convert", name="Convert", description="Converts an amount", tags=["money"], examples=["5 EUR in USD"]
)


def agent(handler: Any, name: str = "Currency Agent", **attributes: Any) -> Agent:
    made = Agent(name, **{"description": "Knows currencies.", "skills": [CONVERT], **attributes})
    made.message(handler)
    return made


@pytest.fixture
def tool_of():
    """The function for an agent with this handler."""
    made: list[Any] = []

    def tool_of(handler: Any, **options: Any) -> Any:
        client = Client(agent(handler))
        made.extend((client, client._target))
        return client.as_tool(**options)

    yield tool_of
    for one in made:
        one.close()


# -- what a framework reads ---------------------------------------------------------------------------------------------


def test_the_function_is_named_and_described_as_the_card_says(tool_of: Any) -> None:
    tool = tool_of(lambda message, context: "ok")
    assert tool.__name__ == "currency_agent"
    assert tool.__doc__.startswith("Knows currencies. It can: Convert (Converts an amount)\n\nArgs:\n    message: ")
    assert typing.get_type_hints(tool) == {"message": str, "task_id": str, "return": str}
    assert str(inspect.signature(tool)) == "(message: str, task_id: str = '') -> str"


def test_a_skill_is_a_tool_of_its_own_and_the_agent_hears_which(tool_of: Any) -> None:
    tool = tool_of(lambda message, context: context.metadata["skillId"], skill="convert")
    assert tool.__name__ == "currency_agent_convert"
    assert tool.__doc__.startswith("Converts an amount. For example: 5 EUR in USD\n\nArgs:\n")
    assert tool("x") == "convert"


def test_a_skill_that_the_card_does_not_have_is_refused(tool_of: Any) -> None:
    with pytest.raises(KeyError, match="fly"):
        tool_of(lambda message, context: "ok", skill="fly")


def test_a_name_and_a_description_of_yours_need_no_card() -> None:
    with Client("http://127.0.0.1:9/") as client:
        tool = client.as_tool(name="ask_bob", description="Asks Bob.")
    assert tool.__name__ == "ask_bob"
    assert tool.__doc__.startswith("Asks Bob.\n\nArgs:\n")


@pytest.mark.parametrize(
    ("title", "name"),
    [("Greeter", "greeter"), ("currency-agent  2", "currency_agent_2"), ("class", "agent_class"), ("3D", "agent_3d")],
)
def test_names_are_made_of_titles(title: str, name: str) -> None:
    assert tool_name(title) == name


@given(st.text(max_size=90))
def test_every_name_suits_every_framework(title: str) -> None:
    name = tool_name(title)
    assert name.isascii()
    assert name.isidentifier()
    assert len(name) <= 64


def test_titles_that_no_name_can_say_have_names_of_their_own() -> None:
    titles = ["日本", "中国", "", "!", "a" * 80 + "b", "a" * 80 + "c", "café", "caf"]
    assert len({tool_name(title) for title in titles}) == len(titles)


def test_no_description_controls_a_terminal() -> None:
    assert one_line("Greets\x1b]52;c;cm0=\x07 you\x1b[2J\u202e\ud800.") == "Greets]52;c;cm0= you[2J."


def test_what_a_card_says_begins_no_section_of_the_docstring_and_is_not_endless() -> None:
    line = one_line("Greets.\n\nArgs:\n    message: nothing\n\nReturns:\n    money" + "!" * 5000)
    assert line.startswith("Greets. Args message: nothing Returns money!")
    assert len(line) == 1024


# -- what it sends ------------------------------------------------------------------------------------------------------


def test_each_call_carries_what_was_given_for_all_of_them(tool_of: Any) -> None:
    def answer(message: Message, context: Any) -> str:
        return f"{context.context_id} {context.metadata}"

    tool = tool_of(answer, skill="convert", context_id="c", metadata={"a": 1}, timeout=30)
    assert tool("x") == "c {'a': 1, 'skillId': 'convert'}"


def test_an_option_that_does_not_exist_is_refused_at_once(tool_of: Any) -> None:
    with pytest.raises(TypeError, match="patience"):
        tool_of(lambda message, context: "ok", patience=5)


# -- what it says of the answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("5.4 USD", "5.4 USD"),
        ({"usd": 5.4}, '{"usd":5.4}'),
        (["Rate:", DataPart(1.08)], "Rate:\n1.08"),
        (FilePart(url="https://example.com/a.pdf", filename="a.pdf"), "[file: a.pdf, https://example.com/a.pdf]"),
        (FilePart(raw=b"123"), "[file of 3 bytes]"),
        (Artifact(name="out", parts=(TextPart("a"), TextPart("b"))), "ab"),
        (None, ""),
    ],
)
def test_the_result_is_text(tool_of: Any, result: Any, text: str) -> None:
    assert tool_of(lambda message, context: result)("x") == text


def test_a_message_is_a_result_too(tool_of: Any) -> None:
    assert tool_of(lambda message, context: context.agent_message(["a", DataPart({"n": 1})]))("x") == 'a\n{"n":1}'


def test_a_result_that_only_the_history_holds_is_found() -> None:
    said = Message(role=Role.AGENT, parts=(DataPart({"n": 1}),))
    assert tool_result(Task(id="t", status=TaskStatus(state=TaskState.COMPLETED), history=(said,))) == '{"n":1}'


def test_all_artifacts_are_the_result_whatever_the_history_says() -> None:
    made = tuple(Artifact(name=name, parts=(TextPart(name),)) for name in ("result", "notes"))
    said = Message(role=Role.AGENT, parts=(TextPart("working"),))
    task = Task(id="t", status=TaskStatus(state=TaskState.COMPLETED, message=said), artifacts=made, history=(said,))
    assert tool_result(task) == "result\nnotes"


def test_a_result_has_no_more_text_than_a_model_can_read() -> None:
    """A model of LlamaIndex that was given 60 MB delayed the runs of other callers by 15 seconds."""
    asked = Message(role=Role.AGENT, parts=(TextPart("x" * 1_500_000),))
    completed = Task(id="t", status=TaskStatus(state=TaskState.COMPLETED, message=asked))
    waiting = Task(id="t", status=TaskStatus(state=TaskState.INPUT_REQUIRED, message=asked))
    for task, end in ((completed, ""), (waiting, 'call this tool again with the answer and task_id="t"]')):
        text = tool_result(task)
        assert text.startswith("x" * 1_000_000 + "\n\n[500000 more characters were left out]")
        assert text.endswith(end)
        assert len(text) < 1_000_200


def test_a_task_that_fails_with_very_much_text_is_a_short_error() -> None:
    said = Message(role=Role.AGENT, parts=(TextPart("x" * 1_500_000),))
    for state in (TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED):
        with pytest.raises(TaskFailedError) as caught:
            tool_result(Task(id="t", status=TaskStatus(state=state, message=said)))
        assert str(caught.value).endswith("x\n\n[500000 more characters were left out]")
        assert len(str(caught.value)) < 1_000_200
        assert len(caught.value.task.text) == 1_500_000


def test_a_task_whose_id_no_model_can_repeat_is_not_continued() -> None:
    said = Message(role=Role.AGENT, parts=(TextPart("Which size?"),))
    text = tool_result(Task(id="t" * 5_000_000, status=TaskStatus(state=TaskState.INPUT_REQUIRED, message=said)))
    assert text == "Which size?\n\n[input is needed: this tool cannot continue the task, because its id is too long]"


def test_a_direct_message_is_a_result_too() -> None:
    quick = agent(lambda message, context: context.agent_message("pong"), direct=True)
    with Client(quick) as client:
        assert client.as_tool()("ping") == "pong"
    quick.close()


def test_a_question_comes_back_and_is_answered_by_another_call(tool_of: Any) -> None:
    def order(message: Message, context: Any) -> Any:
        return f"a {message.text} one" if len(context.history) > 1 else InputRequired("Which size?")

    tool = tool_of(order)
    question = tool("pizza")
    assert question.startswith("Which size?\n\n[input is needed: call this tool again")
    task_id = question.partition('task_id="')[2].partition('"')[0]
    assert tool("large", task_id=task_id) == "a large one"


def test_a_required_login_is_returned(tool_of: Any) -> None:
    assert tool_of(lambda message, context: AuthRequired("Log in"))("x").startswith(
        "Log in\n\n[authorisation is needed"
    )


@pytest.mark.parametrize(
    ("result", "state", "text"),
    [
        (Failed("No rates today"), TaskState.FAILED, "the task is failed: No rates today"),
        (Rejected("No"), TaskState.REJECTED, "the task is rejected: No"),
    ],
)
def test_a_task_that_does_not_succeed_is_an_exception(tool_of: Any, result: Any, state: TaskState, text: str) -> None:
    with pytest.raises(TaskFailedError) as caught:
        tool_of(lambda message, context: result)("x")
    assert str(caught.value) == text
    assert caught.value.task.state is state


def test_an_invented_task_is_an_error_of_the_client(tool_of: Any) -> None:
    with pytest.raises(TaskNotFoundError):
        tool_of(lambda message, context: "ok")("x", task_id="t-1")


def test_it_works_over_http_too() -> None:
    greeter = agent(lambda message, context: f"hello {message.text}")
    with A2AApp(greeter) as app, Client("http://agent.test/", session=wsgi_session(app)) as client:
        assert client.as_tool()("Ada") == "hello Ada"
        assert client.as_tool("convert").__name__ == "currency_agent_convert"
