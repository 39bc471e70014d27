"""A server on the official SDK as the system under test, and where it is known to do something else.

Run by ``make interop``: the SDK is not there for the ordinary tests, so nothing here imports it.
"""

from __future__ import annotations

#: Lines that the SDK (1.3.0) does not meet, and what it does.
DEPARTURES: dict[str, str] = {}
