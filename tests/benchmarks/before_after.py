"""Compares the processor time of this tree with that of an earlier commit: ``python -m tests.benchmarks.before_after 86c3ad1``.

Each tree has a process of its own, which makes a stretch of requests when it is asked to; the two take turns, and the order within a
pair changes from pair to pair. What is measured is the processor time of all threads of the process for each request, in
process (without a server and sockets), so other work on the machine has little effect on the ratio of a pair. A stretch begins
with a fresh app and store.

The table has, for each row, the smallest and the median processor time of both trees, and the median of the ratios of the pairs
with an interval of at least 95 % (order statistics; no distribution is assumed).

With ``--instructions`` Valgrind counts the machine instructions of a request instead, of the whole process without the kernel. They
vary by less than 1 % whatever else the machine does, but do not include waits and the effects of caches.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
#: Requests of a stretch that are not measured.
WARM = 30
#: Requests of the two runs whose instructions are counted.
FEW, MANY = 100, 300
TIMEOUT = 120.0

# -- a process of one tree: only what both trees have is used ----------------------------------------------------------

_CARD = "/.well-known/agent-card.json"
_MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def _request(verb: str, path: str, body: bytes, host: str) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": verb,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "agent.test",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": host,
        "HTTP_A2A_VERSION": "1.0",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def _exchange(app: Any, verb: str, path: str, body: bytes, host: str = "agent.test") -> bytes:
    answer = app(_request(verb, path, body, host), lambda status, headers, exc_info=None: lambda data: None)
    try:
        return b"".join(answer)
    finally:
        getattr(answer, "close", lambda: None)()


def _post(app: Any, method: str, params: Any) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    answer = _exchange(app, "POST", "/", body)
    if b'"error"' in answer or not answer:
        raise SystemExit(f"{method} failed: {answer[:300]!r}")
    return answer


def _handler(message: Any, context: Any) -> Any:
    return (f"piece {n} " for n in range(20)) if message.text == "stream" else message.text


@contextmanager
def _app(folder: str, *, sqlite: bool) -> Iterator[Any]:
    from a2a_sync import A2AApp, Agent, MemoryStore, SQLiteStore

    agent = Agent("measured", description="Answers at once")
    agent.message(_handler)
    store = SQLiteStore(os.path.join(folder, f"{time.monotonic_ns()}.db")) if sqlite else MemoryStore()
    app = A2AApp(agent, store=store)
    try:
        yield app
    finally:
        app.close()


def _sends(app: Any) -> Callable[[], object]:
    return lambda: _post(app, "SendMessage", {"message": _MESSAGE})


def _streams(app: Any) -> Callable[[], object]:
    message = {**_MESSAGE, "parts": [{"text": "stream"}]}
    return lambda: _post(app, "SendStreamingMessage", {"message": message})


def _reads(app: Any) -> Callable[[], object]:
    task = json.loads(_post(app, "SendMessage", {"message": _MESSAGE}))["result"]["task"]["id"]
    return lambda: _post(app, "GetTask", {"id": task})


def _cards(app: Any) -> Callable[[], object]:
    return lambda: _exchange(app, "GET", _CARD, b"")


def _client_sends(app: Any) -> Callable[[], object]:
    """Sends of a client over a socket. The answers of an app are repeated by another process, which is not measured."""
    client = _client()
    return lambda: client.send("hello")


@cache
def _client() -> Any:
    """A client of a server process that ends with this one; both are used by all stretches."""
    from a2a_sync import Client

    server = subprocess.Popen(
        [sys.executable, __file__, "--repeat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    host = f"127.0.0.1:{int(server.stdout.readline())}"
    message = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": _MESSAGE}}
    with _app("", sqlite=False) as app:
        answers = {
            "GET": ("application/json", _exchange(app, "GET", _CARD, b"", host).decode()),
            "POST": ("text/event-stream", _exchange(app, "POST", "/", json.dumps(message).encode(), host).decode()),
        }
    print(json.dumps(answers), file=server.stdin, flush=True)
    client = Client(f"http://{host}")
    assert client.send("hello").text == "hello"
    return client


def repeat() -> None:
    """Serve connections that are kept: each request gets the answer for its verb, whatever it contains."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        answers = {
            verb: f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()
            for verb, (kind, body) in json.loads(sys.stdin.readline()).items()
        }
        threading.Thread(target=_accept, args=(listener, answers), daemon=True).start()
        sys.stdin.read()  # until the process that started this one has ended


def _accept(listener: socket.socket, answers: dict[str, bytes]) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_repeat_on, args=(connection, answers), daemon=True).start()


def _repeat_on(connection: socket.socket, answers: dict[str, bytes]) -> None:
    with connection, connection.makefile("rb") as stream:
        while line := stream.readline():
            length = 0
            while (header := stream.readline().lower().strip()) != b"":
                if header.startswith(b"content-length:"):
                    length = int(header.partition(b":")[2])
            stream.read(length)
            connection.sendall(answers[line.split()[0].decode()])


