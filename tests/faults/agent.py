"""The agent of the fault tests: ``gunicorn tests.faults.agent:app``.

Each run appends a line to the file ``RUNS``, so that tests can count runs across killed processes. "count N" emits N numbers
in chunks, "slowly N" with pauses, "hold N" blocks after N numbers, and "ask" asks a question.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

from a2a_sync import A2AApp, Agent, InputRequired, Limits, Message, RequestContext
from a2a_sync.stores import PostgresStore, SQLiteStore


class FaultAgent(Agent):
    name = "faults"
    description = "Counts"

    def __init__(self, runs: str = "") -> None:
        super().__init__()
        self._runs = runs

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        if self._runs:
            with open(self._runs, "a") as file:
                file.write(f"{message.text}\n")
        if context.task.state.interrupted or len(context.history) > 1:
            return f"{message.text}!"
        command, _, number = message.text.partition(" ")
        if command == "ask":
            return self._ask(int(number or 0))
        return self._count(command, int(number), context)

    def _count(self, command: str, count: int, context: RequestContext) -> Iterator[str]:
        for number in range(count):
            yield f"{number} "
            if command == "slowly":
                context.sleep(0.02)
        if command == "hold":
            context.sleep(60)

    def _ask(self, count: int) -> Generator[str, None, InputRequired]:
        for number in range(count):
            yield f"{number} "
        return InputRequired("And then?")


#: Short heartbeats for tests that kill workers; longer ones for crowds, which leave workers little processor time.
_BEAT = float(os.environ.get("FAULT_BEAT", "0.5"))


def make_app(runs: str = "", *, store: Any = None, job_queue: Any = None, **limits: Any) -> A2AApp:
    return A2AApp(
        FaultAgent(runs),
        store=store,
        job_queue=job_queue,
        limits=Limits(**{"disconnect_check_interval": 0.1, "worker_heartbeat_interval": _BEAT, **limits}),
    )


def _store() -> Any:
    address, most = os.environ.get("FAULT_STORE"), os.environ.get("FAULT_TASKS")
    if not (address and most):
        return address
    if address.startswith("sqlite:"):
        return SQLiteStore(address.removeprefix("sqlite:///"), max_tasks=int(most))
    return PostgresStore(address, max_tasks=int(most))


app = make_app(os.environ.get("FAULT_RUNS", ""), store=_store())
