"""The upper bound for a WSGI server: ``gunicorn floor:app`` answers like an A2A agent and does nothing else.

No checks, no store, no library: it parses JSON, passes one call to a pool thread that creates the task, and writes JSON. A
stream is produced by a thread through a queue. It implements as much of the protocol as clients require.
"""

import json
import os
import queue
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

pool = ThreadPoolExecutor(64)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def status(ids: dict, state: str) -> dict:
    return {"statusUpdate": {**ids, "status": {"state": state, "timestamp": now()}}}


def answer(message: dict, text: str) -> dict:
    return {
        "id": str(uuid.uuid4()),
        "contextId": str(uuid.uuid4()),
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": now()},
        "artifacts": [{"artifactId": str(uuid.uuid4()), "parts": [{"text": text}]}],
        "history": [message],
    }


def produce(message: dict, text: str, out: queue.SimpleQueue) -> None:
    ids = {"taskId": str(uuid.uuid4()), "contextId": str(uuid.uuid4())}
    begun = {"state": "TASK_STATE_WORKING", "timestamp": now()}
    out.put({"task": {"id": ids["taskId"], "contextId": ids["contextId"], "status": begun, "history": [message]}})
    count = int(text.partition(":")[2]) if text.startswith("stream:") else 0
    pieces = [f"chunk {number} of the answer " for number in range(count)] or [text]
    for number, piece in enumerate(pieces):
        artifact = {"artifactId": "answer", "parts": [{"text": piece}]}
        out.put({"artifactUpdate": {**ids, "artifact": artifact, "append": number > 0}})
    out.put(status(ids, "TASK_STATE_COMPLETED"))
    out.put(None)


def frames(request_id: object, message: dict, text: str):
    out = queue.SimpleQueue()
    pool.submit(produce, message, text, out)
    for event in iter(out.get, None):
        yield b"data: " + json.dumps({"jsonrpc": "2.0", "id": request_id, "result": event}).encode() + b"\n\n"


card = json.dumps(
    {
        "name": "Echo",
        "description": "Echoes text",
        "version": "1.0.0",
        "supportedInterfaces": [
            {
                "url": f"http://127.0.0.1:{os.environ.get('PORT', '8000')}/",
                "protocolBinding": "JSONRPC",
                "protocolVersion": "1.0",
            }
        ],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Echoes text", "tags": ["echo"]}],
    }
).encode()


def app(environ, start_response):
    if environ["REQUEST_METHOD"] == "GET":
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(card)))])
        return [card]
    request = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    message = request["params"]["message"]
    text = message["parts"][0]["text"]
    if request["method"] == "SendStreamingMessage":
        start_response("200 OK", [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")])
        return frames(request["id"], message, text)
    task = pool.submit(answer, message, text).result()
    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"task": task}}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
