"""Calls that are made again after the network has failed: which ones may be, and for how long.

A send is repeated only under a key by which its agent knows it again; what changes nothing may always be. How streams go on
after a cut is known to `resume`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from a2a_sync.client.deadlines import NEVER, Deadline
from a2a_sync.client.retry import Patience, is_passing, retry_after
from a2a_sync.errors import (
    ConnectError,
    HTTPStatusError,
    OverloadedError,
    StreamInterruptedError,
    TransportError,
    TransportTimeoutError,
)
from a2a_sync.telemetry.logs import get_logger

if TYPE_CHECKING:
    from a2a_sync.client.link import Surroundings

logger = get_logger(__name__)

_T = TypeVar("_T")


class Whom(Protocol):
    """Who is called, and what the calls of the client share."""

    @property
    def agent(self) -> str: ...

    @property
    def surroundings(self) -> Surroundings: ...


def persist(whom: Whom, deadline: Deadline, attempt: Callable[[Deadline], _T], *, stream: bool) -> _T:
    """What `attempt` returns, made again where its answer was lost; its argument is the limit until the answer begins.

    What has never reached the agent, and what the agent has refused, is not tried again.

    Raises:
        AgentError, TransportError: as `attempt`; also when asking again has failed for too long.
    """
    began = time.monotonic()
    try:
        return attempt(NEVER)
    except TransportError as failed:
        if not _was_lost(failed):
            raise
        in_time(whom, deadline, failed)
        error: Exception = failed
    patience = Patience(whom.surroundings.retry)
    while True:
        if time.monotonic() - began > patience.retry.max_backoff:
            patience.renew()  # the agent took its time, which is no failure
        if not _rest(whom, patience, error, deadline):
            raise TransportError(
                f"the answer was lost, and asking again has failed for {patience.retry.max_elapsed:g} seconds ({told(error)})",
                phase="stream" if stream else "send",
                agent=whom.agent,
                task_id=getattr(error, "task_id", ""),
            ) from error
        began = time.monotonic()
        try:
            return attempt(Deadline.after(patience.left) if stream else NEVER)
        except (TransportError, OverloadedError) as failed:
            if not is_passing(failed):
                raise
            in_time(whom, deadline, failed)
            error = failed


def patiently(whom: Whom, deadline: Deadline, attempt: Callable[[], _T]) -> _T:
    """What `attempt`, which changes nothing at the agent, returns; failures that pass are waited out.

    Raises:
        AgentError, TransportError: as `attempt`; also when it has failed for too long.
    """
    patience = Patience(whom.surroundings.retry)
    while True:
        try:
            return attempt()
        except (TransportError, OverloadedError) as error:
            if not is_passing(error):
                raise
            in_time(whom, deadline, error)
            if not _rest(whom, patience, error, deadline):
                raise


def again(
    whom: Whom,
    deadline: Deadline,
    attempt: Callable[[], _T],
    repeat: Callable[[], _T] | None = None,
    *,
    once: bool = False,
) -> _T:
    """What `attempt` returns. Where the connection broke under it, it is made again (`repeat` in its place): `patiently`, or
    but `once`.

    A server that nobody can connect to is not waited for; one that was there a moment ago is.

    Raises:
        AgentError, TransportError: as `attempt`; also when asking again has failed for too long.
    """
    try:
        return attempt()
    except TransportError as failed:
        if type(failed) not in (TransportError, StreamInterruptedError) or not whom.surroundings.retry:
            raise
        in_time(whom, deadline, failed)
        error = failed
    if not _rest(whom, Patience(whom.surroundings.retry), error, deadline):
        raise error
    once = once and not error.answered
    return (repeat or attempt)() if once else patiently(whom, deadline, repeat or attempt)


def in_time(whom: Whom, deadline: Deadline, error: Exception) -> None:
    """The overall limit leaves time for another attempt after `error`.

    Raises:
        TransportTimeoutError: it does not.
    """
    if not deadline.expired:
        return
    if isinstance(error, TransportTimeoutError):
        raise error
    raise TransportTimeoutError(
        f"the overall limit ran out ({told(error)})",
        phase=getattr(error, "phase", ""),
        agent=whom.agent,
        task_id=getattr(error, "task_id", ""),
    ) from error


def _rest(whom: Whom, patience: Patience, error: Exception, deadline: Deadline) -> bool:
    """Pause before the next attempt at a call that failed with `error`; False when the patience is used up.

    Raises:
        RuntimeError: the client was closed meanwhile.
    """
    pause = patience.next(error)
    if pause is None:
        return False
    logger.info("%s: %s; again in %.1f s", whom.agent, told(error), pause)
    left = deadline.left
    if whom.surroundings.closed.wait(pause if left is None else min(pause, left)):
        raise RuntimeError("the client is closed")
    return True


def _was_lost(error: TransportError) -> bool:
    """The request may have been read, and its answer is lost: on its way, or where a proxy waited for it."""
    if isinstance(error, HTTPStatusError):
        return error.status_code in (408, 502, 503, 504)
    return is_passing(error) and not isinstance(error, ConnectError)


def told(error: Exception) -> str:
    text: str = getattr(error, "message", "") or str(error)
    asked = retry_after(error)
    return f"{text}; it asks for {asked:g} s of patience" if asked else text
