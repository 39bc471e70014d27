"""Profiles: named addresses and credentials in the file of the command line's configuration."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from a2a_sync.cli.text import print_status

#: The keys of a profile, and the type of each.
_KEYS: dict[str, type | tuple[type, ...]] = {
    "url": str,
    "auth": str,
    "auth_file": str,
    "cacert": str,
    "insecure": bool,
    "timeout": (int, float),
    "headers": dict,
}


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile: what its commands use where their command line names nothing else. ``timeout`` is in seconds."""

    name: str = ""
    url: str = ""
    auth: str | None = field(default=None, repr=False)
    cacert: str | None = None
    insecure: bool = False
    timeout: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


NO_PROFILE = Profile()


def default_path() -> Path:
    """Where the configuration is looked for: ``~/.config/a2a-sync/config.toml``, or as the system has it."""
    return Path(click.get_app_dir("a2a-sync")) / "config.toml"


def read_profile(name: str, path: Path) -> Profile:
    """The profile `name` of the file `path`. Paths in it are relative to its folder.

    Raises:
        click.UsageError: the file cannot be read, has no such profile, or the profile is wrong.
    """
    settings, readable_by_others = _read_settings(name, path)
    _check(settings, f"profile {name!r} in {path}")
    if "auth" in settings and readable_by_others:
        print_status(f"other users of this machine can read the credentials in {path}: chmod 600 {path}", error=True)
    if (auth_file := settings.pop("auth_file", None)) is not None:
        settings["auth"] = _read_secret(path.parent / os.path.expanduser(auth_file))
    if "cacert" in settings:
        settings["cacert"] = str(path.parent / os.path.expanduser(settings["cacert"]))
    return Profile(name=name, **settings)


def _read_settings(name: str, path: Path) -> tuple[dict[str, Any], bool]:
    """The settings of a profile as they are in the file, and whether other users can read it."""
    try:
        with path.open("rb") as file:
            profiles = tomllib.load(file).get("profile", {})
            readable_by_others = bool(os.fstat(file.fileno()).st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError as error:
        raise click.UsageError(f"cannot read the profiles in {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} is not TOML: {error}") from None
    if not isinstance(profiles, dict) or not isinstance(profiles.get(name), dict):
        known = ", ".join(sorted(profiles)) if isinstance(profiles, dict) else ""
        raise click.UsageError(f"{path} has no profile {name!r}; it has {known or 'none: add [profile.' + name + ']'}")
    return dict(profiles[name]), readable_by_others


def _check(settings: Mapping[str, Any], where: str) -> None:
    for key, value in settings.items():
        if key not in _KEYS:
            raise click.UsageError(f"{where}: unknown key {key!r}; the keys are {', '.join(_KEYS)}")
        kinds = _KEYS[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise click.UsageError(f"{where}: {key} is of type {type(value).__name__}, not {wanted}")
    if not all(isinstance(value, str) for value in settings.get("headers", {}).values()):
        raise click.UsageError(f"{where}: the values of headers are text")
    if not settings.get("timeout", 1) > 0:
        raise click.UsageError(f"{where}: timeout must be positive")
    if {"auth", "auth_file"} <= settings.keys():
        raise click.UsageError(f"{where}: auth and auth_file exclude each other")


def _read_secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read the credentials in {path}: {error}") from None
