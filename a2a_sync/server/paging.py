"""The page tokens of ListTasks: a position in the order of tasks, bound to a filter.

Opaque to clients: a token contains nothing that its holder was not shown, and every query is limited to its owner.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import datetime

from a2a_sync.errors import InvalidParamsError
from a2a_sync.stores.base import Cursor, time_ms
from a2a_sync.types import ListTasksRequest


def since_ms(moment: datetime | None) -> int | None:
    """The first millisecond that is not before `moment`; status times are stored in milliseconds."""
    if moment is None:
        return None
    return time_ms(moment) + (moment.microsecond % 1000 > 0)


def write_page_token(request: ListTasksRequest, cursor: Cursor) -> str:
    """The token for what follows `cursor`, for the filter of `request`."""
    body = json.dumps([cursor.time_ms, cursor.id, _filter_hash(request)], separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).rstrip(b"=").decode()


def read_page_token(request: ListTasksRequest) -> Cursor | None:
    """The position in the request's token; None where it has none.

    Raises:
        InvalidParamsError: it is not a token of this server, or belongs to another filter.
    """
    if not request.page_token:
        return None
    try:
        padded = request.page_token + "=" * (-len(request.page_token) % 4)
        moment, task_id, mark = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if type(moment) is not int or type(task_id) is not str or abs(moment) >= 2**62 or "\0" in task_id:
            raise ValueError
        task_id.encode()
    except (ValueError, TypeError, RecursionError):
        raise InvalidParamsError.at("pageToken", "is not a token of this server") from None
    if mark != _filter_hash(request):
        raise InvalidParamsError.at("pageToken", "belongs to another filter")
    return Cursor(moment, task_id)


def _filter_hash(request: ListTasksRequest) -> str:
    """A hash of everything that decides which tasks match; page tokens are bound to it."""
    parts = (request.tenant, request.context_id, request.status.value, since_ms(request.status_timestamp_after))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
