"""Retries: one loop for all calls of a client, and a policy for each kind of call. No network and no protocol in here.

==========  =====================================================  ==========================================
policy      retries                                                when the budget is used up
==========  =====================================================  ==========================================
SEND        after a lost answer, if the agent deduplicates by key  `TransportError`: the answer was lost
READ        after a broken connection                              the last failure
READ_ONCE   as READ, but a second time only if an answer began     the last failure
RESUME      after a cut stream                                     `StreamInterruptedError`
POLL        after every transient failure                          the last failure
==========  =====================================================  ==========================================

After the first failure every policy retries all transient ones (`is_transient`). A call that has no policy is made once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Event
from typing import ClassVar, Final, TypeVar

from a2a_sync.client.deadlines import NEVER, Deadline
from a2a_sync.errors import (
    CertificateRefusedError,
    ConnectError,
    HTTPStatusError,
    MalformedResponseError,
    OverloadedError,
    StreamInterruptedError,
    TokenError,
    TransportError,
    TransportTimeoutError,
)
from a2a_sync.limits import check_numbers
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

_T = TypeVar("_T")

#: HTTP statuses after which a retry of the same request may succeed.
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Statuses of proxies that gave up on an agent which may have read the request.
_LOST_STATUSES = frozenset({408, 502, 503, 504})
#: Pauses between two polls of a task, in seconds: the first, the factor, the longest.
_POLL_PAUSES = (0.25, 1.6, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How long a client retries after an interruption: a network failure or a server that restarts. Times are in seconds.

    Parameters:
        max_elapsed: the longest time for one interruption; then the error is raised. 0 disables retries (`Retry.off`).
        initial_backoff: the pause before the first retry. Each further pause is twice as long, with 50 % jitter.
        max_backoff: the longest pause, unless the server asks for a longer one with ``Retry-After``.
    """

    max_elapsed: float = 60.0
    initial_backoff: float = 0.2
    max_backoff: float = 5.0

    #: Every failure is raised at once.
    off: ClassVar[Retry]

    def __post_init__(self) -> None:
        check_numbers(self, {"max_elapsed"})

    def __bool__(self) -> bool:
        return self.max_elapsed > 0


Retry.off = Retry(max_elapsed=0.0)


class Backoff:
    """The pauses of one interruption, and what is left of its time. Used by one thread."""

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self.reset()

    def reset(self, *, pauses: bool = True) -> None:
        """Start again: the next failure begins an interruption of its own; without `pauses` after a pause as long as now."""
        self._end: float | None = None
        if pauses:
            self._pause = self.retry.initial_backoff

    @property
    def left(self) -> float:
        """Seconds until the time for retries is used up."""
        return self.retry.max_elapsed if self._end is None else max(0.0, self._end - time.monotonic())

    def next(self, error: Exception) -> float | None:
        """Seconds to pause after `error` before the next attempt; None when the time for retries is used up."""
        if self._end is None:
            self._end = time.monotonic() + self.retry.max_elapsed
        left, asked = self.left, retry_after(error)
        if left <= 0 or asked > left:
            return None
        # With jitter, so that the clients of a server that restarts do not all return at the same moment.
        pause = self._pause * random.uniform(0.5, 1.5)
        self._pause = min(self._pause * 2, self.retry.max_backoff)
        return min(max(pause, asked + random.uniform(0, self.retry.initial_backoff) if asked else 0.0), left)


# -- which failures are retried -----------------------------------------------------------------------------------------


class SubscriptionRefusedError(StreamInterruptedError):
    """A stream was cut and the agent refuses a subscription to its task, so the task can only be polled."""


def is_transient(error: Exception) -> bool:
    """The failure may pass: the network broke, or the server is overloaded."""
    if isinstance(error, HTTPStatusError):
        return error.status_code in _TRANSIENT_STATUSES
    if isinstance(error, TransportError):
        return not isinstance(
            error, (CertificateRefusedError, MalformedResponseError, TokenError, SubscriptionRefusedError)
        )
    return isinstance(error, OverloadedError)


