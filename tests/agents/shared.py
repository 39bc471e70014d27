"""An agent that several users share: the header ``X-Caller`` names the caller, ``wait`` runs until it is cancelled.

Tasks are kept in `SHARED_STORE`, at most `SHARED_MAX_TASKS`.
"""

from __future__ import annotations

import os
from typing import Any

from a2a_sync import A2AApp, Agent, InputRequired, Limits, SQLiteStore

agent = Agent("shared", description="an agent that several users share")


@agent.message
def handle(message: Any, context: Any) -> Any:
    word, _, rest = message.text.partition(" ")
    if word == "wait":
        context.update("waiting")
        context.sleep(60)
    if word == "ask":
        return InputRequired("what?")
    if word == "process":
        return str(os.getpid())
    return rest or word


def caller(environ: dict[str, Any]) -> str | None:
    named: str | None = environ.get("HTTP_X_CALLER")
    return named


path = os.environ.get("SHARED_STORE", "").removeprefix("sqlite:///")
store = SQLiteStore(path, max_tasks=int(os.environ["SHARED_MAX_TASKS"])) if path else None
app = A2AApp(agent, auth=caller, store=store, limits=Limits(disconnect_check_interval=0.2))
