"""An MCP server over standard input and output, with one tool. It reports how often it was started by its process id."""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("tools")


@server.tool()
def process() -> str:
    """The process that serves this tool."""
    return f"process {os.getpid()}"


if __name__ == "__main__":
    server.run("stdio")
