"""The echo agent on fasta2a, for the rows about streams: ``uvicorn fasta:app``."""

from contextlib import asynccontextmanager

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
        count = int(params["message"]["parts"][0]["text"].partition(":")[2])
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
    async with app.task_manager, worker.run():
        yield


app = FastA2A(name="Echo", storage=storage, broker=broker, lifespan=lifespan)
