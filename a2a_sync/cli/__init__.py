"""The command ``a2a-sync``: serve agents, read cards, send messages, manage tasks.

It uses only the public API of the library, and reads environment variables. Answers are printed to standard
output, progress and errors to standard error.

Exit codes: 0 done; 1 failed, rejected or refused; 2 wrong usage; 3 no usable answer was received; 4 the agent requires
input or authorization; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

import a2a_sync
from a2a_sync.cli import debug
from a2a_sync.cli.agents import agents
from a2a_sync.cli.card import card
from a2a_sync.cli.chat import chat
from a2a_sync.cli.check import check
from a2a_sync.cli.completion import completion
from a2a_sync.cli.console import console
from a2a_sync.cli.hooks import hooks
from a2a_sync.cli.mcp import mcp
from a2a_sync.cli.new import new
from a2a_sync.cli.options import global_options
from a2a_sync.cli.send import send
from a2a_sync.cli.serve import serve
from a2a_sync.cli.stores import copy, migrate, status, workers
from a2a_sync.cli.tasks import cancel, get, list_tasks, watch
from a2a_sync.cli.text import print_status
from a2a_sync.errors import (
    A2AError,
    AgentError,
    CardAuthError,
    HTTPStatusError,
    TransportError,
    TransportTimeoutError,
    UnauthenticatedError,
)

__all__ = ["main"]

_CREDENTIALS_HINT = "; pass credentials in A2A_SYNC_AUTH, with --auth, or in the URL"


class _Commands(click.Group):
    """Gives each command the global options, and converts errors of the library to one line and an exit code."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        # `serve` has a --debug that does more.
        own = {option for param in cmd.params for option in param.opts}
        cmd.params.extend(option for option in global_options() if not own & set(option.opts))
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except A2AError as error:
            debug.print_traceback()
            text = error.message if isinstance(error, AgentError) else str(error)
            print_status(f"Error: {text}{_hint(error)}", error=True)
            sys.exit(1 if isinstance(error, AgentError) else 3)
        except KeyboardInterrupt:
            debug.print_traceback()
            sys.exit(130)


def _hint(error: A2AError) -> str:
    """What the user can do about an error, as an addition to its text."""
    unauthorized = isinstance(error, HTTPStatusError) and error.status_code == 401
    if unauthorized or isinstance(error, (UnauthenticatedError, CardAuthError)):
        return _CREDENTIALS_HINT
    if isinstance(error, TransportTimeoutError) and error.task_id:
        return "; the task continues: see a2a-sync watch"
    if isinstance(error, TransportTimeoutError) and error.phase == "card" and error.agent.startswith("https://"):
        return "; if this port does not speak TLS, use http://"
    if isinstance(error, TransportError) and "certificate is not trusted" in error.message:
        return "; name its authority with --cacert, or do not check it with --insecure"
    return ""


@click.group(
    cls=_Commands,
    params=[*global_options()],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: a2a-sync send http://127.0.0.1:8000 hello",
)
@click.version_option(a2a_sync.__version__, prog_name="a2a-sync")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Serve and call agents that speak the A2A protocol.

    \b
    Exit codes: 0 done; 1 failed, rejected or refused; 2 wrong usage;
    3 no usable response; 4 the agent asks for input; 130 interrupted.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


for _command in (
    agents,
    cancel,
    card,
    chat,
    check,
    completion,
    console,
    get,
    hooks,
    list_tasks,
    mcp,
    new,
    send,
    serve,
    watch,
):
    main.add_command(_command)
# For operators of stores.
for _command in (migrate, copy, status, workers):
    main.add_command(_command)
