"""An agent that knows its callers by a token or a key, for tests with clients of others."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Agent, AgentCard, ApiKeyAuth, BearerAuth

agent = Agent("guarded")
agent.message(lambda message, context: f"hello {context.user.id}")

WAYS = {"bearer": BearerAuth({"t0ken": "ada"}), "key": ApiKeyAuth({"k3y": "ada"}, header="X-API-Key")}

app = A2AApp(
    agent,
    auth=WAYS[os.environ["GUARDED_BY"]],
    extended_card=AgentCard(
        name="guarded, for callers", description="more", version="1", skills=agent.describe().skills
    ),
)
