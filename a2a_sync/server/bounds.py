"""How much a request may hold, besides the size of its body: what is stored, indexed and sent back again and again.

Numbers that nobody has a reason to change stand here, the others are `Limits`. What a request means is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from a2a_sync import jsontext
from a2a_sync.errors import InvalidParamsError
from a2a_sync.limits import LONGEST_ID, Limits
from a2a_sync.types import Metadata, SendMessageRequest

#: The most members of a list of ids, URIs or media types.
LONGEST_LIST = 100
#: The longest request header that is stored with a run, in characters.
LONGEST_HEADER = 8190


def check_bounds(request: SendMessageRequest, limits: Limits) -> None:
    """See that a message is not more than a server wants to keep.

    Raises:
        InvalidParamsError: it is; each member is named.
    """
    message = request.message
    if len(message.parts) > limits.max_message_parts:
        raise InvalidParamsError.at(
            "message.parts", f"must hold at most {limits.max_message_parts} parts, not {len(message.parts)}"
        )
    for name, text in (
        ("messageId", message.message_id),
        ("contextId", message.context_id),
        ("taskId", message.task_id),
    ):
        _check_id(f"message.{name}", text)
    _check_id("tenant", request.tenant)
    if message.reference_task_ids or message.extensions:
        _check_list("message.referenceTaskIds", message.reference_task_ids)
        _check_list("message.extensions", message.extensions)
    if request.metadata or message.metadata:
        _check_metadata("metadata", request.metadata, limits.max_metadata_bytes)
        _check_metadata("message.metadata", message.metadata, limits.max_metadata_bytes)
    if request.configuration is not None:
        _check_list("configuration.acceptedOutputModes", request.configuration.accepted_output_modes)


def check_query(tenant: str, context_id: str = "", page_token: str = "") -> None:  # the place in a list  # nosec B107
    """See that a request which stores nothing names nothing longer than can exist.

    Raises:
        InvalidParamsError: it does; the member is named.
    """
    _check_id("tenant", tenant)
    _check_id("contextId", context_id)
    if len(page_token) > 10 * LONGEST_ID:
        raise InvalidParamsError.at("pageToken", f"must have at most {10 * LONGEST_ID} characters")


def check_headers(headers: Mapping[str, str]) -> None:
    """See that the request headers which a run keeps are of a bounded size.

    Raises:
        InvalidParamsError: one is longer than `LONGEST_HEADER`.
    """
    for name, value in headers.items():
        if len(value) > LONGEST_HEADER:
            raise InvalidParamsError.at(name, f"must have at most {LONGEST_HEADER} characters")


def _check_id(name: str, text: str) -> None:
    if len(text) > LONGEST_ID:
        raise InvalidParamsError.at(name, f"must have at most {LONGEST_ID} characters")


def _check_list(name: str, values: Collection[str]) -> None:
    if len(values) > LONGEST_LIST:
        raise InvalidParamsError.at(name, f"must hold at most {LONGEST_LIST}, not {len(values)}")
    if any(len(value) > 10 * LONGEST_ID for value in values):
        raise InvalidParamsError.at(name, f"must hold nothing longer than {10 * LONGEST_ID} characters")


def _check_metadata(name: str, metadata: Metadata, most: int) -> None:
    if metadata and len(jsontext.dumps(dict(metadata))) > most:
        raise InvalidParamsError.at(name, f"must have at most {most} bytes of JSON")
