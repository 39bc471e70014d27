"""The quick start of each system in this library runs, and is not longer than the original.

Lengths are lines of code, including imports; those of the originals were counted in their documents.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import pytest
from werkzeug.serving import make_server

from a2a_sync import (
    A2AApp,
    Agent,
    AgentSkill,
    Artifact,
    Client,
    InputRequired,
    Message,
    Role,
    TaskState,
    TextPart,
)
from a2a_sync.integrations.mapper import Mapper, RunEvent
from a2a_sync.multiagent import AgentSupervisor

S = TaskState


class QuickStart(NamedTuple):
    """The code of a quick start, and the length of the original."""

    code: str
    original_lines: int

    @property
    def lines(self) -> int:
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in self.code.splitlines())


DEFINE = QuickStart(
    """
from a2a_sync import Agent

class MyAgent(Agent):
    name = "my-agent"
    description = "Does things"

    def handle_message(self, message, context):
        return f"Got: {message.text}"

task = MyAgent().call("hello")
""",
    11,
)
SERVE = QuickStart(
    """
from a2a_sync import A2AApp

app = A2AApp(MyAgent())  # gunicorn module:app
""",
    4,
)
REMOTE = QuickStart(
    """
from a2a_sync import Client

client = Client("https://agent.example.com")
task = client.send("Hello!")
for event in client.stream("Count to 5"):
    print(event)
""",
    5,
)
TURNS = QuickStart(
    """
task = agent.call("order pizza")
task = agent.call("large", task_id=task.id)
""",
    2,
)
STREAM = QuickStart(
    """
for event in agent.stream("research topic"):
    process(event)
""",
    2,
)
SUPERVISE = QuickStart(
    """
from a2a_sync.multiagent import AgentSupervisor

agents = AgentSupervisor([PricingAgent, RiskAgent, SummaryAgent])
found = agents.registry.find_by_tag("finance")
""",
    5,
)
IN_PROCESS = QuickStart(
    """
from a2a_sync.card import create_agent_card
from a2a_sync.multiagent import AgentRegistry, AgentServer, get_task_result

card = create_agent_card("SWE Agent", "Software engineering agent", skills={"edit": "Edit files"})
server = AgentServer(card, lambda task: task.with_artifact("Hello from agent", name="result"))

server.on("task:submitted", lambda event: events.append("submitted"))
server.on("task:completed", lambda event: events.append("completed"))
task = server.submit_task("Do something", id="task-1")

client = AgentRegistry()
client.register("swe", server)
found = client.find_agents_with_skill("edit")
result = get_task_result(client.submit_task("swe", "Fix the bug"))
""",
    25,
)
EXECUTOR = QuickStart(
    """
from a2a_sync import A2AApp, AgentCard, Message, Role, TaskState, TaskStatus, TaskStatusUpdateEvent, TextPart

class MyExecutor:
    def execute(self, context):
        yield TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.WORKING))
        yield Message(role=Role.AGENT, parts=(TextPart("Hello from my agent!"),))

    def cancel(self, context):
        pass

app = A2AApp(MyExecutor(), card=AgentCard(name="My Agent", description="Says hello", version="1"), store="memory:")
""",
    21,
)
STACK = QuickStart(
    """
from a2a_sync import A2AApp

app = A2AApp(executor, card=card, store="memory:", push=True, extended_card=extended)
""",
    7,
)
CHATS = QuickStart(
    """
from a2a_sync.integrations.chat_messages import from_chat_messages, to_chat_messages

chats = to_chat_messages(messages)
result = agent.run(chats)
task = mapper.create_task(history=from_chat_messages(chats))
""",
    4,
)
MAPPED = QuickStart(
    """
from a2a_sync.integrations.mapper import Mapper

mapper = Mapper(task_id, context_id)
for update in mapper.map_stream(agent.run_stream(chats)):
    send(update)
