"""Several addresses of one agent as one: where the first takes no connection, the next is called (spec 5.2).

Only what never left is sent elsewhere: a request that may have arrived is not. Which addresses may stand in for which is
known to `client.cards`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from a2a_sync.errors import ConnectError, TransportError, TransportTimeoutError
from a2a_sync.operations import Call, Endpoint
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)


class Fallback:
    """Calls the first of `endpoints` that takes a connection, and begins there the next time. Safe from many threads.

    Raises (from a call):
        TransportError: what the one said that was tried first, where none took a connection.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._first = 0

    def __call__(self, call: Call) -> Any:
        first: TransportError | None = None
        count, begin = len(self._endpoints), self._first
        for place in ((begin + step) % count for step in range(count)):
            try:
                result = self._endpoints[place](call)
            except (ConnectError, TransportTimeoutError) as error:
                if not isinstance(error, ConnectError) and error.phase != "connect":
                    raise
                logger.warning("%s cannot be reached: %s", error.agent, error.message)
                first = first or error
                continue
            self._first = place
            return result
        assert first is not None
        raise first
