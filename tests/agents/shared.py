"""An agent with several users: the header ``X-Caller`` names the caller, ``wait`` runs until it is cancelled, ``pause`` for 0.3
seconds; ``pieces`` streams so many pieces of text.

Tasks are stored in `SHARED_STORE`, at most `SHARED_MAX_TASKS`.
"""

from __future__ import annotations

import os
from typing import Any

from a2a_sync import A2AApp, Agent, InputRequired, Limits, SQLiteStore
from a2a_sync.auth.request import AuthRequest

agent = Agent("shared", description="an agent that several users share")


@agent.message
def handle(message: Any, context: Any) -> Any:
    word, _, rest = message.text.partition(" ")
    if word == "wait":
        context.update("waiting")
        context.sleep(60)
    if word == "pause":
        context.sleep(0.3)
    if word == "pieces":
        return ("y" * 50 for _ in range(int(rest)))
    if word == "ask":
        return InputRequired("what?")
    if word == "process":
        return str(os.getpid())
    return rest or word


def caller(request: AuthRequest) -> str | None:
    return request.headers.get("x-caller")


path = os.environ.get("SHARED_STORE", "").removeprefix("sqlite:///")
store = SQLiteStore(path, max_tasks=int(os.environ["SHARED_MAX_TASKS"])) if path else None
app = A2AApp(agent, auth=caller, store=store, limits=Limits(disconnect_check_interval=0.2))
