"""What several commands take and how it is checked."""

from __future__ import annotations

from urllib.parse import urlsplit

import click


def _agent_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise click.BadParameter(f"{value!r} is not an http(s) URL such as http://127.0.0.1:8000", ctx, param)
    return value


url_argument = click.argument("url", metavar="URL", callback=_agent_url)
task_argument = click.argument("task_id", metavar="TASK")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON as the protocol has it.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after this time.",
)
