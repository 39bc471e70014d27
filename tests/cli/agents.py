"""Agents for the tests of the command line: each word makes one of them do one thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from a2a_sync import (
    A2AApp,
    Agent,
    AgentCard,
    Artifact,
    AuthRequired,
    DataPart,
    Failed,
    FilePart,
    InputRequired,
    Message,
    Rejected,
    RequestContext,
    Role,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.card import create_agent_card

HOSTILE = "\x1b[31mred\x1b[0m \x9b2Jclear \x07bell \u202eright\u202c\rover"
MARKDOWN = "# Title\x1b[2J\n\n| a | b |\n| --- | --- |\n| 1 | [here](http://127.0.0.1:1/secret) |\n"


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Actor(Agent):
    """Does what the first word of the message says."""

    name = "actor"
    description = "Does what it is asked"
    input_modes = ("*/*",)

    def handle_message(self, message: Message, context: RequestContext) -> object:
        word = message.text.partition(" ")[0]
        match word:
            case "fail":
                return Failed("it broke")
            case "crash":
                raise RuntimeError("a secret")
            case "reject":
                return Rejected("not today")
            case "ask":
                return InputRequired("which one?")
            case "login":
                return AuthRequired("sign in first")
            case "choose":
                return f"chose {context.choose('which colour?', ['red', 'blue'])}"
            case "slow":
                return self._slow(context)
            case "stream":
                return self._chunks(context)
            case "spoken":
                return (piece for piece in ("one ", "two"))
            case "status":
                return context.agent_message("in the status")
            case "stored":
                return context.emit(context.agent_message("in the history"))
            case "point":
                return Point(1, 2)
            case "files":
                return self._files()
            case "hostile":
                return Artifact(name=f"{HOSTILE}\nsecond line", parts=(TextPart(HOSTILE),))
            case "markdown":
                return Artifact(name="page", parts=(TextPart(MARKDOWN, media_type="text/markdown"),))
            case "download":
                return FilePart(raw=bytes(2_000_000), filename="large.bin", media_type="application/octet-stream")
            case "upload":
                return [f"{file.filename} {file.media_type} {len(file.raw or b'')}" for file in message.files]
        return f"you said {message.text}"

    def _slow(self, context: RequestContext) -> Iterator[str]:
        context.update("started")
        yield "first piece"
        context.sleep(60)
        yield "never sent"

    def _chunks(self, context: RequestContext) -> Iterator[object]:
        context.update("half way")
        with context.artifact("poem.txt") as writer:
            for piece in ("one ", "two ", "three"):
                writer.write(piece)
        yield Artifact(name="numbers", parts=(DataPart({"n": 3}),))

    def _files(self) -> Iterator[Artifact]:
        for name in ("../../escape.txt", ".bashrc", "picture.png", "picture.png"):
            yield Artifact(name="files", parts=(FilePart(raw=name.encode(), filename=name, media_type="image/png"),))
        yield Artifact(name="away", parts=(FilePart(url="http://127.0.0.1:1/secret", filename="far"),))
        yield Artifact(name="a note", parts=(TextPart("note", media_type="text/markdown"),))


#: The question of the actor.
INSIDER = create_agent_card("insider", "Knows more", skills={"know": "Knows"})


class Direct(Agent):
    """Answers with a message and no task."""

    name = "direct"
    description = "Answers without a task"
    direct = True

    def handle_message(self, message: Message, context: RequestContext) -> Message:
        return Message(role=Role.AGENT, parts=(TextPart("no task here"),))


class Executor:
    """The low level, with its card."""

    card = AgentCard(name="executor", description="Low level", version="1")

    def execute(self, context: RequestContext) -> Iterator[TaskStatusUpdateEvent]:
        yield TaskStatusUpdateEvent(
            status=TaskStatus(state=TaskState.COMPLETED, message=context.agent_message("done low"))
        )


agent = Actor()
app = A2AApp(Actor())
executor = Executor()
mute = Agent("mute")
number = 7


def make() -> A2AApp:
    """A factory."""
    return A2AApp(Actor())


def make_wrong() -> str:
    """Makes nothing that can be served."""
    return "no agent"


def make_broken() -> A2AApp:
    """A factory that fails."""
    raise ValueError("no database")
