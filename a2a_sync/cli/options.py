"""Options that several commands share, their validation, and the connection that they describe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from click.core import ParameterSource

from a2a_sync import AgentCard, Client
from a2a_sync.cli import debug
from a2a_sync.cli.agentlist import ListedAgent, list_agents, listing_lines
from a2a_sync.cli.profiles import NO_PROFILE, Profile, default_path, read_profile
from a2a_sync.client.deadlines import Timeout
from a2a_sync.concurrency.alarms import AlarmClock
from a2a_sync.errors import CardNotFoundError, TransportError, UnsafeURLError
from a2a_sync.urls import may_share_credentials, split_credentials

if TYPE_CHECKING:
    from a2a_sync.client.http import HttpTransport

#: Largest answer to a plain request, in bytes.
_MAX_RESPONSE = 64 * 1024 * 1024
_SCHEMES = ("http://", "https://", "grpc://", "grpcs://")


@dataclass(slots=True)
class Settings:
    """The options that stand before the command, or after it: the object of the outermost click context."""

    profile: str | None = None
    config: Path | None = None
    loaded: Profile | None = None

    def load(self) -> Profile:
        """The profile, read once.

        Raises:
            click.UsageError: it cannot be read.
        """
        if self.loaded is None:
            self.loaded = read_profile(self.profile, self.config or default_path()) if self.profile else NO_PROFILE
        return self.loaded


def settings_of(ctx: click.Context) -> Settings:
    """The settings of this run of the command line."""
    settings: Settings = ctx.find_root().ensure_object(Settings)
    return settings


@dataclass(frozen=True, slots=True)
class Connection:
    """How a command calls an agent. ``timeout`` is in seconds; ``verify`` is that of `Client`."""

    url: str
    auth: str | None = field(default=None, repr=False)
    timeout: float | None = None
    verify: bool | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @contextmanager
    def client(self, target: str | AgentCard | None = None, **options: Any) -> Iterator[Client]:
        """A client for the URL, or for a card that was read from it. At the address of several agents they are listed.

        Raises:
            click.UsageError: the URL is that of a host or registry, and not of one agent.
        """
        if "session" not in options:
            options["verify"] = self.verify
        interceptors = (*debug.interceptors(), *options.pop("interceptors", ()))
        with (
            Client(
                target or self.url, auth=self.auth, headers=self.headers, interceptors=interceptors, **options
            ) as client,
            self._naming_agents(),
        ):
            yield client

    @contextmanager
    def transport(self, timeout: float | None = None) -> Iterator[HttpTransport]:
        """Plain HTTP requests to the URL, with its credentials. `timeout`: seconds until each answer begins.

        Raises:
            click.UsageError: as `client`.
        """
        # Importing requests is slow, and too early for gevent's patching where this command line serves with gevent.
        from a2a_sync.client.http import HttpTransport

        if not self.url.startswith("http"):
            raise click.UsageError(f"{self.url} is no http(s) URL; this command reads the agent's card")
        alarms = AlarmClock()
        http = HttpTransport(
            self.url,
            auth=self.auth,
            headers=self.headers,
            timeout=Timeout(read=timeout or Timeout().read),
            alarms=alarms,
            verify=self.verify,
            max_response_bytes=_MAX_RESPONSE,
        )
        try:
            with self._naming_agents():
                yield http
        finally:
            http.close()
            alarms.close()

    @contextmanager
    def _naming_agents(self) -> Iterator[None]:
        try:
            yield
        except CardNotFoundError:
            lines = self._agent_lines()
            if not lines:
                raise
            raise click.UsageError("\n".join([f"{self.url} serves several agents; name one:", *lines])) from None

    def list_agents(self) -> list[ListedAgent]:
        """The agents that the host or registry at the URL lists.

        Raises:
            TransportError: there is no list.
        """
        with self.transport() as http:
            return list_agents(http, timeout=self.timeout)

    def _agent_lines(self) -> list[str]:
        try:
            return list(listing_lines(self.list_agents()))
        except TransportError:
            return []


class AgentCommand(click.Command):
    """A command whose first argument is the URL of an agent, which a profile can name instead."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        settings = settings_of(ctx)
        settings.profile = values.get("profile") or settings.profile
        settings.config = Path(values["config"]) if values.get("config") else settings.config
        urls = values.get("url")
        first = urls[0] if isinstance(urls, (list, tuple)) and urls else urls
        help_option = self.get_help_option(ctx)
        if not str(first or "").lower().startswith(_SCHEMES) and not (help_option and help_option.name in values):
            profile = settings.load()
            if profile.url:
                args = [profile.url, *args]
        return super().parse_args(ctx, args)


def agent_command(
    example: str, *, name: str | None = None, several: bool = False
) -> Callable[[Callable[..., None]], AgentCommand]:
    """Make a function a command that calls an agent: with the argument URL and the options of a connection.

    Parameters:
        example: the example in its help, without the name of the program.
        name: the name of the command; that of the function by default.
        several: it takes several URLs, and is passed a list of connections with the same options in place of a `Connection`.
    """
    command = click.command(name, cls=AgentCommand, epilog=f"Example: a2a-sync {example}")
    return lambda function: command(_calls(function, several))


