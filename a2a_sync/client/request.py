"""An HTTP request of a client, and the context of its errors. Apart from `http`, which imports requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from a2a_sync.client.deadlines import NEVER, Deadline


@dataclass(slots=True)
class ErrorContext:
    """The context of a call for its errors: the step, the address of the agent, and the task if it is known."""

    phase: str
    agent: str
    task_id: str = ""

    def fields(self, phase: str = "") -> dict[str, str]:
        """The arguments of a `TransportError`."""
        return {"phase": phase or self.phase, "agent": self.agent, "task_id": self.task_id}


class Frame(NamedTuple):
    """One message between a client and its agent over HTTP, for ``Client(trace=…)``.

    Parameters:
        sent: it is a request; False for a response, and for each event of a stream.
        method: the HTTP method of the request.
        url: where the request goes, without credentials.
        headers: of requests, without the credentials of the client; values of headers that may hold secrets are ``***``.
        body: the JSON as it was sent or received.
        status: the HTTP status of a response; 0 for requests and events.
    """

    sent: bool
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    status: int = 0


#: Headers of the protocol and of traces, which hold no secret. All others may.
_SHOWN_HEADERS = {
    "accept",
    "accept-encoding",
    "content-type",
    "a2a-version",
    "a2a-extensions",
    "x-a2a-extensions",
    "last-event-id",
}


def masked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """`headers` for a `Frame`."""
    return {name: text if name.lower() in _SHOWN_HEADERS else "***" for name, text in headers.items()}


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """One HTTP request.

    Parameters:
        method: the HTTP method.
        url: the URL.
        headers: its headers, without those of the client.
        error_context: the context for errors.
        deadline: the limit of the request and its response.
        opening: the limit until the body of the response begins.
        body: the body; None for none.
        guarded: the URL comes from a peer, and is checked by the guard.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    error_context: ErrorContext
    deadline: Deadline
    opening: Deadline = NEVER
    body: bytes | None = None
    guarded: bool = True
