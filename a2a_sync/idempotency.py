"""By what a send is known again: the caller's key, and a fingerprint of what makes its content.

Nothing is stored here. The message's id is not content (a caller that starts anew makes a new one), nor is what concerns
the answer only: whether to wait or to stream, and how much history to send back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from a2a_sync.card import AgentExtension
from a2a_sync.codec import by_version
from a2a_sync.errors import InvalidParamsError
from a2a_sync.operations import IDEMPOTENCY_KEY, IDEMPOTENT_SEND, SendKey, is_idempotency_key
from a2a_sync.stores.base import SentRun
from a2a_sync.types import SendMessageRequest

#: How a card says that sends may be repeated.
EXTENSION = AgentExtension(
    uri=IDEMPOTENT_SEND,
    description="A send that is repeated with the same Idempotency-Key header is run once",
)
_NAME = "Idempotency-Key"
_CODEC = by_version("1.0")


def send_key(request: SendMessageRequest, headers: Mapping[str, str]) -> SendKey | None:
    """The key of a send as its caller sent it; None where it has none.

    Raises:
        InvalidParamsError: it is not 1 to 255 printable ASCII characters.
    """
    key = headers.get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    if not is_idempotency_key(key):
        raise InvalidParamsError.at(_NAME, "must be 1 to 255 printable ASCII characters")
    return SendKey(key, _fingerprint(request))


def check_same(run: SentRun, key: SendKey | None) -> None:
    """Let a send pass that is the one which began `run`.

    Raises:
        InvalidParamsError: it has other content.
    """
    if key is None or run.fingerprint != key.fingerprint:
        raise InvalidParamsError.at(_NAME, "was used before, for a send with other content")


def _fingerprint(request: SendMessageRequest) -> str:
    configuration = request.configuration
    content = [
        _CODEC.dump(replace(request.message, message_id="")),
        dict(request.metadata),
        list(configuration.accepted_output_modes) if configuration is not None else [],
    ]
    # In a process, data may be something that JSON cannot say.
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:32]
