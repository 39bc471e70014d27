"""The agent of the checks, whose behaviour is selected by the first word of the message.

``python -m tests.conformance.sdk_agent`` is its counterpart on the official SDK; both implement the commands of `WORDS`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from a2a_sync import (
    Agent,
    AgentSkill,
    Artifact,
    AuthRequired,
    FilePart,
    InputRequired,
    Message,
    Rejected,
    RequestContext,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

#: The time limit of a run that waits for its release, in seconds; longer than any check.
_TIMEOUT = 30.0
NOON_IN_OSLO = datetime(2031, 6, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))

#: The commands. NAME is any word; ``release NAME`` ends the wait of ``hold NAME``.
WORDS = {
    "echo": "one artifact with the message's other parts, or with its text where it has no others",
    "report": "one data artifact: the parts of the request that the agent received",
    "count N": "one artifact in N chunks: '1 ', '2 ', …",
    "number N": "N artifacts whose texts are 1 … N",
    "hold NAME": "working until released, then as echo",
    "ticks NAME N": "N chunks at once, N more when released",
    "release NAME": "releases, then as echo",
    "late NAME": "an artifact when released, even if it was cancelled meanwhile",
    "ask": "input-required; the next message is answered as echo, unless its first word is 'ask' too",
    "login": "auth-required; the next message is answered as echo",
    "outside NAME": "auth-required while it goes on; when released, as echo",
    "reject": "rejected",
    "fail": "an exception whose text is 'secret-of-the-agent'",
    "broken": "an artifact without parts",
    "stamp": "a status at noon in a time zone two hours ahead of UTC",
    "bytes": "a file of the two bytes fb ff",
    "say": "a message and no task, where that is possible",
}


class ConformanceAgent(Agent):
    """Runs the command in the message."""

    name = "obliging"
    input_modes = output_modes = ("text/plain", "application/json", "application/*", "image/png")
    skills = [AgentSkill(id="oblige", name="Oblige", description="Runs the command in the message", tags=["test"])]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._gates: dict[str, threading.Event] = {}

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        command, *arguments = _text(message).split()
        if command in ("say", "fail"):
            # These commands answer without a task; reading the history would create one.
            return getattr(self, f"do_{command}")(context)
        if len(context.history) > 1 and command != "ask":
            return self.do_echo(context)
        return getattr(self, f"do_{command}")(context, *arguments)

    def _gate(self, name: str) -> threading.Event:
        return self._gates.setdefault(name, threading.Event())

    def _wait(self, name: str, context: RequestContext | None) -> None:
        """Wait for the gate; with a context, at most for the run's time limit."""
        gate = self._gate(name)
        for _ in range(int(_TIMEOUT / 0.01)):
            if gate.wait(0.01):
                return
            if context is not None:
                context.check_cancelled()
        raise TimeoutError(name)

    def do_echo(self, context: RequestContext, *words: str) -> Artifact:
        parts = context.message.parts
        return Artifact(name="echo", parts=parts[1:] or parts)

    def do_report(self, context: RequestContext) -> dict[str, Any]:
        return {
            "metadata": dict(context.metadata),
            "messageMetadata": dict(context.message.metadata),
            "extensions": list(context.extensions),
            "references": list(context.message.reference_task_ids),
            "modes": list(context.accepted_output_modes),
            "tenant": context.tenant,
        }

    def do_count(self, context: RequestContext, number: str) -> Iterator[str]:
        for place in range(int(number)):
            yield f"{place + 1} "

    def do_number(self, context: RequestContext, number: str) -> None:
        for place in range(int(number)):
            context.emit(TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart(f"{place + 1}"),))))

    def do_hold(self, context: RequestContext, name: str) -> Artifact:
        self._wait(name, context)
        return self.do_echo(context)

    def do_ticks(self, context: RequestContext, name: str, number: str) -> Iterator[str]:
        for place in range(int(number)):
            yield f"{place + 1} "
        self._wait(name, context)
        for place in range(int(number)):
            yield f"{int(number) + place + 1} "

    def do_release(self, context: RequestContext, name: str) -> Artifact:
        self._gate(name).set()
        return self.do_echo(context)

    def do_late(self, context: RequestContext, name: str) -> str:
        self._wait(name, None)
        return "late"

    def do_ask(self, context: RequestContext) -> InputRequired:
        return InputRequired("Which size?")

    def do_login(self, context: RequestContext) -> AuthRequired:
        return AuthRequired("Log in first")

    def do_outside(self, context: RequestContext, name: str) -> Artifact:
        status = TaskStatus(state=TaskState.AUTH_REQUIRED, message=context.agent_message("Log in first"))
        context.emit(TaskStatusUpdateEvent(status=status))
        self._wait(name, context)
        return self.do_echo(context)

    def do_reject(self, context: RequestContext) -> Rejected:
        return Rejected("not my job")

    def do_fail(self, context: RequestContext) -> None:
        raise ValueError("secret-of-the-agent")

    def do_broken(self, context: RequestContext) -> Artifact:
        return Artifact(parts=())

    def do_stamp(self, context: RequestContext) -> None:
        context.emit(
            TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.COMPLETED, timestamp=NOON_IN_OSLO)),
        )

    def do_bytes(self, context: RequestContext) -> FilePart:
        return FilePart(raw=b"\xfb\xff", filename="two", media_type="application/octet-stream")

    def do_say(self, context: RequestContext) -> Message:
        return context.agent_message("no task was needed")


def _text(message: Message) -> str:
    first = message.parts[0]
    return first.text if isinstance(first, TextPart) else ""
