"""``a2a-sync mcp``: an agent as an MCP server over standard input and output."""

from __future__ import annotations

from typing import Any

import click

from a2a_sync import Client
from a2a_sync.cli.options import auth_option, timeout_option, url_argument


@click.command()
@url_argument
@auth_option
@timeout_option
def mcp(url: str, auth: str | None, timeout: float | None) -> None:
    """Serve the agent at URL to an MCP host, over stdio.

    Each skill of the agent is a tool. MCP hosts start this command themselves.
    """
    try:
        from a2a_sync.integrations.mcp import mcp_server
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    sending: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    with Client(url, auth=auth) as client:
        mcp_server(client, **sending).run("stdio")
