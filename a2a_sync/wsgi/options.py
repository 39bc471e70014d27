"""The options of an app that concern HTTP and no other transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from a2a_sync.operations import Principal

#: Decides by the headers of a request, with names in lower case.
HeaderPredicate: TypeAlias = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPOptions:
    """How an app or host is reached over HTTP: ``A2AApp(agent, http=HTTPOptions(trusted_proxies=1))``.

    Parameters:
        trusted_hosts: the host names that requests may use; None for any, and then shared caches may not store the card.
        trusted_proxies: the number of proxies in front whose ``X-Forwarded-For``, ``-Proto``, ``-Host`` and ``-Prefix``
            are trusted; with 0 these headers are ignored.
        cors_origins: the origins whose web pages may call, besides the app's own; ``*`` for all.
        response_media_type: the media type of all responses of ``HTTP+JSON`` in 1.0; by default the one that ``Accept``
            names, ``application/json`` for JSON bodies and for clients of event streams, else ``application/a2a+json``.
        double_base64_clients: a function of a request's headers, with names in lower case, which returns whether its client
            encodes files twice over ``HTTP+JSON`` of 0.3. By default Python's official SDK is recognized by its user agent.

    Raises:
        TypeError: one string in place of a list.
        ValueError: a negative number of proxies.
    """

    trusted_hosts: Sequence[str] | None = None
    trusted_proxies: int = 0
    cors_origins: Iterable[str] = ()
    response_media_type: str | None = None
    double_base64_clients: HeaderPredicate | None = None

    def __post_init__(self) -> None:
        for name in ("trusted_hosts", "cors_origins"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} takes a list, not one string")
        if self.trusted_proxies < 0:
            raise ValueError(f"trusted_proxies is the number of proxies, not {self.trusted_proxies}")
        # An iterator could be read once only, and a host passes the options to each of its apps.
        object.__setattr__(self, "cors_origins", tuple(self.cors_origins))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What a console shows: ``A2AApp(agent, auth=…, console=ConsoleOptions(operator=is_operator))``.

    Parameters:
        operator: a function of a `Principal` that returns whether the caller may see the tasks of all owners; by default no
            caller may. Without ``auth=`` the holder of the login link may.

    Raises:
        TypeError: `operator` is no function.
    """

    operator: Callable[[Principal], bool] | None = None

    def __post_init__(self) -> None:
        if self.operator is not None and not callable(self.operator):
            raise TypeError(f"operator takes a function of a Principal, not a {type(self.operator).__name__}")
