"""The agent of the hostile soak: ``gunicorn tests.soak.agent:app``. ``hold`` takes a minute, ``large N`` answers with N bytes.

`SOAK_STORE` names the database. Runs of a killed worker are retried, so that the honest client loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from a2a_sync import A2AApp, Agent, Message, RequestContext
from a2a_sync.auth import BearerAuth
from a2a_sync.stores.sqlite import SQLiteStore

#: The bearer tokens of the two callers.
HONEST, HOSTILE = "honest-token", "hostile-token"

agent = Agent("soak", on_worker_lost="retry")


@agent.message
def answer(message: Message, context: RequestContext) -> Iterator[str]:
    """Echo the text, or answer with as many bytes as requested."""
    command, _, number = message.text.partition(" ")
    if command == "hold":
        context.sleep(60)
    yield "y" * int(number) if command == "large" else message.text


app = A2AApp(
    agent,
    store=SQLiteStore(os.environ["SOAK_STORE"], max_tasks=20_000) if "SOAK_STORE" in os.environ else None,
    auth=BearerAuth({HONEST: "honest", HOSTILE: "hostile"}),
    push=True,
)
