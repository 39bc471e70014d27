"""A message as commands that send it again: with curl, and with the client in Python. Credentials are never part of them."""

from __future__ import annotations

import json
import shlex

from a2a_sync.codec import by_version
from a2a_sync.operations import GET_TASK, SEND_MESSAGE
from a2a_sync.types import GetTaskRequest, Message, SendMessageRequest


def as_curl(address: str, message: Message, *, version: str = "1.0", secured: bool) -> str:
    """The command that sends `message` to the agent at `address` over JSON-RPC of a protocol version."""
    codec = by_version(version)
    fresh = Message(role=message.role, parts=message.parts, message_id=message.message_id)
    params = codec.dump(SendMessageRequest(message=fresh))
    body = {"jsonrpc": "2.0", "id": 1, "method": codec.method(SEND_MESSAGE), "params": params}
    lines = [
        f"curl -sS {shlex.quote(address)}",
        "  -H 'Content-Type: application/json'",
        f"  -H 'A2A-Version: {version}'",
    ]
    lines += ['  -H "Authorization: $A2A_SYNC_AUTH"'] if secured else []
    return " \\\n".join([*lines, f"  -d {shlex.quote(json.dumps(body))}"])


def as_python(address: str, message: Message, *, secured: bool) -> str:
    """The program that sends the text of `message`."""
    auth = ', auth=os.environ["A2A_SYNC_AUTH"]' if secured else ""
    imports = ["import os", ""] if secured else []
    lines = ["from a2a_sync import Client", "", f"client = Client({address!r}{auth})"]
    return "\n".join([*imports, *lines, f"print(client.send({message.text!r}).text)"])


def read_request(address: str, task_id: str, version: str) -> dict[str, object]:
    """The request that reads a task over JSON-RPC, as the pages turn requests into commands."""
    codec = by_version(version)
    params = codec.dump(GetTaskRequest(id=task_id))
    return {
        "method": "POST",
        "url": address,
        "headers": {"Content-Type": "application/json", "A2A-Version": version},
        "body": {"jsonrpc": "2.0", "id": 1, "method": codec.method(GET_TASK), "params": params},
    }
