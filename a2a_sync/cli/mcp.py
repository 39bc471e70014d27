"""``a2a-sync mcp``: an agent as an MCP server over standard input and output."""

from __future__ import annotations

from typing import Any

import click

from a2a_sync.cli.options import Connection, agent_command


@agent_command("mcp http://127.0.0.1:8000")
def mcp(connection: Connection) -> None:
    """Serve the agent at URL to an MCP host, over stdio.

    Each skill of the agent is a tool. MCP hosts start this command themselves.
    """
    try:
        from a2a_sync.integrations.mcp import mcp_server
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    sending: dict[str, Any] = {} if connection.timeout is None else {"timeout": connection.timeout}
    with connection.client() as client:
        mcp_server(client, **sending).run("stdio")
