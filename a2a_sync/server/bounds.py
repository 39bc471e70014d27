"""Bounds of what a request holds, besides the size of its body: it is stored, indexed and sent back again and again.

Bounds that need no setting are constants here, the others are `Limits`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from a2a_sync import jsontext
from a2a_sync.errors import InvalidParamsError
from a2a_sync.limits import MAX_ID_LENGTH, Limits
from a2a_sync.types import Metadata, Part, SendMessageRequest

#: The most members of a list of ids, URIs or media types.
MAX_LIST_LENGTH = 100
#: The longest request header that is stored with a run, in characters.
MAX_HEADER_LENGTH = 8190
#: The ids of requests and messages: attributes, and members on the wire.
_IDS = {
    "id": "id",
    "message_id": "messageId",
    "task_id": "taskId",
    "context_id": "contextId",
    "tenant": "tenant",
}


def check_bounds(request: SendMessageRequest, parts: Sequence[Part], limits: Limits) -> None:
    """Check the bounds of a send, whose message has `parts`.

    Raises:
        InvalidParamsError: one is exceeded; it names the member.
    """
    message = request.message
    if len(parts) > limits.max_message_parts:
        raise InvalidParamsError.at(
            "message.parts", f"must hold at most {limits.max_message_parts} parts, not {len(parts)}"
        )
    if max(map(len, (message.message_id, message.context_id, message.task_id, request.tenant))) > MAX_ID_LENGTH:
        _check_id("message.messageId", message.message_id)
        _check_id("message.contextId", message.context_id)
        _check_id("message.taskId", message.task_id)
        _check_id("tenant", request.tenant)
    if message.reference_task_ids or message.extensions:
        _check_list("message.referenceTaskIds", message.reference_task_ids)
        _check_list("message.extensions", message.extensions)
    if request.metadata or message.metadata:
        _check_metadata("metadata", request.metadata, limits.max_metadata_bytes)
        _check_metadata("message.metadata", message.metadata, limits.max_metadata_bytes)
    if request.configuration is not None and request.configuration.accepted_output_modes:
        _check_list("configuration.acceptedOutputModes", request.configuration.accepted_output_modes)


def check_ids(request: object) -> None:
    """Check that no id of a request holds NUL, which no text of PostgreSQL may hold.

    Raises:
        InvalidParamsError: one does; it names the member.
    """
    message = getattr(request, "message", None)
    for value, path in ((request, ""), (message, "message.")):
        for attribute, name in _IDS.items():
            if "\0" in getattr(value, attribute, ""):
                raise InvalidParamsError.at(f"{path}{name}", "must hold no NUL character")
    for task_id in () if message is None else message.reference_task_ids:
        if "\0" in task_id:
            raise InvalidParamsError.at("message.referenceTaskIds", "must hold no NUL character")


def check_query(tenant: str, context_id: str = "", page_token: str = "") -> None:  # a position in a list  # nosec B107
    """Check that a request that stores nothing names nothing longer than can exist.

    Raises:
        InvalidParamsError: it does; it names the member.
    """
    _check_id("tenant", tenant)
    _check_id("contextId", context_id)
    if len(page_token) > 10 * MAX_ID_LENGTH:
        raise InvalidParamsError.at("pageToken", f"must have at most {10 * MAX_ID_LENGTH} characters")


def check_headers(headers: Mapping[str, str]) -> None:
    """Check the size of the request headers that are stored with a run.

    Raises:
        InvalidParamsError: one is longer than `MAX_HEADER_LENGTH`.
    """
    for name, value in headers.items():
        if len(value) > MAX_HEADER_LENGTH:
            raise InvalidParamsError.at(name, f"must have at most {MAX_HEADER_LENGTH} characters")


def _check_id(name: str, text: str) -> None:
    if len(text) > MAX_ID_LENGTH:
        raise InvalidParamsError.at(name, f"must have at most {MAX_ID_LENGTH} characters")


def _check_list(name: str, values: Collection[str]) -> None:
    if len(values) > MAX_LIST_LENGTH:
        raise InvalidParamsError.at(name, f"must hold at most {MAX_LIST_LENGTH}, not {len(values)}")
    if any(len(value) > 10 * MAX_ID_LENGTH for value in values):
        raise InvalidParamsError.at(name, f"must hold nothing longer than {10 * MAX_ID_LENGTH} characters")


def _check_metadata(name: str, metadata: Metadata, most: int) -> None:
    if metadata and len(jsontext.dumps(dict(metadata))) > most:
        raise InvalidParamsError.at(name, f"must have at most {most} bytes of JSON")
