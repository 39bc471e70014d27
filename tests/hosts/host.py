"""A served host framework, called by its clients."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from a2a_sync import Client, TaskState
from a2a_sync.errors import TaskNotCancelableError
from tests.hosts.sites import THREADS
from tests.live import LiveServer
from tests.wsgi import CARD, JSON_HEADERS, message, rpc

#: An event that is never set, for pauses between two attempts.
PAUSE = threading.Event()


@dataclass
class Host:
    """A running host and the path of its agent."""

    name: str
    server: LiveServer
    prefix: str

    @property
    def url(self) -> str:
        return self.server.url + self.prefix

    def session(self) -> requests.Session:
        """Retries while the host has no free thread; threads that a test has used are free within a second."""
        retries = Retry(
            10, status_forcelist=[503], allowed_methods=None, backoff_factor=0.05, respect_retry_after_header=False
        )
        session = requests.Session()
        session.mount("http://", HTTPAdapter(max_retries=retries))
        return session

    def post(self, data: Any, **headers: str) -> requests.Response:
        with self.session() as session:
            return session.post(self.url + "/", data=data, headers={**JSON_HEADERS, **headers}, timeout=60)

    def send(self, method: str, command: str) -> socket.socket:
        """A new connection on which one call has been sent."""
        body = rpc(method, message(command))
        head = f"POST {self.prefix}/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-User: ada\r\nContent-Length: {len(body)}\r\n"
        fields = "".join(f"{name}: {value}\r\n" for name, value in JSON_HEADERS.items())
        connection = socket.create_connection(self.server.address, timeout=60)
        connection.sendall(f"{head}{fields}\r\n".encode() + body)
        return connection

    def stream(self, command: str) -> socket.socket:
        """A connection with an open stream; retries until the host has a free thread."""
        for _ in range(100):
            connection = self.send("SendStreamingMessage", command)
            begin = connection.recv(16)
            if begin.startswith(b"HTTP/1.1 200"):
                return connection
            connection.close()
            assert begin.startswith(b"HTTP/1.1 503"), begin
            PAUSE.wait(0.05)
        raise AssertionError("there is no thread for a stream")

    @contextmanager
    def streams(self, command: str) -> Iterator[None]:
        """As many connections as the host has threads; all disconnect at the end of the block."""
        with ExitStack() as stack:
            for _ in range(THREADS):
                stack.enter_context(self.stream(command))
            yield

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client with the user ``ada``."""
        with self.session() as http, Client(self.url, headers={"X-User": "ada"}, timeout=60, session=http) as client:
            yield client

    def cancel_everything(self) -> None:
        """Cancel all tasks, so that the server does not wait for their runs when it stops."""
        with self.client() as client:
            for task in client.list_tasks(status=TaskState.WORKING, page_size=100).tasks:
                with suppress(TaskNotCancelableError):
                    client.cancel_task(task.id)

    def answers(self, seconds: float) -> bool:
        """Whether one more request gets a thread within `seconds`."""
        try:
            return requests.get(self.url + CARD, timeout=seconds).status_code == 200
        except requests.Timeout:
            return False