def _calls(function: Callable[..., None], several: bool) -> Callable[..., None]:
    argument = (
        click.argument("url", metavar="URL...", nargs=-1, required=True, callback=_agent_urls)
        if several
        else click.argument("url", metavar="URL", callback=_agent_url)
    )

    @wraps(function)
    def command(
        url: str | tuple[str, ...],
        auth: str | None,
        timeout: float | None,
        cacert: str | None,
        insecure: bool,
        **others: Any,
    ) -> None:
        ctx = click.get_current_context()
        made = [
            _connection(ctx, one, auth, timeout, cacert, insecure) for one in ([url] if isinstance(url, str) else url)
        ]
        function(made[0] if isinstance(url, str) else made, **others)

    # Click lists parameters in the reverse order: URL first, then what the command itself has.
    own = command.__dict__.pop("__click_params__", [])
    for option in reversed(_CONNECTION_OPTIONS):
        option(command)
    command.__dict__["__click_params__"].extend(own)
    return cast("Callable[..., None]", argument(command))


def _connection(
    ctx: click.Context, url: str, auth: str | None, timeout: float | None, cacert: str | None, insecure: bool
) -> Connection:
    if cacert and insecure:
        raise click.UsageError("--cacert and --insecure exclude each other")
    profile = settings_of(ctx).load()
    headers: Mapping[str, str] = {}
    # What the user chose for this call outweighs the environment.
    chosen = auth is not None and ctx.get_parameter_source("auth") is ParameterSource.COMMANDLINE
    same_origin = not profile.url or may_share_credentials(profile.url, url)
    if profile.auth is not None or profile.headers:
        if not same_origin:
            raise click.UsageError(
                f"the credentials of profile {profile.name!r} are for {profile.url}, and are not sent to {url}"
            )
        headers = profile.headers
        if profile.auth is not None and not chosen:
            auth = profile.auth
    # A certificate of another server is checked as usual.
    authorities = cacert or (profile.cacert if same_origin and not insecure else None)
    if authorities is not None and not os.path.exists(authorities):
        raise click.UsageError(f"there is no file {authorities} with certificates (--cacert)")
    verify: bool | str | None = authorities
    if not authorities and (insecure or (same_origin and profile.insecure)):
        verify = False
        debug.silence_certificate_warnings()
    return Connection(url, auth, timeout or profile.timeout, verify, headers)


def _agent_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    scheme = value.partition("://")[0].lower()
    checked = {"grpc": "http", "grpcs": "https"}.get(scheme, scheme) + value[len(scheme) :]
    try:
        split_credentials(checked)
    except UnsafeURLError:
        raise click.BadParameter(f"{value!r} is not an http(s) URL such as http://127.0.0.1:8000", ctx, param) from None
    return value


def _agent_urls(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_agent_url(ctx, param, one) for one in value)


def _secret(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    # The value is not shown, because the output of a terminal is often copied or recorded.
    if value is not None and not (value and value.isascii() and value.isprintable()):
        raise click.BadParameter("credentials are printable ASCII", ctx, param)
    return value


def show_debug(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """The callback of an option ``--debug``: whether it was given before the command or after it."""
    if value:
        debug.enable(ctx.find_root())
    return debug.is_enabled()


def _no_color(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        # Contexts are created from the outermost inwards; all of them have the setting of the command.
        for one in (ctx, ctx.find_root()):
            one.color = False


def _setting(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    # After the command only what stands there counts: the environment does not outweigh an option before the command.
    name = str(param.name)
    if value is not None and (ctx.parent is None or ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE):
        setattr(settings_of(ctx), name, value)


def global_options() -> list[click.Option]:
    """The options that stand before a command or after it, made for one command."""
    option = partial(click.Option, expose_value=False)
    return [
        option(
            ["--profile"],
            metavar="NAME",
            envvar="A2A_SYNC_PROFILE",
            callback=_setting,
            help="Profile in the configuration file.",
        ),
        option(
            ["--config"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            envvar="A2A_SYNC_CONFIG",
            callback=_setting,
            help="Configuration file; config.toml in the user's folder of a2a-sync by default.",
        ),
        option(
            ["--debug"],
            is_flag=True,
            is_eager=True,
            callback=show_debug,
            help="Show calls, HTTP requests and tracebacks of errors, without credentials.",
        ),
        option(
            ["--no-color"],
            is_flag=True,
            is_eager=True,
            callback=_no_color,
            help="Print without colours, as with the environment variable NO_COLOR.",
        ),
    ]


task_argument: Final = click.argument("task_id", metavar="TASK")
json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON in the form of the protocol, one line each."
)
#: Called with the help of the command.
out_option: Final = partial(click.option, "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")

_CONNECTION_OPTIONS = (
    click.option(
        "--auth",
        envvar="A2A_SYNC_AUTH",
        metavar="SECRET",
        callback=_secret,
        help="Token or API key, in the form that the card requires. Other users can see it, but not A2A_SYNC_AUTH.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Stop waiting after this time.",
    ),
    click.option("--cacert", metavar="FILE", help="Trust these certificate authorities only (a PEM file or folder)."),
    click.option("--insecure", is_flag=True, help="Do not check the certificate of the server."),
)
