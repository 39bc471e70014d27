"""An agent that authenticates callers by a token or an API key. Ada lacks the scope to cancel, Grace has it."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Agent, AgentCard
from a2a_sync.auth import ApiKeyAuth, BearerAuth, Principal

agent = Agent("guarded")
agent.message(lambda message, context: f"hello {context.user.id}")

GRACE = Principal(id="grace", scopes=("stop",))
WAYS = {
    "bearer": BearerAuth({"t0ken": "ada", "t0ken-of-grace": GRACE}),
    "key": ApiKeyAuth({"k3y": "ada", "k3y-of-grace": GRACE}, header="X-API-Key"),
}

app = A2AApp(
    agent,
    auth=WAYS[os.environ["GUARDED_BY"]],
    required_scopes={"CancelTask": "stop"},
    extended_card=AgentCard(
        name="guarded, for callers", description="more", version="1", skills=agent.describe().skills
    ),
)
