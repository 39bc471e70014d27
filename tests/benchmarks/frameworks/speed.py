"""Streamed sends a second of the two servers of a pair, in turn, with the processor time of each."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.frameworks.pairs import PAIRS, Compared
from tests.benchmarks.load import Exchange, Sample, WrongAnswer

ROUNDS, SECONDS = 3, 3.0
#: For a server that is new in each round.
WARM_UP_SECONDS = 0.5
#: The words of the message, and so the pieces of the answer.
WORDS = 100
_TEXT = " ".join(f"w{number}" for number in range(WORDS))
_numbers = itertools.count(1)


class Speed(NamedTuple):
    """Streamed sends a second of ours and theirs, milliseconds of processor time for each send, and their ratios."""

    ours: float
    theirs: float
    ratio: float
    ours_cpu: float
    theirs_cpu: float
    cpu: float


def streamed(server: Compared) -> Callable[[], Exchange]:
    """Streamed sends of one message in the version that the card of the server names."""

    def ask() -> Exchange:
        number = next(_numbers)
        if server.version.startswith("1"):
            message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": _TEXT}]}
            method = "SendStreamingMessage"
        else:
            parts = [{"kind": "text", "text": _TEXT}]
            message = {"kind": "message", "messageId": f"m-{number}", "role": "user", "parts": parts}
            method = "message/stream"
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {"message": message}}).encode()
        head = (
            f"POST {server.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
            f"A2A-Version: {server.version[:3]}\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return Exchange(head.encode() + body, _check)

    return ask


def _check(body: bytearray) -> None:
    """The stream has the last word of the answer, after the echoed message, and ends with a completed task."""
    if body.count(f"w{WORDS - 1}.".encode()) < 1 or b"completed" not in body[-4000:].lower():
        raise WrongAnswer(bytes(body[-1500:]).decode(errors="replace"))


def measure(name: str, folder: Path) -> Speed:
    """Start both servers and send load to them in turn."""

    def load(server: Compared, seconds: float = SECONDS) -> Sample:
        return server.load(streamed(server), connections=PAIRS[name].connections, seconds=seconds)

    def load_new(side: str) -> Sample:
        with Compared(name, side, "speed", folder) as server:
            load(server, WARM_UP_SECONDS)
            return load(server)

    if PAIRS[name].restarts:
        pairs = [(load_new("ours"), load_new("theirs")) for _ in range(ROUNDS)]
    else:
        with Compared(name, "ours", "speed", folder) as ours, Compared(name, "theirs", "speed", folder) as theirs:
            for server in (ours, theirs):
                load(server)
            pairs = [(load(ours), load(theirs)) for _ in range(ROUNDS)]
    mine, other = zip(*pairs, strict=True)
    rates = [sum(len(one.latencies) for one in side) / sum(one.seconds for one in side) for side in (mine, other)]
    cpu = [statistics.median(one.cpu for one in side) for side in (mine, other)]
    return Speed(*rates, rates[0] / rates[1], *(1000 * one for one in cpu), cpu[1] / cpu[0])
