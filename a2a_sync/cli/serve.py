"""``a2a-sync serve``: checks the arguments, then replaces its process with gunicorn."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from importlib.util import find_spec

import click

from a2a_sync import A2AApp, AgentHost
from a2a_sync.cli.options import show_debug
from a2a_sync.cli.target import TargetError, make_app

#: A file that exists. Workers start in another folder with gunicorn's --chdir.
_FILE = click.Path(exists=True, dir_okay=False, readable=True, resolve_path=True)


@click.command(
    epilog="Example: a2a-sync serve agents:agent --store sqlite:///tasks.db. Arguments after -- are passed to gunicorn: a2a-sync serve module:app -- --access-logfile -"
)
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 selects a free one."
)
@click.option(
    "--threads",
    type=click.IntRange(min=2),
    help="Concurrent requests per process, including streams and waiting sends; 32, or 1000 with --gevent.",
)
@click.option("--gevent", is_flag=True, help="Serve each request with a greenlet instead of a thread.")
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Processes; more than one need a shared store.",
)
@click.option(
    "--store",
    metavar="URL",
    envvar="A2A_SYNC_STORE",
    show_envvar=True,
    help="Store of the tasks of an Agent, such as sqlite:///tasks.db; in memory without it.",
)
@click.option("--url", "public_url", metavar="URL", help="Public URL of an Agent, for its card.")
@click.option(
    "--debug",
    is_flag=True,
    callback=show_debug,
    help="Show callers of an Agent the tracebacks of its exceptions; for development.",
)
@click.option(
    "--console",
    is_flag=True,
    help="Serve pages for people at /console of an Agent; prints a link that logs one browser in.",
)
@click.option(
    "--grpc",
    metavar="[HOST]:PORT",
    help="Serve gRPC too, at this address; the host is that of --host by default.",
)
@click.option("--grpc-url", metavar="HOST:PORT", help="Public address of --grpc, for the card.")
@click.option("--grpc-tls-cert", metavar="FILE", type=_FILE, help="Certificate of --grpc with its chain, PEM.")
@click.option("--grpc-tls-key", metavar="FILE", type=_FILE, help="Its private key, PEM.")
@click.option(
    "--grpc-tls-ca", metavar="FILE", type=_FILE, help="Require client certificates of these authorities, PEM."
)
@click.option(
    "--grpc-behind-proxy",
    is_flag=True,
    help="Only a proxy connects to --grpc, such as nginx or Envoy; needed without --grpc-tls-ca where other machines reach the address.",
)
@click.option("--grpc-reflection", is_flag=True, help="List the services of --grpc for tools like grpcurl.")
@click.option("--reload", is_flag=True, help="Restart when the code changes.")
@click.argument("gunicorn_arguments", metavar="[-- ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
def serve(
    target: str,
    host: str,
    port: int,
    threads: int | None,
    gevent: bool,
    workers: int,
    store: str | None,
    public_url: str | None,
    debug: bool,
    console: bool,
    grpc: str | None,
    grpc_url: str | None,
    grpc_tls_cert: str | None,
    grpc_tls_key: str | None,
    grpc_tls_ca: str | None,
    grpc_behind_proxy: bool,
    grpc_reflection: bool,
    reload: bool,
    gunicorn_arguments: tuple[str, ...],
) -> None:
    """Serve an agent with gunicorn.

    MODULE:ATTRIBUTE names an A2AApp, an AgentHost, an Agent, an AgentExecutor with a card, an agent of a supported
    framework, or a class or function that creates one of them without arguments. Modules are also
    imported from the current folder. The command prints the URL of the card when the card can be read.
    """
    if gevent and find_spec("gevent") is None:
        raise click.UsageError("--gevent needs gevent: pip install 'a2a-sync[gevent]'")
    tls = (grpc_tls_cert, grpc_tls_key, grpc_tls_ca)
    grpc_address = None
    if grpc or grpc_url or any(tls) or grpc_behind_proxy or grpc_reflection:
        grpc_address = _check_grpc(grpc, grpc_url, host, gevent)
        grpc_url = _check_grpc_tls(grpc_address, grpc_url, *tls, grpc_behind_proxy)
        if grpc_reflection and find_spec("grpc_reflection") is None:
            raise click.UsageError("--grpc-reflection needs grpcio-reflection: pip install 'a2a-sync[grpc]'")
    threads = threads or (1000 if gevent else 32)
    app = _check_target(target, store, public_url, workers, debug, console)
    if grpc_address is not None:
        _check_grpc_site(app, grpc_address)
    check_port(host, port)
    from a2a_sync.cli import served

    settings = {
        served.TARGET: target,
        served.STORE: store,
        served.URL: public_url,
        served.DEBUG: "1" if debug else None,
        served.CONSOLE: "1" if console else None,
        served.GRPC: grpc_address,
        served.GRPC_URL: grpc_url,
        served.GRPC_THREADS: str(threads),
        served.GRPC_CERT: grpc_tls_cert,
        served.GRPC_KEY: grpc_tls_key,
        served.GRPC_CA: grpc_tls_ca,
        served.GRPC_BEHIND_PROXY: "1" if grpc_behind_proxy else None,
        served.GRPC_REFLECTION: "1" if grpc_reflection else None,
    }
    for name in settings:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in settings.items() if value})
    if app.console is not None:
        from a2a_sync.console.sessions import KEY_VARIABLE

        os.environ.setdefault(KEY_VARIABLE, secrets.token_hex(32))
    # Further arguments may have gunicorn listen elsewhere.
    only = "" if any(argument.startswith(("-b", "--bind")) for argument in gunicorn_arguments) else host
    command = [sys.executable, "-m", "gunicorn", f"a2a_sync.cli.served:app({only!r})"]
    command += ["-c", "python:a2a_sync.cli.served_gevent" if gevent else "python:a2a_sync.cli.served"]
    command += ["--bind", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "--workers", str(workers)]
    # More connections than threads: idle ones, streams and waiting sends need no thread.
    command += [*([] if gevent else ["--threads", str(threads)]), "--worker-connections", str(threads + 1200)]
    command += [*(["--reload"] if reload else []), *gunicorn_arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], command)  # no shell: the command is a list, and gunicorn's  # nosec B606


def _check_target(
    target: str, store: str | None, url: str | None, workers: int, debug: bool, console: bool
) -> A2AApp | AgentHost:
    try:
        app = make_app(target, store=store, url=url, debug=debug, console=console)
    except TargetError as error:
        raise click.UsageError(str(error)) from None
    if workers > 1 and app.single_process:
        raise click.UsageError(
            "several workers do not share tasks in memory; give a --store such as sqlite:///tasks.db"
        )
    return app


def _check_grpc(address: str | None, url: str | None, default_host: str, gevent: bool) -> str:
    """The address at which gRPC is served, as ``host:port``."""
    host, separator, port = (address or "").rpartition(":")
    host = host.strip("[]") or default_host
    if not separator or not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.UsageError("--grpc needs the address of a port, such as :50051 or 127.0.0.1:50051")
    if gevent:
        raise click.UsageError("--grpc does not work with --gevent, because its threads do not yield to greenlets")
    if find_spec("grpc") is None:
        raise click.UsageError("--grpc needs gRPC: pip install 'a2a-sync[grpc]'")
    if host in ("0.0.0.0", "::") and url is None:  # nothing is bound here  # nosec B104
        raise click.UsageError("--grpc listens at all addresses; name the one for the card with --grpc-url")
    check_port(host, int(port))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_grpc_site(site: A2AApp | AgentHost, address: str) -> None:
    from a2a_sync.grpc import GRPCServer

    try:
        GRPCServer(site, address, behind_proxy=True)
    except ValueError as error:
        raise click.UsageError(f"--grpc: {error}") from None


def _check_grpc_tls(
    address: str, url: str | None, cert: str | None, key: str | None, ca: str | None, behind_proxy: bool
) -> str | None:
    """The address for the card, which says that it is encrypted."""
    from a2a_sync.grpc.server import TLS, is_local

    if (cert is None) != (key is None):
        raise click.UsageError("--grpc-tls-cert and --grpc-tls-key belong together")
    if ca is not None and cert is None:
        raise click.UsageError("--grpc-tls-ca needs --grpc-tls-cert and --grpc-tls-key")
    if ca is None and not behind_proxy and not is_local(address):
        raise click.UsageError(
            f"--grpc: other machines reach {address}, and gRPC does not bound the memory that their clients take; give --grpc-tls-ca,"
            " or --grpc-behind-proxy where only a proxy (nginx, Envoy) connects, or use 127.0.0.1"
        )
    if cert is None or key is None:
        return url
    try:
        TLS(cert, key, ca).credentials()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--grpc-tls-cert: {error}") from None
    url = url or address
    return url if "://" in url else f"grpcs://{url}"


def check_port(host: str, port: int) -> None:
    """Raise `click.UsageError` if no server can listen there."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise click.UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
