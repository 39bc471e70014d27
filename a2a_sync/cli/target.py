"""Load the app that ``module:attribute`` names, or raise an error with the reason."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from a2a_sync import A2AApp, Agent, AgentHost, HTTPOptions
from a2a_sync.agent.spec import AgentSpec
from a2a_sync.cli.frameworks import bridge_of


class TargetError(Exception):
    """The target cannot be served; the text is shown to the user."""


def load_target(target: str) -> Any:
    """The object that `target` names; the default attribute is ``app``. The current folder is on the path.

    Raises:
        TargetError: there is no such module or attribute, or importing the module fails.
    """
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise TargetError(f"{target!r} is a path; name the module: {dotted}:{attribute or 'app'}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _import(module_name)
    for name in (attribute or "app").split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise TargetError(f"module {module_name!r} has no attribute {attribute or 'app'!r}") from None
    return found


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(f"there is no module {name!r} here or among the installed packages") from None
        traceback.print_exc()
        raise TargetError(f"importing {name!r} failed: {error}") from None
    except (ImportError, ValueError) as error:
        raise TargetError(f"cannot import {name!r}: {error}") from None
    except Exception as error:
        traceback.print_exc()
        raise TargetError(f"importing {name!r} failed: {type(error).__name__}: {error}") from None


def make_app(
    target: str,
    *,
    store: str | None = None,
    url: str | None = None,
    debug: bool = False,
    console: bool = False,
    hosts: Sequence[str] | None = None,
) -> A2AApp | AgentHost:
    """The app or host that `target` names, or an app for the agent, executor, factory or agent of a framework that it names.

    `store`, `url`, `debug` and `console` are options of an app that is created here, and `hosts` its trusted host names.

    Raises:
        TargetError: `target` names none of these, or an app or host for which options were given.
    """
    found = _resolve(target, load_target(target))
    if isinstance(found, (A2AApp, AgentHost)):
        kind = "A2AApp" if isinstance(found, A2AApp) else "AgentHost"
        options = {"--store": store, "--url": url, "--debug": debug or None, "--console": console or None}
        for option, value in options.items():
            if value is not None:
                raise TargetError(f"{target!r} is an {kind}, which has its own settings; {option} goes with an Agent")
        return found
    card = None if callable(getattr(found, "describe", None)) else getattr(found, "card", None)
    try:
        AgentSpec.of(found).check_handler()
        http = HTTPOptions(trusted_hosts=hosts)
        return A2AApp(found, card=card, store=store, url=url, http=http, debug=debug, console=console)
    except (TypeError, ValueError, ImportError) as error:
        raise TargetError(str(error)) from None


def _resolve(target: str, found: Any) -> Any:
    if _is_servable(found):
        return found
    if (bridge := _bridge(target, found)) is not None:
        return bridge
    if not callable(found):
        raise TargetError(
            f"{target!r} is of type {type(found).__name__}: neither an A2AApp nor an Agent, nor a factory"
        )
    try:
        created = found()
    except Exception as error:
        traceback.print_exc()
        raise TargetError(f"calling {target!r} failed: {type(error).__name__}: {error}") from None
    if (bridge := _bridge(target, created, found)) is not None:
        return bridge
    if not _is_servable(created):
        raise TargetError(
            f"{target!r} returned an object of type {type(created).__name__}: neither an A2AApp nor an Agent"
        )
    return created


def _bridge(target: str, found: Any, factory: Callable[[], Any] | None = None) -> Any:
    try:
        return bridge_of(found, target.rpartition(":")[2].rpartition(".")[2], factory)
    except (TypeError, ImportError) as error:
        raise TargetError(str(error)) from None


def _is_servable(found: Any) -> bool:
    if isinstance(found, type):
        return False
    return isinstance(found, (A2AApp, Agent, AgentHost)) or callable(getattr(found, "execute", None))
