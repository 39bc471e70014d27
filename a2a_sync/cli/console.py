"""``a2a-sync console``: pages in the browser for agents at any URL, served on the loopback address by one process."""

from __future__ import annotations

import json
import os
import secrets
import sys
from importlib.util import find_spec
from typing import Any

import click

from a2a_sync.cli import debug
from a2a_sync.cli.options import Connection, agent_command
from a2a_sync.cli.serve import check_port
from a2a_sync.cli.text import print_status, without_color
from a2a_sync.urls import may_share_credentials, split_credentials

#: The environment variable with the arguments for the process that serves the pages.
SETTINGS = "A2A_SYNC_CONSOLE_SETTINGS"
_HOST = "127.0.0.1"
#: Streams of pages and sends hold one each.
_THREADS = 128
#: Arguments of the clients that call the agents.
_OPTIONS = ("auth", "timeout", "verify", "headers", "cert")


@agent_command("console http://127.0.0.1:8000", several=True)
@click.option(
    "--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 selects a free one."
)
@click.option(
    "--cert", type=click.Path(exists=True), metavar="FILE", help="Client certificate with its key, in one file."
)
@click.option("--trust", metavar="KEYS", help="URL or file of the keys that the cards should be signed with.")
def console(connections: list[Connection], port: int, cert: str | None, trust: str | None) -> None:
    """Look at agents in the browser, and talk to them.

    The agents may be of any make. The pages are served on this machine only, and the command prints a link that logs one
    browser in. The browser talks to this process, which calls the agents. Credentials are those of --auth, in the
    URLs, or entered on a page; they are sent to the origin of their agent only, and those of --auth and --cert to that of the first URL.
    """
    missing = [name for name in ("jinja2", "markdown_it", "nh3") if find_spec(name) is None]
    if missing:
        raise click.UsageError(f"the console needs {', '.join(missing)}: pip install 'a2a-sync[console]'")
    check_port(_HOST, port)
    # All connections have the same options.
    first = connections[0]
    others = [one.url for one in connections if not may_share_credentials(first.url, one.url)]
    if others and first.auth is not None:
        names = ", ".join(split_credentials(one)[0] if one.startswith("http") else one for one in others)
        print_status(f"--auth is for the first agent, and is not sent to {names}; enter other credentials on the page")
    settings: dict[str, Any] = {
        "urls": [one.url for one in connections],
        "auth": first.auth,
        "timeout": first.timeout,
        "verify": first.verify,
        "headers": dict(first.headers),
        "cert": cert,
        "trust": trust,
        "debug": debug.is_enabled(),
    }
    os.environ[SETTINGS] = json.dumps(settings)
    if without_color():
        os.environ["NO_COLOR"] = "1"
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
    options = {name: settings[name] for name in _OPTIONS if settings[name] is not None}
    if settings["debug"]:
        debug.enable()
        options["interceptors"] = debug.interceptors()
    return RemoteConsole(settings["urls"], options, keys)


def _read_keys(text: str) -> Any:
    """A key set or a key as JSON, or a key as PEM."""
    return json.loads(text) if text.lstrip().startswith("{") else text
