"""The suite's agents on the official SDK: ``python -m tests.conformance.sdk_agent PORT``, each at the path of its name.

They implement the commands of `tests.conformance.agent` as far as the SDK supports them, with its default settings.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.conformance.agent import NOON_IN_OSLO
from tests.conformance.system import EXTENSION, NEEDED, new_name

MODES = ["text/plain", "application/json", "application/octet-stream", "application/pdf", "image/png"]


class ConformanceAgent(AgentExecutor):
    """Runs the command in the message."""

    def __init__(self, *, direct: bool = False) -> None:
        self._direct = direct
        self._gates: dict[str, asyncio.Event] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        command, *arguments = context.message.parts[0].text.split() or [""]
        if self._direct and command in ("say", "fail"):
            if command == "fail":
                raise ValueError("secret-of-the-agent")
            await event_queue.enqueue_event(
                Message(
                    message_id=new_name(),
                    context_id=context.context_id,
                    role=Role.ROLE_AGENT,
                    parts=[Part(text="no task was needed")],
                )
            )
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            task = Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            await event_queue.enqueue_event(task)
        elif command != "ask":
            command, arguments = "echo", []
        await updater.start_work()
        await getattr(self, f"do_{command}", self.do_echo)(context, event_queue, updater, *arguments)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def do_echo(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, *_: str) -> None:
        parts = list(context.message.parts)
        await updater.add_artifact(parts[1:] or parts, name="echo", last_chunk=True)
        await updater.complete()

    async def do_report(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        message, configuration = context.message, context.configuration
        report = {
            "metadata": dict(context.metadata),
            "messageMetadata": MessageToDict(message.metadata),
            "extensions": sorted(context.requested_extensions),
            "references": list(message.reference_task_ids),
            "modes": list(configuration.accepted_output_modes) if configuration else [],
            "tenant": context.tenant,
        }
        await updater.add_artifact([Part(data=ParseDict(report, Value()))], last_chunk=True)
        await updater.complete()

    async def _chunks(self, updater: TaskUpdater, first: int, last: int, end: int) -> None:
        for number in range(first, last + 1):
            await updater.add_artifact(
                [Part(text=f"{number} ")], artifact_id="numbers", append=number > 1, last_chunk=number == end
            )

    async def do_count(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, number: str) -> None:
        await self._chunks(updater, 1, int(number), int(number))
        await updater.complete()

    async def do_number(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, number: str) -> None:
        for place in range(int(number)):
            await updater.add_artifact([Part(text=f"{place + 1}")])
        await updater.complete()

    async def do_hold(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, name: str) -> None:
        await self._gate(name).wait()
        await self.do_echo(context, queue, updater)

    async def do_ticks(
        self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, name: str, number: str
    ) -> None:
        await self._chunks(updater, 1, int(number), 2 * int(number))
        await self._gate(name).wait()
        await self._chunks(updater, int(number) + 1, 2 * int(number), 2 * int(number))
        await updater.complete()

    async def do_release(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, name: str) -> None:
        self._gate(name).set()
        await self.do_echo(context, queue, updater)

    async def do_late(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, name: str) -> None:
        try:
            await self._gate(name).wait()
        except asyncio.CancelledError:
            await self._gate(name).wait()
        await updater.add_artifact([Part(text="late")])
        await updater.complete()

    async def do_ask(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        await updater.requires_input(updater.new_agent_message([Part(text="Which size?")]))

    async def do_login(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        await updater.requires_auth(updater.new_agent_message([Part(text="Log in first")]))

    async def do_outside(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater, name: str) -> None:
        await self.do_login(context, queue, updater)
        await self.do_hold(context, queue, updater, name)

    async def do_reject(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        await updater.reject(updater.new_agent_message([Part(text="not my job")]))

    async def do_fail(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        raise ValueError("secret-of-the-agent")

    async def do_broken(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        await updater.add_artifact([Part()])
        await updater.complete()

    async def do_stamp(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        moment = Timestamp()
        moment.FromDatetime(NOON_IN_OSLO)
        status = TaskStatus(state=TaskState.TASK_STATE_COMPLETED, timestamp=moment)
        await queue.enqueue_event(
            TaskStatusUpdateEvent(task_id=context.task_id, context_id=context.context_id, status=status)
        )

    async def do_bytes(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        part = Part(raw=b"\xfb\xff", filename="two", media_type="application/octet-stream")
        await updater.add_artifact([part], last_chunk=True)
        await updater.complete()

    async def do_say(self, context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
        await updater.complete(updater.new_agent_message([Part(text="no task was needed")]))


_ALL = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"))


def _kind(
    url: str,
    *,
    interfaces: tuple[tuple[str, str], ...] = _ALL,
    direct: bool = False,
    push: bool = False,
    streaming: bool = True,
    extended: bool = False,
    extension: AgentExtension | None = None,
) -> list[Any]:
    """The routes of one agent."""
    card = AgentCard(
        name="obliging",
        description="Runs the command in the message",
        version="1.0.0",
        capabilities=AgentCapabilities(
            streaming=streaming,
            push_notifications=push,
            extended_agent_card=extended,
            extensions=[] if extension is None else [extension],
        ),
        default_input_modes=MODES,
        default_output_modes=MODES,
        skills=[AgentSkill(id="oblige", name="Oblige", description="Runs the command in the message", tags=["test"])],
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, protocol_version=version, url=url)
            for binding, version in interfaces
        ],
    )
    configs = InMemoryPushNotificationConfigStore() if push else None
    handler = DefaultRequestHandler(
        agent_executor=ConformanceAgent(direct=direct),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=configs,
        push_sender=None if configs is None else BasePushNotificationSender(httpx.AsyncClient(), configs),
        validate_input_modes=True,
    )
    old = any(version == "0.3" for _, version in interfaces)
    return [
        *create_agent_card_routes(agent_card=card),
        *create_jsonrpc_routes(request_handler=handler, rpc_url="/", enable_v0_3_compat=old),
        *create_rest_routes(handler, enable_v0_3_compat=old),
    ]


#: The available agents; see `tests.conformance.system.KINDS`.
KINDS: dict[str, Callable[[str], list[Any]]] = {
    "plain": lambda url: _kind(url, extension=AgentExtension(uri=EXTENSION)),
    "direct": lambda url: _kind(url, direct=True),
    "modern": lambda url: _kind(url, interfaces=_ALL[:2]),
    "restful": lambda url: _kind(url, interfaces=_ALL[1::-1]),
    "old": lambda url: _kind(url, interfaces=_ALL[2:]),
    "mute": lambda url: _kind(url, streaming=False),
    "push": lambda url: _kind(url, push=True),
    "near": lambda url: _kind(url, push=True),
    "promised": lambda url: _kind(url, extended=True),
    "demanding": lambda url: _kind(url, extension=AgentExtension(uri=NEEDED, required=True)),
}


def make_app(url: str) -> Starlette:
    """The application with all agents."""
    return Starlette(routes=[Mount(f"/{kind}", routes=make(f"{url}/{kind}")) for kind, make in KINDS.items()])


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(make_app(f"http://127.0.0.1:{port}"), host="127.0.0.1", port=port, log_level="warning")
