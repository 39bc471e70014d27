"""``a2a-sync agents``: the agents of a host or a registry."""

from __future__ import annotations

import click

from a2a_sync.cli.agentlist import listing_lines
from a2a_sync.cli.options import Connection, agent_command, json_option
from a2a_sync.cli.text import clean_json


@agent_command("agents http://127.0.0.1:8000")
@json_option
def agents(connection: Connection, as_json: bool) -> None:
    """List the agents of the host or registry at URL.

    The list is read at /.well-known/agents, at /registry/agents (python-a2a), or at URL itself. With --json one line
    for each agent: its name, its URL and its card.
    """
    found = connection.list_agents()
    if as_json:
        for agent in found:
            card = None if agent.card is None else agent.card.to_dict()
            click.echo(clean_json({"name": agent.name, "url": agent.url, "card": card}))
        return
    for line in listing_lines(found):
        click.echo(line)
