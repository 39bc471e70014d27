"""An agent on the official SDK: ``python -m tests.interop.sdk_agent PORT``.

It serves both protocol versions over both bindings at one URL. The first word of the message selects a command.
"""

from __future__ import annotations

import asyncio
import sys

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
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from starlette.applications import Starlette


class CommandAgent(AgentExecutor):
    """Echoes, counts (also slowly), asks, waits, answers with a message, sends parts back, or fails."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        command, _, argument = context.get_user_input().partition(" ")
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if command == "message":
            answer = Message(message_id="m-1", role=Role.ROLE_AGENT, parts=[Part(text="no task was needed")])
            await event_queue.enqueue_event(answer)
            return
        if context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            )
        await updater.start_work()
        match command:
            case "count" | "slowly":
                for number in range(1, int(argument) + 1):
                    await asyncio.sleep(0.05 if command == "slowly" else 0)
                    await updater.add_artifact(
                        [Part(text=f"{number} ")],
                        artifact_id="numbers",
                        append=number > 1,
                        last_chunk=number == int(argument),
                    )
            case "ask":
                await updater.requires_input(updater.new_agent_message([Part(text="Which size?")]))
                return
            case "wait":
                await asyncio.sleep(60)
            case "fail":
                await updater.failed(updater.new_agent_message([Part(text="no luck")]))
                return
            case "parts":
                await updater.add_artifact([*context.message.parts, Part(data=ParseDict({"seen": True}, Value()))])
            case _:
                await updater.add_artifact([Part(text=context.get_user_input())], name="echo", last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def make_app(url: str) -> Starlette:
    card = AgentCard(
        name="official",
        description="An agent on the official SDK",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="obey", name="Obey", description="Runs the command in the message", tags=["test"])],
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, protocol_version=version, url=url)
            for version in ("1.0", "0.3")
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
    )
    extended = AgentCard()
    extended.CopyFrom(card)
    extended.description = "For authenticated callers"
    webhooks = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=CommandAgent(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=webhooks,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), webhooks),
        extended_agent_card=extended,
    )
    rpc = create_jsonrpc_routes(request_handler=handler, rpc_url="/", enable_v0_3_compat=True)
    rest = create_rest_routes(handler, enable_v0_3_compat=True)
    return Starlette(routes=[*create_agent_card_routes(agent_card=card), *rpc, *rest])


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(make_app(f"http://127.0.0.1:{port}/"), host="127.0.0.1", port=port, log_level="warning")
