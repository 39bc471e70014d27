"""Prints the stacks of sends or streams with their processor time in nanoseconds: ``python stacks.py send 300``.

It is run with another ``PYTHONPATH`` for another release, so it uses the public interface only. Sampling profilers attribute time
wrongly where threads hand the interpreter lock to each other; this one follows every call, with the processor time of its thread.
The cost of following a call, measured at functions that do nothing, is subtracted; the rest is scaled to the
processor time without it, the smallest of some batches.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from a2a_sync import A2AApp, Agent, MemoryStore

_clock = time.thread_time_ns


class Recorder:
    """The processor time of each stack of one thread."""

    def __init__(self, name: str, cost: int) -> None:
        self.times: Counter[tuple[str, ...]] = Counter()
        self._stack = [name]
        self._cost = cost
        self._last = _clock()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        spent = _clock() - self._last - self._cost
        self.times[tuple(self._stack)] += max(spent, 0)
        if event == "call":
            self._stack.append(_named(frame))
        elif event == "c_call":
            self._stack.append(f"{getattr(argument, '__qualname__', argument)} (C)")
        elif len(self._stack) > 1:
            self._stack.pop()
        self._last = _clock()


def _cost_of_event() -> int:
    """The median time between two events of functions that do nothing."""

    def nothing() -> None:
        pass

    spent: list[int] = []
    last = 0

    class Timed(Recorder):
        def __call__(self, frame: FrameType, event: str, argument: object) -> None:
            nonlocal last
            spent.append(_clock() - last)
            super().__call__(frame, event, argument)
            last = _clock()

    sys.setprofile(Timed("nothing", 0))
    for _ in range(5_000):
        nothing()
    sys.setprofile(None)
    return sorted(spent)[len(spent) // 2]


def _named(frame: FrameType) -> str:
    code = frame.f_code
    path = Path(code.co_filename)
    module = path.parent.name if path.stem == "__init__" else path.stem
    return f"{module}.{code.co_qualname}" if hasattr(code, "co_qualname") else f"{module}.{code.co_name}"


class Echo(Agent):
    """Echoes text, or streams."""

    name = "Echo"

    def handle_message(self, message, context):  # type: ignore[no-untyped-def]
        kind, _, count = message.text.partition(":")
        return self.chunks(int(count)) if kind == "stream" else message.text

    def chunks(self, count: int) -> Iterator[str]:
        for number in range(count):
            yield f"chunk {number} of the answer "


def call(app: A2AApp, method: str, text: str, number: int) -> None:
    message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": text}]}
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {"message": message}}).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "HTTP_HOST": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json",
        "HTTP_A2A_VERSION": "1.0",
    }
    answer = app(environ, lambda status, headers, exc_info=None: None)
    received = b"".join(answer)
    if hasattr(answer, "close"):
        answer.close()
    assert b"TASK_STATE_COMPLETED" in received, received


def main(operation: str, count: int) -> None:
    method, text = ("SendMessage", "a question") if operation == "send" else ("SendStreamingMessage", "stream:10")
    cost = _cost_of_event()
    recorders: list[Recorder] = []

    def recorder_of_thread(frame: FrameType, event: str, argument: object) -> None:
        recorders.append(Recorder("run thread", cost))
        sys.setprofile(recorders[-1])

    unobserved = _smallest_time(method, text, count)
    threading.setprofile(recorder_of_thread)
    app = A2AApp(Echo(), store=MemoryStore())
    for number in range(count // 3):
        call(app, method, text, number)
    for recorder in recorders:
        recorder.times.clear()
    recorders.append(Recorder("request thread", cost))
    sys.setprofile(recorders[-1])
    for number in range(count):
        call(app, method, text, number)
    sys.setprofile(None)
    total: Counter[tuple[str, ...]] = Counter()
    for recorder in recorders:
        total.update(recorder.times.copy())
    scale = unobserved / sum(total.values())
    for stack, spent in sorted(total.items()):
        print(";".join(stack), round(spent * scale))


def _smallest_time(method: str, text: str, count: int) -> float:
    """The nanoseconds of processor time of one call, without a recorder."""
    app = A2AApp(Echo(), store=MemoryStore())
    batches = []
    for _ in range(12):
        begun = time.process_time_ns()
        for number in range(count // 4):
            call(app, method, text, number)
        batches.append((time.process_time_ns() - begun) / (count // 4))
    app.close()
    return min(batches)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
