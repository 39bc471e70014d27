"""The system under test: its agents, and how a check calls one of them.

`System` is the adapter. Any system that serves some of the agents of `KINDS` and returns their URLs can be tested.
"""

from __future__ import annotations

import http.client
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers

from a2a_sync import Client, WebhookReceiver
from tests.conformance.suite import Way
from tests.conformance.wire import TIMEOUT, Events, Reply, Request, Site, request
from tests.engine import Background, eventually
from tests.wsgi import OpenAnswer

#: The agents that a system may offer. Each implements the commands of `tests.conformance.agent`; the first is the default.
KINDS = {
    "plain": "both versions, both bindings, every default",
    "direct": "answers with a message and no task where it can",
    "modern": "protocol 1.0 only",
    "old": "protocol 0.3 only",
    "restful": "1.0 only, and HTTP+JSON before JSON-RPC",
    "mute": "does not stream",
    "push": "keeps push configurations",
    "near": "the same, with webhooks on loopback and three delivery attempts",
    "signed": "signs its card with the key of `tests.conformance.signatures`",
    "promised": "its card promises an extended card, and has none",
    "demanding": "requires the extension `NEEDED`",
    "secured": "takes the tokens and keys of `USERS`, needs scopes, has an extended card with a skill 'secret', keeps push configurations",
    "cut": "its streams cannot be carried on once their task has ended",
    "busy": "runs one task at a time and lets none wait",
}

#: The extension that the default agent supports, and the one that the demanding agent requires.
EXTENSION = "https://example.com/extensions/suite/v1"
NEEDED = "https://example.com/extensions/needed/v1"
#: The callers of the secured agent and their tokens. Bob lacks the scope for a cancel.
USERS = {"ada": "token-of-ada", "bob": "token-of-bob"}
#: Alternatively a key in ``X-Key`` together with the name and password of ada.
KEY = "key-of-ada"
PASSWORD = ("ada", "password-of-ada")


class NotOffered(Exception):
    """The system does not have this agent or feature."""


def new_name() -> str:
    """A unique name for gates, contexts and messages."""
    return uuid.uuid4().hex


class System(ABC):
    """A system under test, which is a context manager."""

    @abstractmethod
    def site(self, kind: str) -> Site:
        """The site of the agent `kind`.

        Raises:
            NotOffered: the system does not have it.
        """

    def grpc_site(self, kind: str) -> Any:
        """The `GrpcSite` of the agent `kind` over gRPC, which has tasks of its own.

        Raises:
            NotOffered: the system does not have it.
        """
        raise NotOffered("gRPC")

    @abstractmethod
    def url(self, kind: str) -> str:
        """The URL of the same agent on a socket, without a trailing slash.

        Raises:
            NotOffered: the system does not have it.
        """

    @abstractmethod
    def site_at(self, kind: str, url: str) -> Site:
        """The site at a URL that the agent `kind` has published."""

    def logs(self) -> AbstractContextManager[list[str]]:
        """Collect the text of all log records of the system in the block.

        Raises:
            NotOffered: the log is not accessible.
        """
        raise NotOffered("logs")

    def subject(self, way: Way) -> Any:
        """The argument of a check: a `Speaker`, or a `Lab` for `Way.CLIENT`."""
        return Lab(self) if way is Way.CLIENT else Speaker(self, way)

    def client(self, target: Any, **options: Any) -> Client:
        """A client of the system under test; the caller closes it.

        Raises:
            NotOffered: only a server is tested.
        """
        raise NotOffered("client")

    def receiver(self, **options: Any) -> WebhookReceiver:
        """A webhook of the system under test, with the interface of `a2a_sync.WebhookReceiver`.

        Raises:
            NotOffered: only a server is tested.
        """
        raise NotOffered("receiver")

    @abstractmethod
    def close(self) -> None:
        """Stop all agents."""

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lab:
    """Creates the clients under test."""

    def __init__(self, system: System) -> None:
        self._system = system

    def client(self, target: Any, **options: Any) -> Client:
        """A client of `target` with the interface of `a2a_sync.Client`, which is a context manager."""
        return self._system.client(target, **{"timeout": TIMEOUT, **options})

    def receiver(self, **options: Any) -> WebhookReceiver:
        """A webhook with the interface of `a2a_sync.WebhookReceiver`."""
        return self._system.receiver(**options)


