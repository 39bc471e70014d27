"""What every operation of a client needs: its agent's card and the way there, limits and marks for a call, and the end.

Which operations there are is known to `client.client`; what a call over a link does, to `client.link`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from a2a_sync.card import AgentCard
from a2a_sync.client.cards import FOR_EVER, Kept, Wanted, choose_interface, made_absolute
from a2a_sync.client.deadlines import Deadline, Timeout
from a2a_sync.client.link import CallOptions, Link, Surroundings, as_uris, check_options, http_link, local_link
from a2a_sync.client.retry import Retry
from a2a_sync.concurrency.closing import Closes
from a2a_sync.concurrency.gevent import at_home
from a2a_sync.errors import (
    AgentError,
    MalformedResponseError,
    TransportError,
    UnsafeURLError,
    UnsupportedOperationError,
)
from a2a_sync.lazymodule import LazyModule
from a2a_sync.operations import GET_EXTENDED_CARD, Interceptor
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import GetExtendedAgentCardRequest

if TYPE_CHECKING:
    import requests

    from a2a_sync.client import placing
    from a2a_sync.client.http import HttpTransport
    from a2a_sync.client.trust import CardTrust
    from a2a_sync.outbound import urlguard
else:
    requests = LazyModule("requests")
    placing = LazyModule("a2a_sync.client.placing")
    urlguard = LazyModule("a2a_sync.outbound.urlguard")


logger = get_logger(__name__)

_RETRY = Retry()
#: When a card is looked for again that could not be read, in seconds.
_TRY_AGAIN = 60.0


class Caller(Closes):
    """The base of `Client`, whose description tells what the arguments mean."""

    def __init__(
        self,
        target: str | AgentCard | Any = None,
        *,
        auth: placing.Auth = None,
        timeout: Timeout | float | None = None,
        retry: Retry | None = _RETRY,
        headers: Mapping[str, str] | None = None,
        protocol_version: str | None = None,
        protocol_binding: str | None = None,
        prefer: Sequence[str] = (),
        tenant: str | None = None,
        extensions: Sequence[str] = (),
        interceptors: Sequence[Interceptor] = (),
        session: requests.Session | None = None,
        verify: bool | str | os.PathLike[str] | None = None,
        cert: str | tuple[str, str] | None = None,
        card_verifier: Any = None,
        double_base64_files: bool = False,
        url_guard: urlguard.URLGuard | None = None,
    ) -> None:
        if target is None:
            raise TypeError("Client needs to know what to call: a URL, an AgentCard, an A2AApp or an Agent")
        if isinstance(target, type):
            raise TypeError(f"{target.__name__} is a class: give an instance, {target.__name__}(…)")
        self._target: Any = target
        self._tls = _tls_settings(verify, cert, session)
        self._timeout = Timeout.of(timeout)
        self._wanted = Wanted.of(protocol_version, protocol_binding, prefer)
        self._tenant = tenant
        self._files_twice = double_base64_files
        self._guard = url_guard
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        self._surroundings = Surroundings(lower, as_uris(extensions), retry or Retry.off)
        self._interceptors = tuple(interceptors)
        self._link: Link | None = None
        self._http: HttpTransport | None = None
        if isinstance(target, str):
            try:
                self._http = self._transport(target, auth, session)
            except UnsafeURLError as error:
                raise UnsafeURLError(f"the agent's URL {error}") from None
            self._target = self._http.home
        elif isinstance(target, AgentCard):
            self._target = target = made_absolute(target)
            self._http = self._transport(choose_interface(target, *self._wanted).url, auth, session)
        elif not (hasattr(target, "endpoint") and hasattr(target, "agent_card")):
            raise TypeError(f"Client takes a URL, an AgentCard, an A2AApp or an Agent; not {type(target).__name__}")
        self._trust = None if card_verifier is None or self._http is None else _trust(card_verifier, self._http)

    def _transport(self, home: str, auth: placing.Auth, session: requests.Session | None) -> HttpTransport:
        # Loading requests takes longer than all the rest: only clients that use it pay for it.
        from a2a_sync.client.http import HttpTransport

        shared = self._surroundings
        return HttpTransport(
            home,
            auth=auth,
            headers=shared.headers,
            timeout=self._timeout,
            alarms=shared.alarms,
            session=session,
            url_guard=self._guard,
            **self._tls,
        )

    # -- the agent --

    @at_home
    def card(self, *, refresh: bool = False, timeout: float | None = None) -> AgentCard:
        """The agent's card: read once and kept for as long as its server says, read again with `refresh`."""
        if refresh:
            self._link = None
        return self._connect(self._deadline(timeout)).card

    @at_home
    def extended_card(self, **options: Unpack[CallOptions]) -> AgentCard:
        """The card for callers who may see more than everybody (spec 3.1.11).

        It takes the place of the client's card, until that is read anew by ``card(refresh=True)``; but for one that was
        asked for with ``headers=``, ``extensions=`` or ``tenant=``.

        Raises:
            UnsupportedOperationError: the agent's card promises none; the agent is not asked.
            ExtendedAgentCardNotConfiguredError: there is none for you.
        """
        link, deadline = self._begin(options)
        if not link.card.capabilities.extended_agent_card:
            raise UnsupportedOperationError(f"The card of {link.card.name!r} promises no extended card")
        card: AgentCard = link.call(GET_EXTENDED_CARD, GetExtendedAgentCardRequest(), deadline)
        if self._http is not None:
            try:
                card = made_absolute(card, self._http.home)
            except UnsafeURLError as error:
                raise MalformedResponseError(
                    f"the extended card is not valid: {error}", phase="card", agent=link.agent
                ) from None
        if link is self._link:
            self._link = (
                self._linked(card, deadline) if card.supported_interfaces else replace(link, card=card, kept=FOR_EVER)
            )
        return card

    def _connect(self, deadline: Deadline) -> Link:
        link = self._link
        if link is None:
            # Threads that meet here each read the card: no lock is held while one of them waits for it.
            given = self._target if isinstance(self._target, AgentCard) else None
            if given is not None and self._trust is not None:
                given = made_absolute(self._trust.check(given, deadline))
            self._link = link = self._linked(given, deadline)
        elif link.kept.until < time.monotonic():
            link = self._fresh(link, deadline)
        return link

    def _fresh(self, old: Link, deadline: Deadline) -> Link:
        """The way by a card that was looked at just now, or by the old one where that cannot be."""
        from a2a_sync.client.freshness import look_again

        assert self._http is not None
        # Others go on with the old card meanwhile, and if this fails so does everybody for a while.
        until = time.monotonic() + _TRY_AGAIN
        link = self._link = replace(old, kept=old.kept._replace(until=until))
        found = look_again(self._http, old.kept, self._wanted.version or "1.0", self._trust, deadline)
        if found is None:
            return link
        try:
            same = found.card is None or found.card == old.card
            new = replace(old, kept=found.kept) if same else self._linked(found.card, deadline, found.kept)
        except (AgentError, TransportError, ValueError) as error:
            logger.info("the new card of %s cannot be used (%s); the one from before is", old.agent, error)
            return link
        if self._link is link:
            self._link = new
        return new

    def _linked(self, card: AgentCard | None, deadline: Deadline, kept: Kept = FOR_EVER) -> Link:
        """The way to the agent of `card`, which holds as `kept` says; where that is not given, the agent is asked for it."""
        if self._http is None:
            link = local_link(self._target, self._wanted.version, self._surroundings)
            link = replace(link, card=card or link.card)
        else:
            link = http_link(
                self._http,
                card,
                self._wanted,
                self._surroundings,
                deadline,
                self._trust,
                files_twice=self._files_twice,
                kept=kept,
            )
        for interceptor in reversed(self._interceptors):
            link = replace(link, endpoint=interceptor(link.endpoint))
        return link if self._tenant is None else link.marked({"tenant": self._tenant})

    def _begin(self, options: CallOptions) -> tuple[Link, Deadline]:
        """What every method begins with: the way to the agent, marked for one call with `options`, and the limit of that call.

        Raises:
            TypeError: there is no such option.
        """
        check_options(options)
        deadline = self._deadline(options.get("timeout"))
        return self._connect(deadline).marked(options), deadline

    def _deadline(self, timeout: float | None) -> Deadline:
        if self._surroundings.closed.is_set():
            raise RuntimeError("the client is closed")
        return Deadline.after(self._timeout.total if timeout is None else timeout)

    # -- the end --

    @at_home
    def close(self) -> None:
        """End what still streams or waits, and close the connections. Idempotent."""
        self._surroundings.close()
        if self._http is not None:
            self._http.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.agent if self._http is not None else self._target!r})"


def _tls_settings(
    verify: bool | str | os.PathLike[str] | None, cert: str | tuple[str, str] | None, session: object
) -> dict[str, Any]:
    """What a user gave for ``verify`` and ``cert``.

    Raises:
        ValueError: both they and a session were given.
        FileNotFoundError: there is no such file or folder.
    """
    if verify is None and cert is None:
        return {}
    if session is not None:
        raise ValueError("verify and cert go with connections of the client: set them on the session instead")
    files = [
        *((cert,) if isinstance(cert, str) else cert or ()),
        *(() if isinstance(verify, bool | None) else (verify,)),
    ]
    for file in files:
        if not os.path.exists(file):
            raise FileNotFoundError(errno.ENOENT, "no such certificate file", os.fspath(file))
    return {"verify": verify if isinstance(verify, bool | None) else os.fspath(verify), "cert": cert}


def _trust(verify_card: Any, http: HttpTransport) -> CardTrust:
    from a2a_sync.client.trust import CardTrust

    return CardTrust(verify_card, http)
