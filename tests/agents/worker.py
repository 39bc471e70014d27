"""An agent that reports its process and blocks it in several ways: ``gunicorn tests.agents.worker:app``.

``flask_app`` is the same agent in a Flask application, with a second one beside it. Tasks are stored in `WORKER_STORE`; `WORKER_BEAT` is
`Limits.worker_heartbeat_interval`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

# Imported before gevent can patch, as a user's program might.
import urllib3.util.ssl_

from a2a_sync import A2AApp, Agent, InputRequired, Limits, Message, RequestContext

#: The process that imported this module.
LOADED_IN = os.getpid()


class Worker(Agent):
    name = "worker"
    description = "Reports its process"

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        command, _, argument = message.text.partition(" ")
        return getattr(self, f"do_{command}")(argument, context)

    def do_info(self, argument: str, context: RequestContext) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "loaded_in": LOADED_IN,
            "cores": sorted(os.sched_getaffinity(0)),
            "streams": app.open_streams,
            "frozen": gc.get_freeze_count(),
            "traversed": len(gc.get_objects()),
            "greenlets": sum(type(one).__name__ == "Greenlet" for one in gc.get_objects()),
        }

    def do_collect(self, argument: str, context: RequestContext) -> dict[str, Any]:
        """Report how many objects a garbage collection finds, and leave later ones to the next call."""
        gc.disable()
        return {"collected": gc.collect()}

    def do_ask(self, argument: str, context: RequestContext) -> InputRequired:
        context.state["asked"] = True
        return InputRequired("And then?")

    def do_wait(self, argument: str, context: RequestContext) -> str:
        """Report the process and wait for a cancel. The second attempt does not wait."""
        context.update(f"waiting in {os.getpid()}")
        if context.attempt == 1:
            context.sleep(float(argument or 60))
        return f"attempt {context.attempt}"

    def do_hang(self, argument: str, context: RequestContext) -> None:
        """Wait without checking for a cancel."""
        context.update(f"hanging in {os.getpid()}")
        threading.Event().wait(60)

    def do_burn(self, argument: str, context: RequestContext) -> str:
        """Compute for some seconds without switching to another greenlet."""
        context.update(f"burning in {os.getpid()}")
        end = time.monotonic() + float(argument)
        while time.monotonic() < end:
            pass
        return "burnt"

    def do_tls(self, argument: str, context: RequestContext) -> str:
        return type(urllib3.util.ssl_.create_urllib3_context()).__name__

    async def do_count(self, argument: str, context: RequestContext) -> AsyncIterator[str]:
        for number in range(int(argument)):
            await asyncio.sleep(0.001)
            yield await asyncio.to_thread(lambda number=number: f"{number} ")

    async def do_await(self, argument: str, context: RequestContext) -> str:
        context.update(f"awaiting in {os.getpid()}")
        await asyncio.sleep(60)
        return "awaited"


class Retrying(Worker):
    """The same agent with retries after the loss of a worker."""

    on_worker_lost = "retry"


class OnThreads(Worker):
    """Runs its own event loop in a synchronous handler."""

    native_thread = True

    def do_loop(self, argument: str, context: RequestContext) -> str:
        async def work() -> str:
            for number in range(5):
                await asyncio.sleep(0.01)
                context.update(f"step {number}")
            return f"loop {argument}"

        return asyncio.run(work())


AGENT = {"": Worker, "retry": Retrying, "native": OnThreads}[os.environ.get("WORKER_KIND", "")]
STORE = os.environ.get("WORKER_STORE")
LIMITS = Limits(disconnect_check_interval=0.2, worker_heartbeat_interval=float(os.environ.get("WORKER_BEAT", "0.5")))

app = A2AApp(AGENT(), store=STORE, limits=LIMITS)


def __getattr__(name: str) -> Any:
    if name != "flask_app":
        raise AttributeError(name)
    from flask import Flask

    from a2a_sync.integrations.flask import blueprint

    host = Flask(__name__)
    host.register_blueprint(blueprint(app), url_prefix="/agent")
    host.register_blueprint(blueprint(A2AApp(AGENT(), limits=LIMITS), name="second"), url_prefix="/second")
    return host