class Speaker:
    """Calls one agent over one way; asserts only that responses are well-formed."""

    def __init__(
        self,
        system: System,
        way: Way,
        kind: str = "plain",
        headers: Mapping[str, str] | None = None,
        site: Site | None = None,
    ) -> None:
        self.system = system
        self.way = way
        self.kind = kind
        self._headers = dict(headers or {})
        self._site = site or (system.grpc_site(kind) if way in (Way.GRPC, Way.GRPC_03) else system.site(kind))

    @property
    def rest(self) -> bool:
        return self.way.rest

    def on(self, kind: str) -> Speaker:
        """The same for another agent."""
        return Speaker(self.system, self.way, kind, self._headers)

    def by(self, way: Way) -> Speaker:
        """The same over another way."""
        return Speaker(self.system, way, self.kind, self._headers, self._site)

    def at_url(self, url: str) -> Speaker:
        """The same for a URL that the agent has published."""
        return Speaker(self.system, self.way, self.kind, self._headers, self.system.site_at(self.kind, url))

    def with_headers(self, **headers: str) -> Speaker:
        """The same with additional headers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Speaker(self.system, self.way, self.kind, {**self._headers, **named}, self._site)

    def as_user(self, user: str) -> Speaker:
        """The same as one of `USERS`."""
        return self.with_headers(Authorization=f"Bearer {USERS[user]}")

    # -- bytes --

    def exchange(self, verb: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        """Send any request and return the whole response."""
        answer = self._site.open(verb, path, body, headers)
        try:
            data, deadline = b"", time.monotonic() + TIMEOUT
            while piece := answer.chunk():
                data += piece
                assert time.monotonic() < deadline, f"the answer does not end: {data[:200]!r}"
        finally:
            answer.close()
        return Reply(answer.status, answer.headers, data, self.rest)

    def post(self, body: bytes, **headers: str | None) -> Reply:
        """Send a body to the JSON-RPC endpoint, with the usual headers unless `headers` overrides them."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        usual = {"Content-Type": "application/json", "A2A-Version": self.way.version, **self._headers, **named}
        return self.exchange("POST", "/", body, {name: value for name, value in usual.items() if value is not None})

    @contextmanager
    def leaving(self, asked: Request) -> Iterator[None]:
        """Send a request over a socket, and disconnect at the end of the block without reading a response."""
        target = urlsplit(self.system.url(self.kind))
        with closing(http.client.HTTPConnection(str(target.hostname), target.port or 80, timeout=TIMEOUT)) as line:
            line.request(asked.verb, target.path + asked.path, asked.body, asked.headers)
            yield

    # -- operations --

    def request(self, operation: str, params: Any = None, id: Any = "c-1", **headers: str | None) -> Request:
        """The request of an operation. Underscores in header names are replaced by hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return request(
            operation,
            params,
            rest=self.rest,
            version=self.way.version,
            id=id,
            headers={**self._headers, **named},
        )

    def ask(self, operation: str, params: Any = None, id: Any = "c-1", **headers: str | None) -> Reply:
        """Call an operation and return the whole response."""
        asked = self.request(operation, params, id, **headers)
        return self.exchange(asked.verb, asked.path, asked.body, asked.headers)

    def open(self, operation: str, params: Any = None, id: Any = "c-1", **headers: str | None) -> Events:
        """Call a streaming operation; the caller closes the result."""
        asked = self.request(operation, params, id, **headers)
        return self.opened(asked.verb, asked.path, asked.body, asked.headers)

    def opened(self, verb: str, path: str, body: bytes, headers: Mapping[str, str]) -> Events:
        """Send any request that is answered with a stream."""
        answer = self._site.open(verb, path, body, headers)
        if answer.status != 200 or not answer.headers["Content-Type"].startswith("text/event-stream"):
            try:
                raise AssertionError(f"no stream but {answer.status}: {b''.join(iter(answer.chunk, b''))!r}")
            finally:
                answer.close()
        return Events(answer, self.rest)

    # -- common first steps --

    def send(self, text: str, *parts: Any, **members: Any) -> Reply:
        """SendMessage; see `message` for the members."""
        return self.ask("SendMessage", message(text, *parts, **members))

    def task(self, text: str, *parts: Any, **members: Any) -> dict[str, Any]:
        """The task in the response to a send."""
        result = self.send(text, *parts, **members).result
        assert set(result) == {"task"}, result
        task: dict[str, Any] = result["task"]
        return task

    def begin(self, text: str, **members: Any) -> dict[str, Any]:
        """A running task, created by a send that returns immediately."""
        return self.task(text, configuration={"returnImmediately": True}, **members)

    def stream(self, text: str, **members: Any) -> Events:
        """SendStreamingMessage."""
        return self.open("SendStreamingMessage", message(text, **members))

    def get(self, id: str, **members: Any) -> dict[str, Any]:
        """GetTask."""
        task: dict[str, Any] = self.ask("GetTask", {"id": id, **members}).result
        return task

    def listed(self, **filters: Any) -> list[dict[str, Any]]:
        """The tasks in the response to ListTasks."""
        tasks: list[dict[str, Any]] = self.ask("ListTasks", filters).result["tasks"]
        return tasks

    def release(self, name: str) -> None:
        """Release the runs that hold at `name`."""
        self.send(f"release {name}")

    def until(self, id: str, *states: str) -> dict[str, Any]:
        """Poll the task until it is in one of these states."""

        def arrived() -> Any:
            task = self.get(id)
            return task["status"]["state"] in {f"TASK_STATE_{state}" for state in states} and task

        task: dict[str, Any] = eventually(arrived, f"a state among {states}")
        return task

    def in_background(self, work: Callable[[], Any]) -> Background:
        """Run `work` on a separate thread."""
        return Background(work)


def message(
    text: str, *parts: Any, configuration: Any = None, metadata: Any = None, tenant: str = "", **members: Any
) -> dict[str, Any]:
    """The params of a send in 1.0: `parts` follow the text, `members` are added to the message."""
    said = {"messageId": new_name(), "role": "ROLE_USER", "parts": [{"text": text}, *parts], **members}
    around = {"configuration": configuration, "metadata": metadata, "tenant": tenant}
    return {"message": said, **{name: value for name, value in around.items() if value}}


def message_v03(
    text: str, *parts: Any, configuration: Any = None, metadata: Any = None, **members: Any
) -> dict[str, Any]:
    """The params of a send in 0.3."""
    first = {"kind": "text", "text": text}
    said = {"kind": "message", "messageId": new_name(), "role": "user", "parts": [first, *parts], **members}
    around = {"configuration": configuration, "metadata": metadata}
    return {"message": said, **{name: value for name, value in around.items() if value}}


class Below:
    """A path of a site, as a site."""

    def __init__(self, site: Site, path: str) -> None:
        self._site = site
        self._path = path.rstrip("/")

    def open(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> OpenAnswer:
        return self._site.open(method, self._path + path, body, headers)


class HttpSite:
    """An agent at a URL; each request uses a new connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")

    def open(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> OpenAnswer:
        connection = http.client.HTTPConnection(self._host, self._port or 80, timeout=TIMEOUT)
        connection.request(method, self._path + path, body or None, dict(headers or {}))
        response = connection.getresponse()

        def close() -> None:
            response.close()
            connection.close()

        return OpenAnswer(
            response.status,
            Headers(response.getheaders()),
            iter(lambda: response.read1(65536), b""),
            _Closing(close),
        )


class _Closing:
    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close

    def __iter__(self) -> Iterable[bytes]:
        raise TypeError("read the answer")
