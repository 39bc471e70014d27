"""Protocol 0.3 over the wire, for systems C and E."""

from __future__ import annotations

from a2a_sync import InputRequired
from a2a_sync.types import new_id
from tests.wsgi import Peer

HEADERS = {"A2A-Version": "0.3"}
#: The methods with one response.
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


def send_params(text, **members):
    """The parameters of `message/send`."""
    message = {"kind": "message", "messageId": new_id(), "role": "user", "parts": [{"kind": "text", "text": text}]}
    return {"message": {**message, **members}}


class Wire(Peer):
    """An app, called with protocol 0.3."""

    def __init__(self, app):
        super().__init__(app)
        self.served = app

    def call(self, method, params=None, id=1, **options):
        return super().call(method, params, id, headers=HEADERS, **options)

    def events(self, method, params):
        """The events of a streaming method."""
        with self.stream(method, params, headers=HEADERS) as stream:
            return [frame.json for frame in stream.frames() if frame.field("data") is not None]


def app_of(wire):
    """The app behind a `Wire`."""
    return wire.served


def handler(message, context):
    if message.text == "ask":
        return InputRequired("Which?")
    if message.text == "stream":
        return (piece for piece in ("a", "b"))
    return f"echo: {message.text}"