def _is_lost_answer(error: Exception) -> bool:
    """The agent may have read the request; its answer was lost on the way, or by a proxy that gave up."""
    if isinstance(error, HTTPStatusError):
        return error.status_code in _LOST_STATUSES
    return isinstance(error, TransportError) and is_transient(error) and not isinstance(error, ConnectError)


def _is_broken_connection(error: Exception) -> bool:
    """An established connection broke. A server that takes no connection is not retried: it may not exist."""
    return type(error) in (TransportError, StreamInterruptedError)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which failures of one kind of call are retried.

    Parameters:
        first: whether the first failure is retried; all later ones are retried if they are transient.
        once: retry only once, unless the first failure cut off an answer that had begun.
        slow_is_progress: an attempt that took longer than `Retry.max_backoff` ends the interruption before it, because the
            agent worked on the request. Not for calls that are answered at once: they would be retried without end.
        exhausted: the class and the text of the error that is raised when the time for retries is used up; None raises the
            last failure itself.
    """

    first: Callable[[Exception], bool]
    once: bool = False
    slow_is_progress: bool = False
    exhausted: tuple[type[TransportError], str] | None = None

    def retries(self, error: Exception, first: Exception | None) -> bool:
        """Whether a call that failed with `error` is made again; `first` is its first failure, None if that is `error`."""
        if first is None:
            return self.first(error)
        return is_transient(error) and not (self.once and not getattr(first, "answered", False))


#: A message with an idempotency key, for agents that deduplicate by it.
SEND = Policy(
    _is_lost_answer, slow_is_progress=True, exhausted=(TransportError, "the answer was lost and no retry succeeded")
)
#: An operation that changes nothing, or that has the same effect when it is repeated.
READ = Policy(_is_broken_connection)
#: The first contact: nothing has ever come from the address, and it may not be an agent at all.
READ_ONCE = Policy(_is_broken_connection, once=True)
#: A stream that was cut; resumed by event id, or from a snapshot of the task.
RESUME = Policy(is_transient, exhausted=(StreamInterruptedError, "the stream was cut and could not be resumed"))
#: The state of a task, asked for until the task has paused.
POLL = Policy(is_transient)


#: Called in the context of a call with the failure of a retry, and with None when a later attempt has succeeded.
RETRY_OBSERVER: Final[ContextVar[Callable[[Exception | None], None] | None]] = ContextVar(
    "retry_observer", default=None
)


# -- the loop -----------------------------------------------------------------------------------------------------------


class ClientClosedError(RuntimeError):
    """The client, or the stream, was closed while a call paused before its next attempt."""


@dataclass(eq=False)
class RetryLoop:
    """Makes a call, and makes it again after failures that `policy` retries. Used by one thread.

    Parameters:
        policy: which failures are retried.
        retry: how long, and with which pauses.
        deadline: the total timeout of the call.
        closed: ends a pause.
        agent: the agent's address, for errors and logs.
        phase: the step of the call, for errors.
        task_id: the task that is meant, for errors and logs; empty where none is known yet.
    """

    policy: Policy
    retry: Retry
    deadline: Deadline
    closed: Event
    agent: str
    phase: str = "send"
    task_id: str = ""
    #: An attempt has failed.
    retrying: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.backoff: Backoff = Backoff(self.retry)
        self._polls = _poll_pauses()

    def run(
        self,
        attempt: Callable[[Deadline], _T],
        *,
        after: Exception | None = None,
        until: Callable[[_T], bool] | None = None,
    ) -> _T:
        """What `attempt` returns. Blocks through pauses and attempts.

        Parameters:
            attempt: makes the call. Its argument is the limit until the answer begins: none for the first attempt, what is
                left of the time for retries for the others.
            after: the failure of an attempt that was made elsewhere; the run begins with the pause after it.
            until: says whether a result is final. By default each is; a result that is not is polled for again.

        Raises:
            AgentError, TransportError: as `attempt`, and as the policy says when the time for retries is used up.
            TransportTimeoutError: the deadline passed.
            ClientClosedError: `closed` was set during a pause.
        """
        first = error = after
        while True:
            if error is not None:
                self._pause_after(error)
            began = time.monotonic()
            try:
                result = attempt(NEVER if error is None else self.opening)
            except (TransportError, OverloadedError) as failure:
                if first is not None and isinstance(failure, TransportTimeoutError) and self.deadline.expired:
                    raise self._timed_out(
                        f"the total timeout expired during a retry ({describe(first)})", first
                    ) from failure
                if not self.retry or not self.policy.retries(failure, first):
                    raise
                if self.policy.slow_is_progress and time.monotonic() - began > self.retry.max_backoff:
                    self.backoff.reset()
                if first is not None:
                    self._report(failure)
                first, error, self.retrying = first or failure, failure, True
            else:
                self._report(None)
                if until is None or until(result):
                    return result
                first = error = None
                self.backoff.reset()
                self.pause()

    @property
    def opening(self) -> Deadline:
        """The limit until the answer of a retry begins."""
        return Deadline.after(self.backoff.left)

    def pause(self) -> None:
        """Pause before the next poll; longer each time, up to 10 seconds.

        Raises:
            TransportTimeoutError: the deadline passed.
            ClientClosedError: `closed` was set.
        """
        self._sleep(next(self._polls))
        if self.deadline.expired:
            raise self._timed_out("the total timeout expired before the task paused")

    def check_deadline(self, error: Exception) -> None:
        """See that there is time for another attempt after `error`.

        Raises:
            TransportTimeoutError: there is none.
        """
        if not self.deadline.expired:
            return
        if isinstance(error, TransportTimeoutError):
            error.task_id = error.task_id or self.task_id
            raise error
        raise self._timed_out(f"the total timeout expired ({describe(error)})", error) from error

    def _report(self, failure: Exception | None) -> None:
        observer = RETRY_OBSERVER.get()
        if observer is not None and (failure is not None or self.retrying):
            observer(failure)

    def _pause_after(self, error: Exception) -> None:
        self.check_deadline(error)
        pause = self.backoff.next(error)
        if pause is None:
            if self.policy.exhausted is None:
                raise error
            kind, text = self.policy.exhausted
            raise self._error(
                kind, f"{text} within {self.retry.max_elapsed:g} seconds ({describe(error)})", error
            ) from error
        extra = {"task_id": self.task_id} if self.task_id else None
        logger.info("%s: %s; retrying in %.1f s", self.agent, describe(error), pause, extra=extra)
        self._sleep(pause)
        if self.deadline.expired:
            raise self._timed_out(f"the total timeout expired before a retry ({describe(error)})", error) from error

    def _sleep(self, seconds: float) -> None:
        left = self.deadline.left
        if self.closed.wait(seconds if left is None else min(seconds, left)):
            raise ClientClosedError("the client is closed")

    def _timed_out(self, text: str, error: Exception | None = None) -> TransportError:
        return self._error(TransportTimeoutError, text, error)

    def _error(self, kind: type[TransportError], text: str, error: Exception | None) -> TransportError:
        return kind(text, phase=self.phase, agent=self.agent, task_id=self.task_id or getattr(error, "task_id", ""))


def _poll_pauses() -> Iterator[float]:
    """Seconds between polls, with jitter so that many clients do not poll in step."""
    seconds, factor, longest = _POLL_PAUSES
    while True:
        yield seconds * random.uniform(0.7, 1.3)
        seconds = min(seconds * factor, longest)


def retry_after(error: Exception) -> float:
    """Seconds that the server asks the client to wait; 0 without such a time."""
    return getattr(error, "retry_after", None) or 0.0


def describe(error: Exception) -> str:
    """The text of `error` for another error or a log line."""
    text: str = getattr(error, "message", "") or str(error)
    asked = retry_after(error)
    return f"{text}; Retry-After: {asked:g} s" if asked else text