#: The rows: their names, their calls, the store, and the requests of a stretch.
ROWS: dict[str, tuple[Callable[[Any], Callable[[], object]], bool, int]] = {
    "a blocking send, memory": (_sends, False, 250),
    "a blocking send, SQLite": (_sends, True, 150),
    "a stream of 20 pieces, memory": (_streams, False, 60),
    "a stream of 20 pieces, SQLite": (_streams, True, 40),
    "GetTask": (_reads, False, 500),
    "the agent card": (_cards, False, 1500),
    "a client's send": (_client_sends, False, 250),
}


def serve() -> None:
    """Read names of rows from standard input; measure a stretch for each, and write its seconds for each request."""
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            make, sqlite, count = ROWS[line.strip()]
            with _app(folder, sqlite=sqlite) as app:
                call = make(app)
                for _ in range(WARM):
                    call()
                gc.collect()
                began = time.process_time()
                for _ in range(count):
                    call()
                spent = time.process_time() - began
            print(spent / count, flush=True)


def repeat_call(row: str, requests: int) -> None:
    """Make so many requests of a row, for a counter outside of the process."""
    make, sqlite, _ = ROWS[row]
    with tempfile.TemporaryDirectory() as folder, _app(folder, sqlite=sqlite) as app:
        call = make(app)
        for _ in range(requests):
            call()


# -- the comparison ----------------------------------------------------------------------------------------------------


class Tree:
    """A process that measures the package of one folder."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, row: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(row, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that measures {row!r} has ended; its error is above")
        return float(line)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT)


def instructions(folder: Path, row: str) -> float:
    """The instructions of a request with the package of a folder: the difference between a run with few and one with many."""
    totals = []
    for requests in (FEW, MANY):
        counter = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
        done = subprocess.run(
            [*counter, sys.executable, __file__, "--call", row, str(requests)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        found = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode or found is None:
            raise SystemExit(f"the process that counts {row!r} has failed: {done.stderr[-3000:]}")
        totals.append(int(found[1]))
    return (totals[1] - totals[0]) / (MANY - FEW)


def interval(ratios: list[float]) -> tuple[float, float]:
    """The narrowest interval between two of the sorted `ratios` that holds their median with 95 %."""
    ordered, n = sorted(ratios), len(ratios)
    outside = [2 * sum(comb(n, k) for k in range(low + 1)) / 2**n for low in range(n // 2)]
    low = max((index for index, chance in enumerate(outside) if chance <= 0.05), default=0)
    return ordered[low], ordered[n - 1 - low]


def row_text(name: str, before: list[float], after: list[float]) -> str:
    """One line of the table, with times in microseconds."""
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    low, high = interval(ratios)
    times = " | ".join(f"{min(one) * 1e6:,.0f} / {median(one) * 1e6:,.0f}" for one in (before, after))
    return f"| {name} | {times} | {median(ratios):.2f} | {low:.2f} to {high:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.before_after", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("commit", nargs="?", help="the commit to compare this tree with")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each row, at least 6 (20)")
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions with Valgrind instead (minutes a row)"
    )
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=[*ROWS], metavar="ROW", help="some rows, by their names"
    )
    parser.add_argument("--call", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--repeat", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve or options.repeat:
        (serve if options.serve else repeat)()
        return
    if options.call:
        repeat_call(options.call[0], int(options.call[1]))
        return
    if not options.commit or options.pairs < 6:
        parser.error("needs a commit, and at least 6 pairs")
    if options.instructions and shutil.which("valgrind") is None:
        parser.error("--instructions needs the command valgrind: install the package of that name")
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", options.commit, "a2a_sync"], cwd=ROOT, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        if options.instructions:
            print(f"| instructions of a request | {options.commit} | now | ratio |\n|---|---:|---:|---:|")
            for row in options.rows:
                old, new = (instructions(one, row) for one in (Path(folder), ROOT))
                print(f"| {row} | {old:,.0f} | {new:,.0f} | {new / old:.3f} |", flush=True)
            return
        trees = [Tree(Path(folder)), Tree(ROOT)]
        found: dict[str, tuple[list[float], list[float]]] = {row: ([], []) for row in options.rows}
        try:
            for pair in range(options.pairs):
                for row, times in found.items():
                    for index in (0, 1) if pair % 2 == 0 else (1, 0):
                        times[index].append(trees[index].measure(row))
                print(f"pair {pair + 1} of {options.pairs}", file=sys.stderr)
        finally:
            for tree in trees:
                tree.close()
    print(
        f"| processor time of a request | {options.commit}: min / median µs | now: min / median µs | ratio | 95 % interval |"
    )
    print("|---|---:|---:|---:|---:|")
    for row, (before, after) in found.items():
        print(row_text(row, before, after))


if __name__ == "__main__":
    main()
