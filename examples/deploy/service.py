"""The agent of the deployment recipes: docs/howto/deploy.md explains the files beside it."""

from __future__ import annotations

import os

from a2a_sync import A2AApp, Agent, AgentSkill, HTTPOptions, Message, RequestContext

skill = AgentSkill(id="echo", name="Echo", description="Returns the text it is sent", tags=["example"])
agent = Agent("echo", description="Returns the text it is sent", skills=[skill])


@agent.message
def echo(message: Message, context: RequestContext) -> str:
    return message.text


app = A2AApp(
    agent,
    store=os.environ.get("STORE", "sqlite:///tasks.db"),
    http=HTTPOptions(trusted_proxies=int(os.environ.get("TRUSTED_PROXIES", "0"))),
)

if grpc_address := os.environ.get("GRPC"):
    from a2a_sync.grpc import GRPCServer

    # The app starts, drains and closes it in each worker.
    app.register(
        GRPCServer(app, grpc_address, url=os.environ.get("GRPC_URL"), behind_proxy="GRPC_BEHIND_PROXY" in os.environ)
    )
