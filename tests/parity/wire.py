"""Protocol 0.3 as it goes over the wire: what systems C and E speak."""

from __future__ import annotations

from a2a_sync import InputRequired
from a2a_sync.types import new_id
from tests.wsgi import Peer

HEADERS = {"A2A-Version": "0.3"}
#: The methods that answer once.
ONCE = (
    "message/send",
    "tasks/get",
    "tasks/cancel",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
)
STREAMING = ("message/stream", "tasks/resubscribe")
METHODS = ONCE + STREAMING


def said(text, **members):
    """The parameters of a send."""
    message = {"kind": "message", "messageId": new_id(), "role": "user", "parts": [{"kind": "text", "text": text}]}
    return {"message": {**message, **members}}


class Wire(Peer):
    """An app, called in 0.3."""

    def __init__(self, app):
        super().__init__(app)
        self.served = app

    def call(self, method, params=None, id=1, **options):
        return super().call(method, params, id, headers=HEADERS, **options)

    def events(self, method, params):
        """The answers of a stream."""
        with self.stream(method, params, headers=HEADERS) as stream:
            return [frame.json for frame in stream.frames() if frame.field("data") is not None]


def app_of(wire):
    """The app itself."""
    return wire.served


def handler(message, context):
    if message.text == "ask":
        return InputRequired("Which?")
    if message.text == "stream":
        return (piece for piece in ("a", "b"))
    return f"echo: {message.text}"
