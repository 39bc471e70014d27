"""The upper bound for a store in SQLite: `floor`, with the two transactions of a send (``gunicorn floor_sqlite:app``).

They have the tables and statements of `SQLiteStore`, on one connection behind a lock, and nothing else of the library. FILE names the file.
"""

import json
import os
import sqlite3
import threading
import time
import uuid

import floor

from a2a_sync.stores.sqlite import schema

lock = threading.Lock()
sql = schema.Statements("a2a_")
connection: sqlite3.Connection


def connect() -> None:
    """Open the file in the worker: gunicorn imports this module before it forks only with ``--preload``."""
    global connection
    connection = sqlite3.connect(os.environ["FILE"], timeout=5, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = wal", "synchronous = normal", "cache_size = -8192", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")
    schema.prepare(connection, "a2a_")


def answer(message: dict, text: str) -> dict:
    ids = {"taskId": str(uuid.uuid4()), "contextId": str(uuid.uuid4())}
    begun = {"state": "TASK_STATE_WORKING", "timestamp": floor.now()}
    key = start(ids, begun, {**message, **ids})
    artifact = {"artifactId": str(uuid.uuid4()), "parts": [{"text": text}]}
    reply = {"messageId": str(uuid.uuid4()), "role": "ROLE_AGENT", "parts": [{"text": text}], **ids}
    ended = {"state": "TASK_STATE_COMPLETED", "timestamp": floor.now()}
    end(ids, key, ended, artifact, reply)
    return {
        "id": ids["taskId"],
        "contextId": ids["contextId"],
        "status": ended,
        "artifacts": [artifact],
        "history": [message, reply],
    }


def start(ids: dict, status: dict, message: dict) -> int:
    """The transaction before the run: the task, its request, the message and two states."""
    at, state = time.time_ns() // 1_000_000, dump({"statusUpdate": {**ids, "status": status}})
    entries = ((0, dump({"message": message})), (1, state), (1, state))
    size = sum(len(body) for _, body in entries)
    task = (ids["taskId"], "", "", ids["contextId"], "working", 0, at, dump(status), 3, 1, 0, None, ids["taskId"])
    with lock:
        connection.execute("BEGIN IMMEDIATE")
        key = connection.execute(sql.create, (*task, 0, size, size, at, at)).lastrowid
        connection.execute(sql.put_request, (schema.place(key, 0), b'{"entry": 1}'))
        connection.executemany(sql.put, rows(key, 1, entries, at))
        connection.execute("COMMIT")
    return key


def end(ids: dict, key: int, status: dict, artifact: dict, reply: dict) -> None:
    """The transaction after it: the artifact, the reply and the last state."""
    at = time.time_ns() // 1_000_000
    update = {"artifactUpdate": {**ids, "artifact": artifact}}
    entries = ((2, dump(update)), (0, dump({"message": reply})), (1, dump({"statusUpdate": {**ids, "status": status}})))
    size = sum(len(body) for _, body in entries)
    with lock:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute(sql.head, (ids["taskId"],)).fetchone()
        size += row[-2]
        values = (6, 5, 1, size, size, "completed", 1, at, dump(status), None, None, at, key)
        connection.execute(sql.change, values)
        connection.executemany(sql.put, rows(key, 4, entries, at))
        connection.execute("COMMIT")


def rows(key: int, first: int, entries: tuple, at: int) -> list:
    return [(schema.place(key, number), kind, None, body, at) for number, (kind, body) in enumerate(entries, first)]


def dump(value: object) -> bytes:
    return json.dumps(value).encode()


floor.answer = answer
connect()
app = floor.app
