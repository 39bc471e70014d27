"""Requests of the generator, and the checks of their responses (protocol 1.0, JSON-RPC)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from tests.benchmarks.load import Exchange, WrongAnswer

_numbers = itertools.count(1)
_COMPLETED = "TASK_STATE_COMPLETED"


class Prepared:
    """Exchanges that are made before the load and checked after it, where the generator shares a core with a server."""

    def __init__(self, ask: Callable[[], Exchange], count: int) -> None:
        self._made = [ask() for _ in range(count)]
        self._answers: list[tuple[Callable[[bytearray], None], bytearray]] = []

    def ask(self) -> Exchange:
        """The next exchange; IndexError after the last one."""
        request, check = self._made.pop()
        return Exchange(request, lambda body: self._answers.append((check, body)))

    def check(self) -> None:
        """Check all responses."""
        for check, body in self._answers:
            check(body)


def _post(method: str, params: dict[str, Any]) -> tuple[int, bytes]:
    number = next(_numbers)
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return number, head.encode() + body


def _message(text: str, **more: Any) -> dict[str, Any]:
    return {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}], **more}


def _expect(condition: bool, what: str, body: bytearray) -> None:
    if not condition:
        raise WrongAnswer(f"{what}: {bytes(body[:1000])!r}")


def _text(artifact: dict[str, Any]) -> str:
    return "".join(part["text"] for part in artifact["parts"])


def _result(number: int, body: bytearray) -> dict[str, Any]:
    answer = json.loads(body)
    _expect("result" in answer and answer["id"] == number, f"no result for request {number}", body)
    result: dict[str, Any] = answer["result"]
    return result


def send(note: Callable[[dict[str, Any]], None] | None = None) -> Exchange:
    """A blocking send of a unique text (about 64 characters), echoed by a completed task; `note` receives the task."""
    text = f"a question of the length that questions have, it is number {next(_numbers)}"
    number, request = _post("SendMessage", {"message": _message(text)})

    def check(body: bytearray) -> None:
        task = _result(number, body)["task"]
        _expect(task["status"]["state"] == _COMPLETED, "the task is not completed", body)
        _expect([_text(artifact) for artifact in task["artifacts"]] == [text], "the text was not echoed", body)
        if note is not None:
            note(task)

    return Exchange(request, check)


def accepted() -> Exchange:
    """A send to a server that answers before its agent has run."""
    number, request = _post("SendMessage", {"message": _message("stream:1")})
    return Exchange(request, lambda body: _expect("task" in _result(number, body), "no task", body))


def notified(urls: list[str]) -> Callable[[], Exchange]:
    """Blocking sends whose tasks notify these receivers in turn."""
    ring = itertools.cycle(urls)

    def ask() -> Exchange:
        configuration = {"taskPushNotificationConfig": {"url": next(ring)}}
        number, request = _post("SendMessage", {"message": _message("a question"), "configuration": configuration})

        def check(body: bytearray) -> None:
            state = _result(number, body)["task"]["status"]["state"]
            _expect(state == _COMPLETED, "the task is not completed", body)

        return Exchange(request, check)

    return ask


def echo(size: int) -> Callable[[], Exchange]:
    """Blocking sends of a text of `size` bytes."""
    text = "abcdefghijklmnopqrstuvwxyz 0123456789 " * (size // 38)
    quoted = b'"' + text.encode() + b'"'

    def ask() -> Exchange:
        def check(body: bytearray) -> None:
            artifacts = body.find(b'"artifacts"')
            _expect(_COMPLETED.encode() in body and artifacts > 0, "the task is not completed", body)
            _expect(body.find(quoted, artifacts) > 0, "the text was not echoed", body)

        return Exchange(_post("SendMessage", {"message": _message(text)})[1], check)

    return ask


def stream(chunks: int) -> Callable[[], Exchange]:
    """Streamed sends that answer with so many chunks of one artifact."""
    expected = "".join(f"chunk {number} of the answer " for number in range(chunks))

    def ask() -> Exchange:
        number, request = _post("SendStreamingMessage", {"message": _message(f"stream:{chunks}")})

        def check(body: bytearray) -> None:
            answer, state = _follow(number, body)
            _expect(answer == expected, "the chunks are not all there, or not in order", body)
            _expect(state == _COMPLETED, "the stream does not end with the task", body[-1000:])

        return Exchange(request, check)

    return ask


def _follow(number: int, body: bytearray) -> tuple[str, str]:
    """The text of the artifact that a stream's events make, and the last state."""
    text: list[str] = []
    state = ""
    for line in body.split(b"\n"):
        if line.startswith(b"data:"):
            event = _result(number, line[5:])
            if update := event.get("artifactUpdate"):
                # An event that does not append has the artifact so far.
                text = [*(text if update.get("append") else ()), _text(update["artifact"])]
            else:
                state = next(iter(event.values()))["status"]["state"]
    return "".join(text), state


def held(seconds: float) -> Callable[[], Exchange]:
    """Streamed sends to an agent that waits this long before it answers."""

    def ask() -> Exchange:
        number, request = _post("SendStreamingMessage", {"message": _message(f"sleep:{seconds}")})
        return Exchange(request, lambda body: _expect(_follow(number, body)[1] == _COMPLETED, "it did not end", body))

    return ask


def get(tasks: list[dict[str, Any]]) -> Callable[[], Exchange]:
    """GetTask for these tasks in turn."""
    ring = itertools.cycle(tasks)

    def ask() -> Exchange:
        task = next(ring)
        number, request = _post("GetTask", {"id": task["id"]})

        def check(body: bytearray) -> None:
            got = _result(number, body)
            _expect(got["id"] == task["id"] and _text(got["artifacts"][0]) == _text(task["artifacts"][0]), "no", body)

        return Exchange(request, check)

    return ask


def card() -> Exchange:
    """The agent card."""
    request = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    return Exchange(request, lambda body: _expect(json.loads(body)["name"] == "Echo", "another card", body))


def turn(task: dict[str, Any], *, history: int | None = 0) -> Exchange:
    """Another turn of `task`; an empty dict starts a new task and is filled in.

    `history` is the requested number of messages (None: all).
    """
    ids = {"taskId": task["id"], "contextId": task["contextId"]} if task else {}
    params: dict[str, Any] = {"message": _message("turn: and then?", **ids)}
    if history is not None:
        params["configuration"] = {"historyLength": history}
    number, request = _post("SendMessage", params)

    def check(body: bytearray) -> None:
        got = _result(number, body)["task"]
        _expect(got["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", "no turn", body)
        _expect(bool(got.pop("history", None)) == (history != 0), "another history than asked for", body)
        task.update(got)

    return Exchange(request, check)


def page(total: int) -> Exchange:
    """The first page of ListTasks, which must count at least `total` tasks."""
    number, request = _post("ListTasks", {"pageSize": 50})

    def check(body: bytearray) -> None:
        got = _result(number, body)
        _expect(len(got["tasks"]) == 50 and got["totalSize"] >= total, "not the page asked for", body)

    return Exchange(request, check)
