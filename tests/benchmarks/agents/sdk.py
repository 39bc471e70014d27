"""The echo agent on a2a-sdk: ``uvicorn sdk:app``.

Environment: DATABASE (a file for its SQLite store; in memory by default), CLUSTER (a database URL for its cluster mode), FILL (the number of finished tasks to store before
serving), PORT (for the card).
"""

import asyncio
import os
import time
import uuid
from contextlib import asynccontextmanager
from typing import Any

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette


class Echo(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        kind, _, argument = context.get_user_input().partition(":")
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=submitted,
                    history=[context.message],
                )
            )
        await updater.start_work()
        if kind == "turn":
            await updater.requires_input(updater.new_agent_message([Part(text="go on")]))
            return
        if kind == "stream":
            await self.stream(updater, int(argument))
        elif kind == "ticks":
            await self.ticks(updater, int(argument))
        else:
            if kind == "sleep":
                await asyncio.sleep(float(argument))
            await updater.add_artifact([Part(text=context.get_user_input())], last_chunk=True)
        await updater.complete()

    async def stream(self, updater: TaskUpdater, count: int) -> None:
        for number in range(count):
            await updater.add_artifact(
                [Part(text=f"chunk {number} of the answer ")],
                artifact_id="answer",
                append=number > 0,
                last_chunk=number == count - 1,
            )

    async def ticks(self, updater: TaskUpdater, count: int) -> None:
        """The times of creation, on the machine's common clock."""
        for number in range(count):
            await asyncio.sleep(0.02)
            parts = [Part(text=f"{time.monotonic()} ")]
            await updater.add_artifact(parts, artifact_id="ticks", append=number > 0, last_chunk=number == count - 1)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def finished(number: int) -> Task:
    text = [Part(text=f"an earlier task, number {number}")]
    return Task(
        id=str(uuid.uuid4()),
        context_id=str(uuid.uuid4()),
        status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED),
        artifacts=[Artifact(artifact_id=str(uuid.uuid4()), parts=text)],
        history=[Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=text)],
    )


def database_store(path: str) -> DatabaseTaskStore:
    from sqlalchemy import event
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")

    @event.listens_for(engine.sync_engine, "connect")
    def as_fast_as_ours(connection, _) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    return DatabaseTaskStore(engine)


def cluster(url: str) -> dict[str, Any]:
    """Arguments of the handler for several processes over one database."""
    from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url)
    return {"task_store": VersionedDatabaseTaskStore(engine), "event_stream": DatabaseTaskEventStream(engine)}


@asynccontextmanager
async def lifespan(_):
    if not isinstance(store, InMemoryTaskStore):
        for part in stores.values():
            await part.initialize()
    for number in range(int(os.environ.get("FILL", "0"))):
        task = finished(number)
        task.status.timestamp.GetCurrentTime()
        await store.save(task, ServerCallContext())
    yield


card = AgentCard(
    name="Echo",
    description="Echoes text",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="echo", name="Echo", description="Echoes text", tags=["echo"])],
    supported_interfaces=[
        AgentInterface(
            protocol_binding="JSONRPC",
            protocol_version="1.0",
            url=f"http://127.0.0.1:{os.environ.get('PORT', '8000')}/",
        )
    ],
)
if "CLUSTER" in os.environ:
    stores = cluster(os.environ["CLUSTER"])
elif "DATABASE" in os.environ:
    stores = {"task_store": database_store(os.environ["DATABASE"])}
else:
    stores = {"task_store": InMemoryTaskStore()}
store = stores["task_store"]
handler = DefaultRequestHandler(agent_executor=Echo(), agent_card=card, **stores)
app = Starlette(
    lifespan=lifespan,
    routes=[
        *create_agent_card_routes(agent_card=card),
        *create_jsonrpc_routes(request_handler=handler, rpc_url="/"),
    ],
)
