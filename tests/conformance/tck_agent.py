"""The agent for the official kits: ``gunicorn tests.conformance.tck_agent:app``.

The scenario is selected by the prefix of the message's id; neither this agent nor the library detects a kit. `KIT_AGENT` selects
one of the apps below, `KIT_STORE` is the URL of the store, `KIT_OTHERWISE` the scenario of other messages, `KIT_SECONDS` the time
that the kit waits for a stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from a2a_sync import (
    A2AApp,
    Agent,
    AgentCard,
    AgentSkill,
    Artifact,
    DataPart,
    Extension,
    FilePart,
    InputRequired,
    Message,
    Part,
    PushOptions,
    Rejected,
    RequestContext,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    URLGuard,
)
from a2a_sync.auth import BearerAuth
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.server.extended import CardContext

FILE = FilePart(raw=b"tck", filename="output.txt", media_type="text/plain")
LINK = FilePart(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain")
DATA = DataPart({"key": "value", "count": 42})

Answer = Callable[[RequestContext], Any]


def says(words: str, context: RequestContext) -> Iterator[TaskStatusUpdateEvent]:
    """Complete the task with a message."""
    yield TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.COMPLETED, message=context.agent_message(words)))


def gives(part: Part, context: RequestContext) -> Artifact:
    """Complete the task with an artifact of one part."""
    return Artifact(parts=(part,))


def streams(parts: tuple[Part, ...], context: RequestContext) -> Iterator[Any]:
    """Send one artifact in as many chunks as there are parts, and complete the task."""
    yield TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.WORKING))
    for number, part in enumerate(parts, 1):
        yield TaskArtifactUpdateEvent(
            artifact=Artifact(artifact_id="output", parts=(part,)),
            append=number > 1,
            last_chunk=number == len(parts),
        )


def works(context: RequestContext) -> Iterator[Any]:
    """Work for twice as long as the kit waits for a stream, so that it can subscribe."""
    yield TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.WORKING))
    context.sleep(2 * float(os.environ.get("KIT_SECONDS", "2")))


def asks(context: RequestContext) -> InputRequired:
    return InputRequired("What next?")


#: The scenarios by prefixes of the message's id; the longest prefix applies.
SCENARIOS: dict[str, Answer] = {
    "tck-complete-task": partial(says, "Hello from TCK"),
    "tck-artifact-text": partial(gives, TextPart("Generated text content")),
    "tck-artifact-file": partial(gives, FILE),
    "tck-artifact-file-url": partial(gives, LINK),
    "tck-artifact-data": partial(gives, DATA),
    "tck-message-response": lambda context: context.agent_message("Direct message response"),
    "tck-input-required": asks,
    "tck-reject-task": lambda context: Rejected("rejected"),
    "tck-stream-001": partial(streams, (TextPart("Stream hello from TCK"),)),
    "tck-stream-002": lambda context: None,
    "tck-stream-003": partial(streams, (TextPart("Stream task lifecycle"),)),
    "tck-stream-ordering-001": partial(streams, (TextPart("Ordered output"),)),
    "tck-stream-artifact-text": partial(streams, (TextPart("Streamed text content"),)),
    "tck-stream-artifact-file": partial(streams, (FILE,)),
    "tck-stream-artifact-chunked": partial(streams, (TextPart("chunk-1 "), TextPart("chunk-2"))),
    "test-resubscribe-message-id": works,
}
#: The scenario of other messages: the kit of 0.3 adds a message to each of its tasks, or cancels it.
OTHERWISE = os.environ.get("KIT_OTHERWISE", "tck-complete-task")


class KitAgent(Agent):
    """Implements the scenarios of the official kits."""

    name = "a2a_sync under test"
    skills = [AgentSkill(id="tck", name="Conformance", description="Follows the kit's scenarios", tags=["tck"])]
    direct = True

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        known = [beginning for beginning in SCENARIOS if message.message_id.startswith(beginning)]
        return SCENARIOS[max(known, key=len, default=OTHERWISE)](context)


#: The kit's listener for notifications.
HERE = PushOptions(url_guard=URLGuard(allow=("localhost", "127.0.0.1", "::1")))
AGENT = KitAgent()
EXTENDED = replace(AGENT.describe(), description="For callers that are known")


def extended_card(asked: CardContext) -> AgentCard:
    if asked.user is None:
        raise UnauthenticatedError("Authentication is needed for the extended card")
    return EXTENDED


#: Options of an app; the kit tests features that the card declares, and the refusal of others.
APPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": {
        "push": HERE,
        "extended_card": extended_card,
        "extensions": [Extension("https://example.com/ext/v1", description="Changes nothing", params={"level": 1})],
    },
    "demanding": {"extensions": [Extension("urn:a2a:tck:required-extension", required=True)]},
    "secured": {"auth": BearerAuth({"a-token-that-the-kit-does-not-know": "caller"})},
}

app = A2AApp(AGENT, store=os.environ.get("KIT_STORE"), **APPS[os.environ.get("KIT_AGENT", "plain")])
if os.environ.get("KIT_GRPC"):
    from a2a_sync.grpc import GRPCServer

    app.register(GRPCServer(app, os.environ["KIT_GRPC"], url=os.environ.get("KIT_GRPC_URL")))
    app.start()  # the worker imports this module after its fork
