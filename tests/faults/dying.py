"""An agent whose process is killed at a chosen point: ``gunicorn tests.faults.dying:app``.

The file ``DYING_PLAN`` contains a `Moment`. The first process that reaches it removes the file and sends itself SIGKILL.
"N" emits N numbers; "N hold" then blocks until it is cancelled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from a2a_sync import A2AApp, Agent, Limits, Message, RequestContext
from a2a_sync.lifecycle import LogEvent
from a2a_sync.stores import open_store
from a2a_sync.stores.base import Owner, RunToken


class Moment(NamedTuple):
    """A point before or after a call of the store: ``start_run``, ``append`` (of the entry `number`), ``end``, ``leave``."""

    call: str
    when: str
    number: int = 0

    def write(self, plan: Path) -> None:
        """Schedule the next kill at this point."""
        draft = plan.with_suffix(".draft")
        draft.write_text(f"{self.call} {self.when} {self.number}")
        draft.rename(plan)


class Killer:
    """Kills the process at the scheduled point of the calls of `store`."""

    def __init__(self, store: Any, plan: Path) -> None:
        self._plan = plan
        # Without the queue each number is one append, so that its kill is exact.
        store.queues_chunks = os.environ.get("DYING_QUEUES", "") == "1"
        leave, start_run, append = store.workers.leave, store.start_run, store.append

        def appending(token: RunToken, events: Sequence[LogEvent], *, end: bool = False, **options: Any) -> Any:
            number = store.head(Owner(), token.task_id).version + 1
            return self._around("end" if end else "append", partial(append, token, events, end=end, **options), number)

        store.workers.leave = lambda: self._around("leave", leave)
        store.start_run = lambda *given, **options: self._around("start_run", partial(start_run, *given, **options))
        store.append = appending

    def _around(self, call: str, work: Callable[[], Any], number: int = 0) -> Any:
        self._die(call, "before", number)
        result = work()
        self._die(call, "after", number)
        return result

    def _die(self, call: str, when: str, number: int) -> None:
        try:
            planned = self._plan.read_text().split()
            if planned[:2] != [call, when] or int(planned[2]) not in (0, number):
                return
            self._plan.unlink()
        except OSError:
            return  # no kill is scheduled, or another process was faster
        os.kill(os.getpid(), signal.SIGKILL)


class Counter(Agent):
    name = "counter"
    description = "Emits numbers"

    def handle_message(self, message: Message, context: RequestContext) -> Iterator[str]:
        count, _, hold = message.text.partition(" ")
        for number in range(int(count)):
            yield f"{number} "
        if hold:
            context.sleep(60)


class RetryingCounter(Counter):
    name = "retrying"
    on_worker_lost = "retry"


def make_app(agent: Agent, *, job_queue: Any = None) -> A2AApp:
    store = open_store(os.environ["DYING_STORE"])
    Killer(store, Path(os.environ["DYING_PLAN"]))
    beat = float(os.environ.get("DYING_BEAT", "0.2"))
    limits = Limits(disconnect_check_interval=0.1, worker_heartbeat_interval=beat)
    return A2AApp(agent, store=store, job_queue=job_queue, limits=limits)


def app() -> A2AApp:
    """The tasks fail when their worker dies."""
    return make_app(Counter())


def retrying() -> A2AApp:
    """The tasks are retried when their worker dies."""
    return make_app(RetryingCounter())
