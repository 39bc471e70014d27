"""An agent for the tests of gRPC, and clients that see the bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext
from a2a_sync.auth import BearerAuth
from a2a_sync.bindings import protobuf
from a2a_sync.codec import by_version
from a2a_sync.grpc import GRPCServer
from a2a_sync.operations import OPERATIONS, Endpoint

V10 = by_version("1.0", "GRPC")


class Worker(Agent):
    """``wait`` until it is cancelled, ``large N`` kilobytes, ``count N`` in chunks, else an echo."""

    name = "worker"
    description = "For tests"

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        command, _, argument = message.text.partition(" ")
        if command == "wait":
            context.update("waiting")
            context.sleep(30)
            return "waited"
        if command == "large":
            return (str(number) + "x" * 65536 for number in range(int(argument) // 64))
        if command == "count":
            return (f"{number} " for number in range(int(argument)))
        return f"{self.name}: {message.text}"


def plain(endpoint: Endpoint) -> Endpoint:
    """An interceptor that is a function: what it makes waits for results."""
    return endpoint


def intercepted() -> A2AApp:
    """For ``a2a-sync serve``."""
    return A2AApp(Worker(), interceptors=[plain])


@contextmanager
def serving(site: Any = None, *, tls: Any = None, threads: int = 32, **options: Any) -> Iterator[GRPCServer]:
    """A server of `site`, or of an app of the worker with these options, on a free port."""
    site = site or A2AApp(Worker(), **options)
    try:
        with GRPCServer(site, "127.0.0.1:0", tls=tls, threads=threads) as server:
            try:
                yield server
            finally:
                server.close(timeout=0)
    finally:
        site.close(timeout=0)


@contextmanager
def printing(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process of this Python, which is killed at the end; it ends by itself when its input ends."""
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def client_of(server: GRPCServer, **options: Any) -> Client:
    return Client(f"grpc://127.0.0.1:{server.port}", **options)


@contextmanager
def channel(server: GRPCServer, *options: tuple[str, Any]) -> Iterator[Any]:
    """A channel of grpcio, for requests that no client of this library sends."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options=options) as opened:
        yield opened


def encoded(operation: str, request: Any) -> bytes:
    """The bytes of a request of 1.0."""
    return protobuf.encode_request(operation, V10.dump_request(OPERATIONS[operation], request), "1.0")


def path(operation: str, version: str = "1.0") -> str:
    """The path of the method of an operation."""
    return protobuf.methods(version)[operation].path


if __name__ == "__main__":
    # With an argument, which is the only token, callers need credentials.
    with serving(auth=BearerAuth(dict.fromkeys(sys.argv[1:], "ada")) if sys.argv[1:] else None) as server:
        print(server.port, flush=True)
        sys.stdin.read()