final_task = mapper.complete(artifacts)
""",
    7,
)
ALL = [DEFINE, SERVE, REMOTE, TURNS, STREAM, SUPERVISE, IN_PROCESS, EXECUTOR, STACK, CHATS, MAPPED]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.code.split("\n")[-2][:40])
def test_no_quick_start_is_longer_than_the_original(one):
    assert 0 < one.lines <= one.original_lines


def execute(one, **names):
    """Execute the code and return its namespace."""
    exec(compile(one.code, "quick start", "exec"), names)  # noqa: S102
    return names


@pytest.fixture
def served():
    """A factory of real servers, which returns their URL."""
    servers = []

    def serve(app):
        server = make_server("127.0.0.1", 0, app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, name="test-server", daemon=True)
        thread.start()
        servers.append((server, thread, app))
        return f"http://127.0.0.1:{server.port}"

    yield serve
    for server, thread, app in servers:
        app.close()
        server.shutdown()
        thread.join(60)
        server.server_close()


def test_a_an_agent_is_defined_and_called():
    names = execute(DEFINE)
    assert (names["task"].state, names["task"].text) == (S.COMPLETED, "Got: hello")


def test_a_an_agent_is_served_and_called_over_http(served, capsys):
    app = execute(SERVE, MyAgent=execute(DEFINE)["MyAgent"])["app"]
    url = served(app)
    names = execute(QuickStart(REMOTE.code.replace("https://agent.example.com", url), REMOTE.original_lines))
    names["client"].close()
    assert names["task"].text == "Got: Hello!"
    assert "Got: Count to 5" in capsys.readouterr().out


def pizza(message, context):
    return InputRequired("Which size?") if len(context.history) == 1 else f"One {message.text} pizza"


def test_a_a_dialogue_is_continued_with_the_task_id():
    agent = Agent("pizza")
    agent.message(pizza)
    with agent:
        assert execute(TURNS, agent=agent)["task"].text == "One large pizza"


def test_a_a_stream_is_read_event_by_event():
    agent, events = Agent("researcher"), []

    @agent.message
    def research(message, context):
        yield "first"
        yield "second"

    with agent:
        execute(STREAM, agent=agent, process=events.append)
    assert [event.artifact.parts[0].text for event in events[1:3]] == ["first", "second"]
    assert events[-1].status.state is S.COMPLETED


def agent_class(title, tag):
    skills = [AgentSkill.of(title.lower(), "Does it", tags=[tag])]
    return type(title, (Agent,), {"skills": skills, "handle_message": lambda self, message, context: "ok"})


def test_a_a_supervisor_starts_agents_that_are_found_by_tag():
    tags = {"PricingAgent": "finance", "RiskAgent": "finance", "SummaryAgent": "text"}
    names = execute(SUPERVISE, **{title: agent_class(title, tag) for title, tag in tags.items()})
    assert names["found"] == ["PricingAgent", "RiskAgent"]
    assert isinstance(names["agents"], AgentSupervisor)
    names["agents"].close()


def test_b_local_agents_are_registered_observed_and_called():
    names = execute(IN_PROCESS, events=(events := []))
    task = names["task"]
    assert (task.id, task.state, len(task.artifacts)) == ("task-1", S.COMPLETED, 1)
    assert [status.state for status in task.status_history] == [S.SUBMITTED, S.WORKING, S.COMPLETED]
    assert events[:2] == ["submitted", "completed"]
    assert (names["found"], names["result"]) == (["swe"], "Hello from agent")
    names["client"].close()
    names["server"].close()


def test_c_an_executor_is_served(served):
    app = execute(EXECUTOR)["app"]
    with Client(served(app), protocol_version="0.3") as client:
        task = client.send("hi")
        assert (task.state, task.status.message.text) == (S.COMPLETED, "Hello from my agent!")


class Calculator:
    """An agent of a framework."""

    def run(self, chats):
        return f"{len(chats)} messages"

    def run_stream(self, chats):
        yield RunEvent("run_start")
        yield RunEvent("message_delta", delta=self.run(chats))
        yield RunEvent("run_end")


def test_d_messages_are_converted_to_chat_messages_and_back():
    messages = (Message(role=Role.USER, parts=(TextPart("2 + 3?"),)),)
    names = execute(CHATS, messages=messages, agent=Calculator(), mapper=Mapper())
    assert (names["chats"], names["result"]) == ([{"role": "user", "content": "2 + 3?"}], "1 messages")
    assert [message.parts for message in names["task"].history] == [messages[0].parts]


def test_d_run_events_are_mapped_to_a_task():
    sent, chart = [], Artifact(name="chart", parts=(TextPart("5"),))
    given = {"task_id": "t", "context_id": "c", "chats": [], "artifacts": [chart]}
    task = execute(MAPPED, agent=Calculator(), send=sent.append, **given)["final_task"]
    assert [event.status.state for event in sent] == [S.WORKING, S.COMPLETED]
    assert (task.id, task.state, task.status.message.text, task.artifacts) == ("t", S.COMPLETED, "0 messages", (chart,))


def test_e_a_server_is_created_with_one_call():
    made = execute(EXECUTOR)
    card = made["app"].agent_card()
    app = execute(STACK, executor=made["MyExecutor"](), card=card, extended=card)["app"]
    assert isinstance(app, A2AApp)
    with app, Client(app) as client:
        assert client.send("hi").status.message.text == "Hello from my agent!"
        assert client.card().capabilities.push_notifications
        assert client.extended_card().name == "My Agent"
