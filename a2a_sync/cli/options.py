"""Options that several commands share, and their validation."""

from __future__ import annotations

from typing import Final

import click

from a2a_sync.errors import UnsafeURLError
from a2a_sync.urls import split_credentials


def _agent_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        split_credentials(value)
    except UnsafeURLError:
        raise click.BadParameter("not an http(s) URL such as http://127.0.0.1:8000", ctx, param) from None
    return value


def _secret(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    # The value is not shown, because the output of a terminal is often copied or recorded.
    if value is not None and not (value and value.isascii() and value.isprintable()):
        raise click.BadParameter("credentials are printable ASCII", ctx, param)
    return value


url_argument: Final = click.argument("url", metavar="URL", callback=_agent_url)
task_argument: Final = click.argument("task_id", metavar="TASK")
auth_option: Final = click.option(
    "--auth",
    envvar="A2A_SYNC_AUTH",
    metavar="SECRET",
    callback=_secret,
    help="A token or API key, sent as the card says; in A2A_SYNC_AUTH other users do not see it.",
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON as the protocol has it.")
timeout_option: Final = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after this time.",
)
