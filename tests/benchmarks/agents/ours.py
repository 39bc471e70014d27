"""The echo agent on this library: ``gunicorn ours:app``.

Environment: STORE (a store URL; in memory by default), FILL (the number of finished tasks to store before serving), RUNS
(the limit of concurrent runs and streams), MAX_TASKS (those that the store keeps), PUSH (send push notifications, to any URL), BROKER (a URL of Celery's broker: ``celery -A ours:celery worker`` executes the runs).
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace

from a2a_sync import A2AApp, Agent, AgentSkill, InputRequired, Limits, MemoryStore, Message, RequestContext
from a2a_sync.engine.run import status_event
from a2a_sync.operations import RunRequest
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.push.options import PushOptions
from a2a_sync.stores import SQLiteStore, open_store
from a2a_sync.stores.base import Owner, TaskStore
from a2a_sync.types import Artifact, Role, TaskArtifactUpdateEvent, TaskState, TextPart, new_id


class Echo(Agent):
    """Echoes text; ``stream:N``, ``ticks:N``, ``sleep:SECONDS`` and ``turn …`` select other behaviour."""

    name = "Echo"
    skills = [AgentSkill(id="echo", name="Echo", description="Echoes text", tags=["echo"])]

    def handle_message(self, message: Message, context: RequestContext) -> object:
        kind, _, argument = message.text.partition(":")
        if kind == "stream":
            return self.chunks(int(argument))
        if kind == "ticks":
            return self.ticks(int(argument), context)
        if kind == "sleep":
            context.sleep(float(argument))
        if kind == "turn":
            return InputRequired("go on")
        return message.text

    def chunks(self, count: int) -> Iterator[str]:
        for number in range(count):
            yield f"chunk {number} of the answer "

    def ticks(self, count: int, context: RequestContext) -> Iterator[str]:
        """The times of creation, on the machine's common clock."""
        for _ in range(count):
            context.sleep(0.02)
            yield f"{time.monotonic()} "


def fill(store: TaskStore, count: int) -> None:
    """Store `count` finished tasks as short runs do, each in one step."""
    for number in range(count):
        text = TextPart(f"an earlier task, number {number}")
        message = Message(role=Role.USER, parts=(text,), task_id=new_id(), context_id=new_id())
        request = RunRequest(message=message)
        begin = [status_event(request, TaskState.SUBMITTED), status_event(request, TaskState.WORKING)]
        artifact = TaskArtifactUpdateEvent(
            task_id=message.task_id,
            context_id=message.context_id,
            artifact=Artifact(parts=(text,)),
            last_chunk=True,
        )
        answer = replace(message, role=Role.AGENT, message_id=new_id())
        events = [message, *begin, artifact, answer, status_event(request, TaskState.COMPLETED)]
        store.start_run(Owner(), request, events, create=True)


runs = int(os.environ.get("RUNS", "64"))
url, most = os.environ.get("STORE", ""), int(os.environ.get("MAX_TASKS", "1000000"))
if url.startswith("sqlite:///"):
    store: TaskStore = SQLiteStore(url.removeprefix("sqlite:///"), max_tasks=most)
else:
    store = open_store(url) if url else MemoryStore(max_tasks=most)
fill(store, int(os.environ.get("FILL", "0")))
limits = Limits(max_concurrent_runs=runs, max_open_streams=max(runs, 1000))
push = PushOptions(url_guard=URLGuard(allow=["127.0.0.1"])) if os.environ.get("PUSH") else False
job_queue = None
if broker := os.environ.get("BROKER"):
    from celery import Celery

    from a2a_sync.integrations.celery import CeleryQueue

    celery = Celery("agents", broker=broker)
    celery.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)
    job_queue = CeleryQueue(celery)
app = A2AApp(Echo(), store=store, limits=limits, push=push, job_queue=job_queue)
