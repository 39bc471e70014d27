from __future__ import annotations

import asyncio
import threading
from typing import Any

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext, TaskState
from a2a_sync.integrations.remote import RemoteCall
from tests.engine import eventually

TIMEOUT = 30.0


class Gate:
    """A client whose streams are returned late."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.open = threading.Event()

    def stream(self, *arguments: Any, **options: Any) -> Any:
        stream = self.client.stream(*arguments, **options)
        self.open.wait(TIMEOUT)
        return stream

    def cancel_task(self, *arguments: Any, **options: Any) -> Any:
        return self.client.cancel_task(*arguments, **options)


def test_a_call_that_is_abandoned_before_its_first_event_cancels_the_task() -> None:
    works = threading.Event()
    agent = Agent("clerk")

    @agent.message
    def answer(message: Message, context: RequestContext) -> str:
        works.set()
        context.sleep(TIMEOUT)
        return "late"

    with A2AApp(agent) as app, Client(app) as client:
        gate: Any = Gate(client)

        async def abandon() -> None:
            call = asyncio.create_task(RemoteCall(gate, "order").run())
            assert await asyncio.to_thread(works.wait, TIMEOUT)
            call.cancel()
            await asyncio.wait([call])
            gate.open.set()

        asyncio.run(abandon())
        (task,) = client.list_tasks().tasks
        eventually(lambda: client.get_task(task.id).state is TaskState.CANCELED)
