"""What several commands take and how it is checked."""

from __future__ import annotations

from urllib.parse import urlsplit

import click


class AgentURL(click.ParamType):
    """The address of an agent, or of its card."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The URL; a usage error when it is none that can be called."""
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            self.fail(f"{value!r} is not an http(s) URL; write http://127.0.0.1:8000", param, ctx)
        return value


url_argument = click.argument("url", type=AgentURL(), metavar="URL")
task_argument = click.argument("task_id", metavar="TASK")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON as the protocol has it.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after this time.",
)
