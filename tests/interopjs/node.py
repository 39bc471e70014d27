"""The JavaScript SDKs in Node: their clients, controlled over a pipe, and their servers."""

from __future__ import annotations

import itertools
import json
import queue
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.live import LiveServer, free_port, live_server
from tests.peers.record import Transport

HERE = Path(__file__).parent
_TIMEOUT = 40.0


class JsError(Exception):
    """An exception of the SDK's client: `kind` is its class without the binding, `status` the last HTTP status."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(reply["details"])
        # The newest SDK prefixes a class name with the binding; that of 0.3 has it inside the name.
        self.kind = re.sub("^JsonRpc|^Rest|^Grpc|JSONRPC", "", reply["class"])
        self.status: int = reply.get("status", 0)


class JsClient:
    """A client of the SDK installed as `package`, for the agent at `url`.

    `credentials`: ``headers`` are sent with every request, and replaced by ``renewed`` after a 401.
    """

    def __init__(
        self, package: str, url: str, transport: Transport, log: IO[bytes], credentials: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._ids = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {0: queue.SimpleQueue()}
        self._log = log
        self._process = subprocess.Popen(
            ["node", "client.mjs", package, url, transport.binding, transport.version, json.dumps(credentials)],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="node", daemon=True)
        self._reader.start()
        self._next(0)

    def call(self, method: str, argument: Any = None) -> Any:
        """Call a method of the client; return the result as protocol JSON.

        Raises:
            JsError: the client raised an exception.
        """
        return self._next(self._ask(method, argument))["value"]

    def stream(self, method: str, argument: Any, *, stop: int = 0) -> Iterator[Any]:
        """Iterate over the events of a stream; the client closes it after `stop` events, if given."""
        asked = self._ask(method, argument, stop)
        while "event" in (reply := self._next(asked)):
            yield reply["event"]

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _ask(self, method: str, argument: Any, stop: int = 0) -> int:
        asked = next(self._ids)
        self._answers[asked] = queue.SimpleQueue()
        request = {"id": asked, "call": method, "stop": stop}
        if argument is not None:
            request["argument"] = argument
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return asked

    def _next(self, asked: int) -> dict[str, Any]:
        try:
            reply = self._answers[asked].get(timeout=_TIMEOUT)
        except queue.Empty:
            raise AssertionError(f"node does not answer:\n{self._output()}") from None
        if "error" in reply:
            raise JsError(reply["error"])
        return reply

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            self._answers[reply["id"]].put(reply)
        end = {"error": {"class": "end", "details": f"node ended:\n{self._output()}"}}
        for waiting in list(self._answers.values()):
            waiting.put(end)

    def _output(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


@contextmanager
def js_client(package: str, url: str, transport: Transport, **credentials: Mapping[str, str]) -> Iterator[JsClient]:
    with tempfile.TemporaryFile() as log:
        client = JsClient(package, url, transport, log, credentials)
        try:
            yield client
        finally:
            client.close()


@contextmanager
def js_server(script: str, *more: str) -> Iterator[LiveServer]:
    """Serve an agent on the SDK with Node on a free port; `more` are arguments of the script after the port."""
    port = free_port()
    with live_server(["node", script, str(port), *more], f"http://127.0.0.1:{port}", folder=HERE) as server:
        yield server
