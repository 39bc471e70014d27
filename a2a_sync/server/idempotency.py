"""The extension of idempotent sends: a repeated send is recognized by its key and its fingerprint.

The key is the caller's, the fingerprint is a hash of the content. The message's id is not part of the content (a client that
starts again makes a new one), nor is what concerns the response only: whether to wait or to stream, and how much history to
send back.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from a2a_sync.agent.extensions import Extension
from a2a_sync.codec import by_version
from a2a_sync.errors import InvalidParamsError
from a2a_sync.operations import IDEMPOTENCY_KEY, IDEMPOTENT_SEND, AnyCall, SendKey, is_idempotency_key
from a2a_sync.stores.base import SentRun
from a2a_sync.types import SendMessageRequest

_NAME = "Idempotency-Key"
_CODEC = by_version("1.0")


class IdempotentSend(Extension):
    """Of all sends with the same ``Idempotency-Key`` header and the same content, one is run. The header activates it.

    `listed`: the card lists it. The card of an agent that answers without a task should not: such an answer is not stored.
    """

    uri = IDEMPOTENT_SEND
    description = "A send that is repeated with the same Idempotency-Key header is run once"
    headers: tuple[str, ...] = (IDEMPOTENCY_KEY,)

    def __init__(self, *, listed: bool = True) -> None:
        super().__init__()
        self.listed = listed

    def on_request(self, call: AnyCall) -> AnyCall:
        """Add the key to the context of a send.

        Raises:
            InvalidParamsError: it is not 1 to 255 printable ASCII characters.
        """
        key = call.context.headers.get(IDEMPOTENCY_KEY)
        if key is None or not isinstance(call.request, SendMessageRequest):
            return call
        if not is_idempotency_key(key):
            raise InvalidParamsError.at(_NAME, "must be 1 to 255 printable ASCII characters")
        return replace(call, context=replace(call.context, key=SendKey(key, _fingerprint(call.request))))


def check_same(run: SentRun, key: SendKey | None) -> None:
    """Check that a send has the key and the content of the one that began `run`.

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
    # Inside a process, data may be an object that JSON cannot represent.
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:32]
