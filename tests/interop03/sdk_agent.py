"""An agent on the official SDK of protocol 0.3: ``python -m tests.interop03.sdk_agent PORT``.

The first word of the message selects a command. JSON-RPC is served at ``/`` and HTTP+JSON at ``/rest``. ``/plain/`` is the same
agent with a card that does not announce streaming.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, DataPart, Part, TextPart
from a2a.utils import new_agent_text_message, new_task
from starlette.applications import Starlette
from starlette.routing import Mount


def text(words: str) -> Part:
    return Part(root=TextPart(text=words))


class CommandAgent(AgentExecutor):
    """Echoes, counts (also slowly), asks, ticks, waits, answers with a message, or fails."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        command, _, argument = context.get_user_input().partition(" ")
        if command == "message":
            await event_queue.enqueue_event(new_agent_text_message("no task was needed"))
            return
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        match command:
            case "count" | "slowly":
                for number in range(1, int(argument) + 1):
                    await asyncio.sleep(0.05 if command == "slowly" else 0)
                    await updater.add_artifact(
                        [text(f"{number} ")],
                        artifact_id="numbers",
                        append=number > 1,
                        last_chunk=number == int(argument),
                    )
            case "ask":
                await updater.requires_input(updater.new_agent_message([text("Which size?")]), final=True)
                return
            case "tick":
                for _ in range(600):
                    await updater.start_work()
                    await asyncio.sleep(0.1)
            case "wait":
                await asyncio.sleep(60)
            case "fail":
                await updater.failed(updater.new_agent_message([text("no luck")]))
                return
            case "parts":
                await updater.add_artifact([*context.message.parts, Part(root=DataPart(data={"seen": True}))])
            case _:
                await updater.add_artifact([text(context.get_user_input())], name="echo", last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def make_app(url: str, *, streaming: bool) -> Starlette:
    card = AgentCard(
        name="official",
        description="An agent on the official SDK",
        url=url,
        preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(transport="JSONRPC", url=url),
            AgentInterface(transport="HTTP+JSON", url=f"{url}rest"),
        ],
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=streaming, push_notifications=True),
        supports_authenticated_extended_card=True,
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="obey", name="Obey", description="Runs the command in the message", tags=["test"])],
    )
    extended = card.model_copy(update={"description": "For authenticated callers"})
    handler = DefaultRequestHandler(
        agent_executor=CommandAgent(),
        task_store=InMemoryTaskStore(),
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    arguments = {"agent_card": card, "http_handler": handler, "extended_agent_card": extended}
    rest = A2ARESTFastAPIApplication(**arguments).build()
    rpc = A2AStarletteApplication(**arguments).build()
    return Starlette(routes=[Mount("/rest", rest), Mount("/", rpc)])


if __name__ == "__main__":
    port = int(sys.argv[1])
    base = f"http://127.0.0.1:{port}"
    plain = Mount("/plain", make_app(f"{base}/plain/", streaming=False))
    app = Starlette(routes=[plain, Mount("/", make_app(f"{base}/", streaming=True))])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
