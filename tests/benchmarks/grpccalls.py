"""The gRPC binding: load, beside a2a-sdk's gRPC server and beside our own JSON-RPC."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import grpc.aio

from a2a_sync.bindings import protobuf
from tests.benchmarks import exchanges, servers
from tests.benchmarks.load import Sample, WrongAnswer
from tests.benchmarks.rows import CHUNKS, Row, alternate, at_least, at_most, load, row, throughput
from tests.benchmarks.servers import Server, Setup

OURS = Setup("ours", ("grpc_ours.py",))
MANY = Setup("ours", ("grpc_ours.py",), {"RUNS": "600"})
SDK = Setup("sdk", ("grpc_sdk.py",))
#: The limit of all waits in seconds.
LIMIT = 120.0
HELD = 500
_SEND, _STREAM = (protobuf.methods("1.0")[name] for name in ("SendMessage", "SendStreamingMessage"))
_numbers = itertools.count(1)


def grpc_binding() -> Iterator[Row]:
    """Sends and streams over gRPC, beside a2a-sdk's gRPC server and our own JSON-RPC, and the memory of open streams."""
    with ExitStack() as stack:
        ours, sdk = (stack.enter_context(GRPCServer(setup)) for setup in (OURS, SDK))
        http = stack.enter_context(Server(servers.MEMORY))
        mine, theirs, plain = alternate(partial(ours.calls, send), partial(sdk.calls, send), load(http, exchanges.send))
        yield throughput("blocking send over gRPC / a2a-sdk over gRPC", mine, theirs, at_least(3, 4))
        costs = [[sample.cpu * 1e3 for sample in samples] for samples in (mine, plain)]
        yield row("processor time of a send over gRPC / JSON-RPC", *costs, "ms", at_most(1.3, 1.1))
        mine, theirs = alternate(partial(ours.calls, stream), partial(sdk.calls, stream))
        yield throughput("streamed send over gRPC / a2a-sdk over gRPC", mine, theirs, at_least(3, 4))
    each = [[_held_each(setup)] for setup in (MANY, SDK)]
    yield row(f"{HELD} open streams over gRPC / a2a-sdk over gRPC, memory each", *each, "KB", at_most(0.75, 0.5))


class GRPCServer(Server):
    """A server that is called over gRPC."""

    def _try(self, seconds: float) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            try:
                grpc.channel_ready_future(channel).result(min(seconds, 1.0))
            except grpc.FutureTimeoutError:
                raise OSError("it does not listen yet") from None

    def calls(self, call: Callable[[Any], Any], *, connections: int = 16, seconds: float = 1.0) -> Sample:
        """Make calls for a while, one at a time on each connection; warm-up and processor time are as with `load`."""
        before = self.cpu()
        sample = asyncio.run(_drive(self.port, call, connections, seconds))
        sample.cpu = (self.cpu() - before) / sample.answers
        return sample


def _channel(port: int) -> Any:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=(("grpc.use_local_subchannel_pool", 1),))


async def _drive(port: int, call: Callable[[Any], Any], connections: int, seconds: float, warm: float = 0.3) -> Sample:
    sample = Sample()
    counted_from = time.perf_counter() + warm

    async def repeat() -> None:
        async with _channel(port) as channel:
            while (begun := time.perf_counter()) < counted_from + seconds:
                await asyncio.wait_for(call(channel), LIMIT)
                sample.answers += 1
                if begun >= counted_from:
                    sample.latencies.append(time.perf_counter() - begun)

    await asyncio.gather(*(repeat() for _ in range(connections)))
    sample.seconds = time.perf_counter() - counted_from
    return sample


def _request(text: str) -> bytes:
    message = {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return protobuf.encode_request("SendMessage", {"message": message}, "1.0")


def _expect(condition: bool, what: str, answer: Any) -> None:
    if not condition:
        raise WrongAnswer(f"{what}: {str(answer)[:1000]}")


async def send(channel: Any) -> None:
    """As `exchanges.send`."""
    text = f"a question of the length that questions have, it is number {next(_numbers)}"
    task = _SEND.response.FromString(await channel.unary_unary(_SEND.path)(_request(text))).task
    _expect(task.status.state == 3, "the task is not completed", task)
    _expect([part.text for artifact in task.artifacts for part in artifact.parts] == [text], "no echo", task)


async def stream(channel: Any) -> None:
    """As `exchanges.stream`."""
    text, event = "", None
    async for data in channel.unary_stream(_STREAM.path)(_request(f"stream:{CHUNKS}")):
        event = _STREAM.response.FromString(data)
        if event.HasField("artifact_update"):
            update = event.artifact_update
            # As in `exchanges`: an event that does not append has the artifact so far.
            text = (text if update.append else "") + "".join(part.text for part in update.artifact.parts)
    expected = "".join(f"chunk {number} of the answer " for number in range(CHUNKS))
    _expect(text == expected, "the chunks are not all there, or not in order", text)
    _expect(event is not None and event.status_update.status.state == 3, "the stream does not end with the task", event)


def _held_each(setup: Setup, silent: float = 20.0) -> float:
    """The memory of an open stream in kilobytes; the streams share 16 connections, and have to end correctly."""
    with GRPCServer(setup) as server:
        base = server.memory()
        return (asyncio.run(_hold(server, silent)) - base) / HELD / 1024


async def _hold(server: GRPCServer, silent: float) -> int:
    begun = 0
    peak = asyncio.get_running_loop().create_future()

    async def one(channel: Any) -> None:
        nonlocal begun
        event = None
        async for data in channel.unary_stream(_STREAM.path)(_request(f"sleep:{silent}")):
            if event is None and (begun := begun + 1) == HELD:
                peak.set_result(server.memory())
            event = _STREAM.response.FromString(data)
        _expect(event is not None and event.status_update.status.state == 3, "it did not end", event)

    channels = [_channel(server.port) for _ in range(16)]
    streams = (one(channels[number % len(channels)]) for number in range(HELD))
    await asyncio.wait_for(asyncio.gather(*streams), LIMIT)
    for channel in channels:
        await channel.close()
    memory: int = peak.result()
    return memory
