"""``a2a-sync console``: pages in the browser for agents at any URL, served on the loopback address by one process."""

from __future__ import annotations

import json
import os
import secrets
import sys
from importlib.util import find_spec
from typing import Any

import click

from a2a_sync.cli.serve import check_port
from a2a_sync.errors import UnsafeURLError
from a2a_sync.urls import split_credentials

#: The environment variable with the arguments for the process that serves the pages.
SETTINGS = "A2A_SYNC_CONSOLE_SETTINGS"
_HOST = "127.0.0.1"
#: Streams of pages and sends hold one each.
_THREADS = 128


def _agent_urls(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for url in value:
        try:
            split_credentials(url)
        except UnsafeURLError:
            raise click.BadParameter(
                f"{url!r} is not an http(s) URL such as http://127.0.0.1:8000", ctx, param
            ) from None
    return value


def _secret(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    # The value is not shown, because the output of a terminal is often copied or recorded.
    if value is not None and not (value and value.isascii() and value.isprintable()):
        raise click.BadParameter("credentials are printable ASCII", ctx, param)
    return value


@click.command(epilog="Example: a2a-sync console http://127.0.0.1:8000")
@click.argument("urls", metavar="URL...", nargs=-1, required=True, callback=_agent_urls)
@click.option(
    "--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 selects a free one."
)
@click.option(
    "--auth",
    envvar="A2A_SYNC_AUTH",
    metavar="SECRET",
    callback=_secret,
    help="A token or API key for each agent, sent as its card says; in A2A_SYNC_AUTH other users do not see it.",
)
@click.option("--cacert", type=click.Path(exists=True), metavar="PATH", help="Certificate authorities of the agents.")
@click.option("--insecure", is_flag=True, help="Do not check the certificates of the agents.")
@click.option(
    "--cert", type=click.Path(exists=True), metavar="FILE", help="Client certificate with its key, in one file."
)
@click.option("--trust", metavar="KEYS", help="URL or file of the keys that the cards should be signed with.")
def console(
    urls: tuple[str, ...],
    port: int,
    auth: str | None,
    cacert: str | None,
    insecure: bool,
    cert: str | None,
    trust: str | None,
) -> None:
    """Look at agents in the browser, and talk to them.

    The agents may be of any make. The pages are served on this machine only, and the command prints a link that logs one
    browser in. The browser talks to this process, which calls the agents. Credentials are those of --auth, in the
    URLs, or entered on a page; they are sent to the origin of their agent only.
    """
    missing = [name for name in ("jinja2", "markdown_it", "nh3") if find_spec(name) is None]
    if missing:
        raise click.UsageError(f"the console needs {', '.join(missing)}: pip install 'a2a-sync[console]'")
    check_port(_HOST, port)
    settings: dict[str, Any] = {
        "urls": urls,
        "auth": auth,
        "verify": False if insecure else cacert,
        "cert": cert,
        "trust": trust,
    }
    os.environ[SETTINGS] = json.dumps(settings)
    from a2a_sync.console.sessions import KEY_VARIABLE

    os.environ.setdefault(KEY_VARIABLE, secrets.token_hex(32))
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "a2a_sync.cli.console:application()",
        "-c",
        "python:a2a_sync.cli.served",
    ]
    command += ["--bind", f"{_HOST}:{port}", "--threads", str(_THREADS), "--worker-connections", str(_THREADS + 1000)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], command)  # no shell: the command is a list, and gunicorn's  # nosec B606


def application() -> Any:
    """The application of the process that serves the pages."""
    from pathlib import Path

    from a2a_sync.console.remotesite import RemoteConsole

    settings = json.loads(os.environ.pop(SETTINGS))
    trust = settings["trust"]
    keys = None if not trust else trust if "://" in trust else _read_keys(Path(trust).read_text())
    options = {name: settings[name] for name in ("auth", "verify", "cert") if settings[name] is not None}
    return RemoteConsole(settings["urls"], options, keys)


def _read_keys(text: str) -> Any:
    """A key set or a key as JSON, or a key as PEM."""
    return json.loads(text) if text.lstrip().startswith("{") else text
