"""An agent played by a script on a real socket: every byte of its answers, and when it comes, is the test's to say."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from a2a_sync import AgentCard
from a2a_sync.card import AgentCapabilities, AgentInterface

#: Longer than anything here may take: a test that reaches it has failed.
TIMEOUT = 60.0

TASK = {"id": "t-1", "contextId": "c-1"}


def task(state: str = "WORKING", **members: Any) -> dict[str, Any]:
    """A task in a state."""
    return {**TASK, "status": {"state": f"TASK_STATE_{state}"}, **members}


def status(state: str, **members: Any) -> dict[str, Any]:
    """A stream event: the task's new state."""
    update = {"taskId": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}", **members}}
    return {"statusUpdate": update}


def said(text: str) -> dict[str, Any]:
    """A message of the agent."""
    return {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": text}]}


def chunk(text: str, *, append: bool = True, last: bool = False) -> dict[str, Any]:
    """A stream event: more of the artifact."""
    artifact = {"artifactId": "a-1", "parts": [{"text": text}]}
    update = {"taskId": "t-1", "contextId": "c-1", "artifact": artifact, "append": append, "lastChunk": last}
    return {"artifactUpdate": update}


@dataclass
class Asked:
    """A request as it arrived. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def rpc(self) -> dict[str, Any]:
        """The JSON-RPC call in it."""
        call: dict[str, Any] = json.loads(self.body)
        return call

    @property
    def operation(self) -> str:
        """The JSON-RPC method, or the path of a GET."""
        return self.rpc["method"] if self.method == "POST" else self.path

    @property
    def params(self) -> dict[str, Any]:
        """The JSON-RPC params."""
        params: dict[str, Any] = self.rpc["params"]
        return params


class Gone(Exception):
    """The client has closed the connection."""


@dataclass
class Line:
    """The server's end of one connection."""

    socket: socket.socket
    chunked: bool = False
    open: bool = True
    finish: threading.Event = field(default_factory=threading.Event)

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        try:
            self.socket.sendall(data)
        except OSError:
            raise Gone from None

    def answer(self, body: bytes | Any, code: int = 200, **headers: str) -> None:
        """A whole answer; a body that is not bytes is sent as JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content_Type", "application/json")
        lines = [f"HTTP/1.1 {code} Whatever", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def result(self, result: Any, code: int = 200, **headers: str) -> None:
        """A JSON-RPC result."""
        self.answer({"jsonrpc": "2.0", "id": 1, "result": result}, code, **headers)

    def error(self, code: int, message: str = "no", http: int = 200, **headers: str) -> None:
        """A JSON-RPC error."""
        self.answer({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}, http, **headers)

    def start_stream(self, *, chunked: bool = True) -> None:
        """The head of an event stream, in chunks or ended by the end of the connection."""
        self.chunked = chunked
        if chunked:
            self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        else:
            self.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n")

    def piece(self, data: bytes) -> None:
        """Bytes of the stream."""
        self.send(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    def event(self, result: Any, number: int | None = None) -> None:
        """One event of the stream."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
        self.piece((f"id: {number}\n" if number is not None else "").encode() + f"data: {body}\n\n".encode())

    def end_stream(self) -> None:
        """The clean end of the stream."""
        if self.chunked:
            self.send(b"0\r\n\r\n")
        else:
            self.hang_up()

    def stream(self, *events: Any, chunked: bool = True) -> None:
        """A whole stream."""
        self.start_stream(chunked=chunked)
        for number, event in enumerate(events, 1):
            self.event(event, number)
        self.end_stream()

    def hang_up(self) -> None:
        """Close the connection."""
        self.open = False
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def drip(self, data: bytes, every: float = 0.03) -> None:
        """Send byte after byte, until the client has gone or the test ends."""
        for place in range(len(data)):
            self.send(data[place : place + 1])
            if self.pause(every):
                return

    def pause(self, seconds: float = TIMEOUT) -> bool:
        """Do nothing for a while, or until the test ends (then True)."""
        return self.finish.wait(seconds)

    def await_close(self) -> None:
        """Block until the client closes the connection."""
        assert self.socket.recv(1) == b"", "the client said more"


Script = Callable[[Asked, Line], None]


class Peer:
    """Runs `script` for each request, each connection on a thread of its own; `asked` are the requests so far."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self._script = script
        self._tls = tls
        self._finish = threading.Event()
        self._lines: list[Line] = []
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def operations(self) -> list[str]:
        """What was asked for, in order."""
        return [asked.operation for asked in self.asked]

    def card(self, *, streaming: bool = True, tenant: str = "", url: str | None = None) -> AgentCard:
        """A card that leads here."""
        interface = AgentInterface(
            url=url or self.url + "/rpc", protocol_binding="JSONRPC", protocol_version="1.0", tenant=tenant
        )
        return AgentCard(
            name="peer",
            description="",
            version="1",
            supported_interfaces=(interface,),
            capabilities=AgentCapabilities(streaming=streaming),
        )

    def start(self) -> None:
        self._spawn(self._accept)

    def _spawn(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(TIMEOUT)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            line = Line(connection, finish=self._finish)
            self._lines.append(line)
            self._spawn(lambda line=line: self._serve(line))  # type: ignore[misc]

    def _serve(self, line: Line) -> None:
        if self._tls is not None:
            try:
                line.socket = self._tls.wrap_socket(line.socket, server_side=True)
            except OSError:
                line.socket.close()
                return
        reader = line.socket.makefile("rb")
        try:
            while line.open and (asked := _read_request(reader)) is not None:
                self.asked.append(asked)
                self._script(asked, line)
        except (Gone, OSError):
            pass
        except BaseException as error:
            self._errors.append(error)
        finally:
            reader.close()
            line.hang_up()
            line.socket.close()

    def refuse(self) -> None:
        """Take no more connections; those that stand go on."""
        # Closing alone does not wake a blocked accept.
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()

    def stop(self) -> None:
        self._finish.set()
        self.refuse()
        for line in self._lines:
            line.hang_up()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive(), "a connection of the peer is stuck"
        if self._errors:
            raise self._errors[0]


def _read_request(reader: Any) -> Asked | None:
    first = reader.readline()
    if not first.endswith(b" HTTP/1.1\r\n"):
        return None  # the end, or not HTTP
    method, path, _ = first.decode().split(" ", 2)
    headers = {}
    while (line := reader.readline().decode().rstrip("\r\n")) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Asked(method, path, headers, reader.read(int(headers.get("content-length", 0))))


@contextmanager
def peer(script: Script | Mapping[str, Script], tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """A peer that plays `script`, or one script per operation (or path of a GET); with `tls` behind TLS."""
    if not callable(script):
        table = script

        def by_operation(asked: Asked, line: Line) -> None:
            if asked.operation in table:
                table[asked.operation](asked, line)
            else:
                line.answer(b"nothing here", 404, Content_Type="text/plain")

        one = Peer(by_operation, tls)
    else:
        one = Peer(script, tls)
    one.start()
    try:
        yield one
    finally:
        one.stop()


def steps(*scripts: Script) -> Script:
    """One script after the other, request by request; the last one stays."""
    left = list(scripts)
    lock = threading.Lock()

    def step(asked: Asked, line: Line) -> None:
        with lock:
            script = left.pop(0) if len(left) > 1 else left[0]
        script(asked, line)

    return step


def results(result: Any) -> Script:
    """Answers with a JSON-RPC result."""
    return lambda asked, line: line.result(result)


def streams(*events: Any, chunked: bool = True) -> Script:
    """Answers with a whole stream."""
    return lambda asked, line: line.stream(*events, chunked=chunked)
