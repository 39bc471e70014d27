"""An HTTP request of a client, and the context of its errors. Apart from `http`, which imports requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
