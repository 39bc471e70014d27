"""The agent of all scenarios, in process and under gunicorn: ``gunicorn tests.scenarios.agent:app``.

The first word of the message selects a command. Waiting commands wait for a cancel, with a time limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from a2a_sync import (
    A2AApp,
    Agent,
    AgentSkill,
    Artifact,
    AuthRequired,
    DataPart,
    Extension,
    Failed,
    FilePart,
    InputRequired,
    Limits,
    Message,
    PublicError,
    PushOptions,
    Rejected,
    RequestContext,
    URLGuard,
)
from a2a_sync.agent import Timestamps
from a2a_sync.errors import TaskNotCancelableError

#: An extension: the echo is in capital letters.
LOUD = "https://scenario.example/loud/v1"


@dataclass
class Sum:
    numbers: list[int]
    total: int


class ScenarioAgent(Agent):
    name = "scenario"
    description = "Runs the command in the message"
    skills = [AgentSkill(id="obey", name="Obey", description="Runs the command in the message", tags=["test"])]
    input_modes = ("text/plain", "application/json", "image/*")
    extensions = (Extension(LOUD, description="In capital letters"), Timestamps())

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        command, _, argument = message.text.partition(" ")
        if context.task.state.interrupted or len(context.history) > 1:
            return self.continued(context)
        return getattr(self, f"do_{command}", self.do_echo)(argument, context)

    def continued(self, context: RequestContext) -> Any:
        text = [turn.text for turn in context.history]
        if text[-1] == "more":
            return InputRequired("And then?")
        return " / ".join(text)

    def do_echo(self, argument: str, context: RequestContext) -> Any:
        text = f"echo: {argument or context.message.text}"
        return text.upper() if LOUD in context.extensions else text

    def do_count(self, argument: str, context: RequestContext) -> Iterator[str]:
        context.update("counting")
        for number in range(1, int(argument) + 1):
            yield f"{number} "

    def do_ask(self, argument: str, context: RequestContext) -> InputRequired:
        return InputRequired("Which size?")

    def do_login(self, argument: str, context: RequestContext) -> AuthRequired:
        return AuthRequired("Log in first")

    def do_reject(self, argument: str, context: RequestContext) -> Rejected:
        return Rejected("not my job")

    def do_fail(self, argument: str, context: RequestContext) -> None:
        raise ValueError("secret-in-the-exception")

    def do_publicfail(self, argument: str, context: RequestContext) -> None:
        raise PublicError("quota used up")

    def do_reason(self, argument: str, context: RequestContext) -> Failed:
        return Failed({"code": 7, "why": argument})

    def do_pieces(self, argument: str, context: RequestContext) -> Iterator[DataPart]:
        """A stream that consists of data parts."""
        for word in argument.split():
            yield DataPart({"word": word})

    def do_wait(self, argument: str, context: RequestContext) -> None:
        context.update(f"waiting in process {os.getpid()}")
        context.sleep(float(argument or 30))

    def do_stubborn(self, argument: str, context: RequestContext) -> None:
        context.update("waiting")
        context.sleep(30)

    def do_data(self, argument: str, context: RequestContext) -> Sum:
        numbers = [int(word) for word in argument.split()]
        return Sum(numbers, sum(numbers))

    def do_file(self, argument: str, context: RequestContext) -> Artifact:
        content = b"".join(part.raw or b"" for part in context.message.files)
        return Artifact(name="copy", parts=(FilePart(raw=content, filename="copy.bin", media_type="image/x-test"),))

    def do_message(self, argument: str, context: RequestContext) -> Message:
        return context.agent_message("no task was needed")

    def do_stored(self, argument: str, context: RequestContext) -> None:
        """The answer is in the stored history only; no stream carries it."""
        context.emit(context.agent_message("only stored"))

    def do_header(self, argument: str, context: RequestContext) -> str:
        return context.headers.get(argument, "(none)")

    def do_modes(self, argument: str, context: RequestContext) -> str:
        return ", ".join(context.accepted_output_modes) or "any"

    def do_references(self, argument: str, context: RequestContext) -> str:
        return ", ".join(task.text for task in context.referenced_tasks)

    def do_tenant(self, argument: str, context: RequestContext) -> str:
        return f"for {context.tenant}"

    def handle_cancel(self, context: RequestContext) -> None:
        if context.message.text.startswith("stubborn"):
            raise TaskNotCancelableError("the point of no return is passed")


class Direct(ScenarioAgent):
    direct = True


def make_app(store: Any = None, **options: Any) -> A2AApp:
    options.setdefault("push", PushOptions(url_guard=URLGuard(allow=["127.0.0.1"])))
    return A2AApp(
        ScenarioAgent(),
        store=store,
        limits=Limits(busy_task_timeout=5.0, disconnect_check_interval=0.2, stream_keepalive_interval=1.0),
        **options,
    )


#: The app for gunicorn. The store's file is created on first use, so importing this module for `make_app` creates none.
app = make_app(os.environ.get("SCENARIO_STORE"))
direct_app = A2AApp(Direct(), limits=Limits(disconnect_check_interval=0.2, direct_reply_timeout=60.0))
