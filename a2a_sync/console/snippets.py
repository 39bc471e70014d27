"""A message as commands that send it again: with curl, and with the client in Python. Credentials are never part of them."""

from __future__ import annotations

import json
import shlex

from a2a_sync.codec import by_version
from a2a_sync.types import Message, SendMessageRequest


def as_curl(address: str, message: Message, *, secured: bool) -> str:
    """The command that sends `message` to the agent at `address` over JSON-RPC."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": _params(message)}
    lines = [f"curl -sS {shlex.quote(address)}", "  -H 'Content-Type: application/json'", "  -H 'A2A-Version: 1.0'"]
    lines += ['  -H "Authorization: $A2A_SYNC_AUTH"'] if secured else []
    return " \\\n".join([*lines, f"  -d {shlex.quote(json.dumps(body))}"])


def as_python(address: str, message: Message, *, secured: bool) -> str:
    """The program that sends the text of `message`."""
    auth = ', auth=os.environ["A2A_SYNC_AUTH"]' if secured else ""
    imports = ["import os", ""] if secured else []
    lines = ["from a2a_sync import Client", "", f"client = Client({address!r}{auth})"]
    return "\n".join([*imports, *lines, f"print(client.send({message.text!r}).text)"])


def _params(message: Message) -> object:
    fresh = Message(role=message.role, parts=message.parts, message_id=message.message_id)
    return by_version("1.0").dump(SendMessageRequest(message=fresh))
