"""The echo agent on fasta2a, for what it can be compared in: ``uvicorn fasta:app``.

Environment: FILL (the number of finished tasks to store before serving), LOOPS (copies of the worker, each of which runs one task
at a time; one by default, as documented).
"""

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Part
from fasta2a.storage import InMemoryStorage


class Echo(Worker):
    async def run_task(self, params) -> None:
        task = await self.storage.load_task(params["id"])
        ids = task["id"], task["context_id"]
        await self.storage.update_task(ids[0], state="working")
        await self.publish_status(*ids, "working")
        kind, _, argument = params["message"]["parts"][0]["text"].partition(":")
        if kind == "sleep":
            await asyncio.sleep(float(argument))
        count = int(argument) if kind == "stream" else 1
        parts = []
        for number in range(count):
            parts.append(Part(text=f"chunk {number} of the answer "))
            piece = Artifact(artifact_id="answer", parts=parts[-1:])
            await self.publish_artifact(*ids, piece, append=number > 0, last_chunk=number == count - 1)
        answer = Artifact(artifact_id="answer", parts=parts)
        await self.storage.update_task(ids[0], state="completed", new_artifacts=[answer])

    async def cancel_task(self, params) -> None:
        """The benchmarks do not cancel."""

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return []


storage = InMemoryStorage()
broker = InMemoryBroker()
worker = Echo(storage=storage, broker=broker)


@asynccontextmanager
async def lifespan(app):
    for number in range(int(os.environ.get("FILL", "0"))):
        text = [Part(text=f"an earlier task, number {number}")]
        message = {"role": "ROLE_USER", "parts": text, "message_id": f"m-{number}"}
        task = await storage.submit_task(f"c-{number}", message)
        answer = Artifact(artifact_id="answer", parts=text)
        await storage.update_task(task["id"], state="completed", new_artifacts=[answer])
    async with app.task_manager, AsyncExitStack() as stack:
        for _ in range(int(os.environ.get("LOOPS", "1"))):
            await stack.enter_async_context(worker.run())
        yield


app = FastA2A(name="Echo", storage=storage, broker=broker, lifespan=lifespan)
