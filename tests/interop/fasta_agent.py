"""An agent on fasta2a, for our client: ``python -m tests.interop.fasta_agent PORT``.

The first word of the message selects a command, as far as fasta2a supports it.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from anyio.abc import TaskGroup
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, Skill, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage


class CommandAgent(Worker[list[Message]]):
    """Echoes, counts, asks, waits, or fails."""

    runs: TaskGroup
    scopes: dict[str, anyio.CancelScope]

    async def _loop(self) -> None:
        # The shipped worker runs operations one at a time, so that a cancel would wait for the run that it cancels.
        self.scopes = {}
        async with anyio.create_task_group() as self.runs:
            async for operation in self.broker.receive_task_operations():
                self.runs.start_soon(self._handle_task_operation, operation)

    async def run_task(self, params: TaskSendParams) -> None:
        task_id, context_id, message = params["id"], params["context_id"], params["message"]
        text = " ".join(part.get("text", "") for part in message["parts"])
        command, _, argument = text.partition(" ")
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        artifacts: list[Artifact] = []
        match command:
            case "count":
                numbers = range(1, int(argument) + 1)
                for number in numbers:
                    piece = Artifact(artifact_id="numbers", parts=[Part(text=f"{number} ")])
                    last = number == numbers[-1]
                    await self.publish_artifact(task_id, context_id, piece, append=number > 1, last_chunk=last)
                artifacts = [Artifact(artifact_id="numbers", parts=[Part(text=f"{number} ") for number in numbers])]
            case "ask":
                question = Message(role="agent", parts=[Part(text="Which size?")], message_id=str(uuid.uuid4()))
                await self.storage.update_task(task_id, state="input-required", new_messages=[question])
                return
            case "wait":
                with anyio.CancelScope() as self.scopes[task_id]:
                    await anyio.sleep(60)
                return
            case "fail":
                raise RuntimeError("no luck")
            case "parts":
                artifacts = [Artifact(artifact_id="copy", parts=[*message["parts"], Part(data={"seen": True})])]
            case _:
                artifacts = [Artifact(artifact_id="echo", parts=[Part(text=text)])]
        if command != "count":
            for artifact in artifacts:
                await self.publish_artifact(task_id, context_id, artifact)
        await self.storage.update_task(task_id, state="completed", new_artifacts=artifacts)

    async def cancel_task(self, params: TaskIdParams) -> None:
        scope = self.scopes.pop(params["id"], None)
        if scope is not None:
            await self.storage.update_task(params["id"], state="canceled")
            scope.cancel()

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return []


def make_app(url: str) -> FastA2A:
    storage: InMemoryStorage[list[Message]] = InMemoryStorage()
    broker = InMemoryBroker()
    worker = CommandAgent(broker=broker, storage=storage)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, worker.run():
            yield

    skill = Skill(
        id="obey",
        name="Obey",
        description="Runs the command in the message",
        tags=["test"],
        input_modes=["text/plain"],
        output_modes=["text/plain"],
    )
    return FastA2A(storage=storage, broker=broker, name="fasta", url=url, skills=[skill], lifespan=lifespan)


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(make_app(f"http://127.0.0.1:{port}/"), host="127.0.0.1", port=port, log_level="warning")
