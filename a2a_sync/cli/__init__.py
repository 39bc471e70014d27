"""The command ``a2a-sync``: serve agents, read cards, send messages, manage tasks.

It uses only the public API of the library, and reads environment variables. Answers are printed to standard
output, progress and errors to standard error.

Exit codes: 0 done; 1 failed, rejected or refused; 2 wrong usage; 3 no usable answer was received; 4 the agent requires
input or authorization; 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Any

import click

import a2a_sync
from a2a_sync.cli.card import card
from a2a_sync.cli.hooks import hooks
from a2a_sync.cli.mcp import mcp
from a2a_sync.cli.send import send
from a2a_sync.cli.serve import serve
from a2a_sync.cli.tasks import cancel, get, list_tasks
from a2a_sync.cli.text import print_status
from a2a_sync.errors import AgentError, TransportError, UnauthenticatedError

__all__ = ["main"]

_CREDENTIALS_HINT = "; pass credentials in A2A_SYNC_AUTH, with --auth, or in the URL"


class _Commands(click.Group):
    """Converts errors of the library to one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AgentError as error:
            hint = _CREDENTIALS_HINT if isinstance(error, UnauthenticatedError) else ""
            print_status(f"Error: {error.message}{hint}", error=True)
            sys.exit(1)
        except TransportError as error:
            hint = "; the task continues: see a2a-sync get" if isinstance(error, TimeoutError) and error.task_id else ""
            print_status(f"Error: {error}{hint}", error=True)
            sys.exit(3)
        except KeyboardInterrupt:
            sys.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(a2a_sync.__version__, prog_name="a2a-sync")
def main() -> None:
    """Serve and call agents that speak the A2A protocol.

    \b
    Exit codes: 0 done; 1 failed, rejected or refused; 2 wrong usage;
    3 no usable answer came back; 4 the agent asks for something; 130 interrupted.
    """


for _command in (serve, card, send, get, list_tasks, cancel, hooks, mcp):
    main.add_command(_command)
