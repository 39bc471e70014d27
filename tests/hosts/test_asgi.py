"""The ASGI bridge, message by message: bodies, clients that leave, servers that stop, hosts around it."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from a2a_sync import A2AApp, Limits
from a2a_sync.integrations import asgi, asgi_bridge
from a2a_sync.integrations.asgi import ASGIApp, Dispatcher
from a2a_sync.wsgi import connection
from tests.engine import TIMEOUT, eventually
from tests.hosts.sites import HostedAgent
from tests.wsgi import CARD, HOST, JSON_HEADERS, message, rpc

Message = dict[str, Any]


class Server:
    """What an ASGI server does with one request. ``leave`` is the client's; ``refuse`` stands for a client that does not read.

    `pieces` are the body, received one by one; `received` counts them.
    """

    def __init__(self, app: Any, pieces: Sequence[bytes] = (b"",), **scope: Any) -> None:
        self.app = app
        self.scope = make_scope(**scope)
        self.sent: list[Message] = []
        self.received = 0
        self.left = asyncio.Event()
        self.begun = asyncio.Event()
        self.refuse: Callable[[Message], Awaitable[None]] | None = None
        self._pieces = list(pieces)

    async def receive(self) -> Message:
        if self.received < len(self._pieces):
            self.received += 1
            more = self.received < len(self._pieces)
            return {"type": "http.request", "body": self._pieces[self.received - 1], "more_body": more}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.begun.set()
        if self.refuse is not None:
            await self.refuse(message)
        self.sent.append(message)

    async def run(self) -> Server:
        async with asyncio.timeout(TIMEOUT):
            await self.app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def complete(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", False)

    @property
    def text(self) -> str:
        """The text that the agent answered with."""
        text: str = json.loads(self.body)["result"]["task"]["artifacts"][0]["parts"][0]["text"]
        return text


def make_scope(**more: Any) -> Message:
    headers = {"host": HOST, **JSON_HEADERS, **more.pop("add", {})}
    return {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "server": (HOST, 80),
        "client": ("203.0.113.7", 1234),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        **more,
    }


@pytest.fixture
def make() -> Iterator[Callable[..., ASGIApp]]:
    apps: list[A2AApp] = []

    def bridged(threads: int = 4, principal: Any = None, reserve: bool = False, **limits: Any) -> ASGIApp:
        # Unless it is what is tested, no thread is kept free.
        limits = {"disconnect_check_interval": 0.02, "server_threads": None if reserve else 1000, **limits}
        apps.append(A2AApp(HostedAgent(), limits=Limits(**limits)))
        return ASGIApp(apps[-1], threads=threads, principal=principal, grace=0)

    yield bridged
    for app in apps:
        app.close(0)


def sending(command: str, method: str = "SendMessage") -> list[bytes]:
    return [rpc(method, message(command))]


def streaming(command: str) -> list[bytes]:
    return sending(command, "SendStreamingMessage")


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


# -- requests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 1000, 10**9])
def test_a_body_arrives_whole_however_it_is_cut(size: int, make: Callable[..., ASGIApp]) -> None:
    (whole,) = sending("echo " + "x" * 3000)
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    server = run(Server(make(), pieces).run())
    assert server.text == "echo: " + "x" * 3000
    assert server.headers["content-type"] == "application/json"
    assert server.complete


def test_a_body_that_is_not_read_is_hardly_received(make: Callable[..., ASGIApp]) -> None:
    # 100 MB, announced by a length that is refused before a byte is read.
    pieces = [b"x" * 65536] * 1600
    server = run(Server(make(), pieces, add={"content-length": str(65536 * 1600)}).run())
    assert server.status == 413
    assert server.received < 10


def test_a_body_without_a_length_is_received_to_its_limit(make: Callable[..., ASGIApp]) -> None:
    server = run(Server(make(max_body_bytes=1_000_000), [b" " * 65536] * 1600).run())
    assert server.status == 413
    assert server.received < 40


def test_a_client_that_leaves_within_its_body_gets_no_answer(make: Callable[..., ASGIApp]) -> None:
    async def main() -> Server:
        server = Server(make(), [b'{"jsonrpc"', b""])
        pieces = server.receive

        async def receive() -> Message:
            return await pieces() if server.received == 0 else {"type": "http.disconnect"}

        server.receive = receive  # type: ignore[method-assign]
        return await server.run()

    server = run(main())
    assert server.sent == []


def test_a_client_that_stalls_within_its_body_is_answered_in_time(make: Callable[..., ASGIApp]) -> None:
    async def main() -> Server:
        server = Server(make(body_idle_timeout=0.05), [b'{"jsonrpc"', b""])
        pieces = server.receive

        async def receive() -> Message:
            return await pieces() if server.received == 0 else await asyncio.Event().wait()  # type: ignore[return-value]

        server.receive = receive  # type: ignore[method-assign]
        return await server.run()

    assert json.loads(run(main()).body)["error"]["code"] == -32700


def test_headers_arrive_as_a_wsgi_server_gives_them(make: Callable[..., ASGIApp]) -> None:
    app = make()
    seen: list[dict[str, Any]] = []

    def note(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.append(environ)
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    app._app.wsgi_app = note  # type: ignore[method-assign]
    scope = make_scope(path="/caf\xe9", query_string=b"a=%20", scheme="https", server=("unix.sock", None), client=None)
    scope["headers"] += [
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
        (b"x_forwarded_host", b"evil.example"),
        (b"x-latin", b"\xe9"),
    ]

    async def main() -> None:
        server = Server(app)
        server.scope = scope
        await server.run()

    run(main())
    (environ,) = seen
    assert environ["HTTP_X_TWICE"] == "1,2"
    assert environ["HTTP_COOKIE"] == "a=1; b=2"
    # A proxy that sets the header with hyphens leaves this one alone.
    assert "HTTP_X_FORWARDED_HOST" not in environ
    assert environ["HTTP_X_LATIN"] == "é"
    assert (environ["CONTENT_TYPE"], environ["HTTP_A2A_VERSION"]) == ("application/json", "1.0")
    assert environ["PATH_INFO"] == "/cafÃ©"
    assert environ["QUERY_STRING"] == "a=%20"
    assert environ["wsgi.url_scheme"] == "https"
    assert environ["REMOTE_ADDR"] == ""


@pytest.mark.parametrize(
    ("server", "address"),
    [
        # A Unix socket has a path and no port.
        (("unix.sock", None), ""),
        ((HOST, 80), "unknown"),
        (None, "unknown"),
    ],
)
def test_a_caller_without_an_address_is_local_at_a_unix_socket_only(server: Any, address: str) -> None:
    scope = make_scope(server=server, client=None)
    assert asgi_bridge.environ_of(scope, asgi_bridge.Bridge(None, scope, None, Limits()))["REMOTE_ADDR"] == address  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("", CARD, "/"),
        ("/x", "/x" + CARD, "/x/"),
        ("/x/", "/x" + CARD, "/x/"),
        # Servers and proxies that leave the root out of the path.
        ("/x", CARD, "/x/"),
        ("/.well", CARD, "/.well/"),
    ],
)
def test_the_root_path_is_in_the_card_once(root: str, path: str, expected: str, make: Callable[..., ASGIApp]) -> None:
    server = run(Server(make(), method="GET", root_path=root, path=path).run())
    assert json.loads(server.body)["supportedInterfaces"][0]["url"] == f"http://{HOST}{expected}"


def test_head_and_options_have_no_body(make: Callable[..., ASGIApp]) -> None:
    head = run(Server(make(), method="HEAD", path=CARD).run())
    assert (head.status, head.body, head.complete) == (200, b"", True)
    options = run(Server(make(), method="OPTIONS").run())
    assert (options.status, options.body, options.complete) == (204, b"", True)


# -- streams and clients ------------------------------------------------------------------------------------------------


def test_a_stream_is_sent_as_it_comes_and_ended(make: Callable[..., ASGIApp]) -> None:
    server = run(Server(make(), streaming("count 3")).run())
    assert server.headers["content-type"] == "text/event-stream"
    assert server.body.count(b"data:") >= 4
    assert server.complete


@pytest.mark.parametrize("pieces", [streaming("wait"), sending("wait")], ids=["stream", "blocked send"])
def test_a_client_that_leaves_frees_its_thread(pieces: list[bytes], make: Callable[..., ASGIApp]) -> None:
    # One thread: the second request finds it only if the first has given it back.
    app = make(threads=1)

    async def main() -> Server:
        first = Server(app, pieces)
        running = asyncio.create_task(first.run())
        await asyncio.sleep(0)
        refused = await Server(app, sending("user")).run()
        assert refused.status == 503
        first.left.set()
        await running
        return await Server(app, sending("user")).run()

    assert run(main()).text == "anonymous"


@pytest.mark.parametrize("command", ["wait", "count 3"])
def test_a_stream_gives_its_place_back_whichever_side_ended_it(command: str, make: Callable[..., ASGIApp]) -> None:
    app = make(max_open_streams=1)

    async def main() -> list[int]:
        statuses = []
        for _ in range(3):
            server = Server(app, streaming(command))
            running = asyncio.create_task(server.run())
            await server.begun.wait()
            if command == "wait":
                server.left.set()
            statuses.append((await running).status)
        return statuses

    assert run(main()) == [200, 200, 200]


def test_a_request_leaves_nothing_on_the_loop(make: Callable[..., ASGIApp]) -> None:
    app = make()

    async def main() -> int:
        await Server(app, sending("user")).run()
        # One turn for what was cancelled.
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert run(main()) == 1


def test_a_server_that_gives_a_request_up_frees_its_thread(make: Callable[..., ASGIApp]) -> None:
    app = make(threads=1)

    async def main() -> Server:
        first = Server(app, streaming("wait"))
        running = asyncio.create_task(first.run())
        await first.begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        while (second := await Server(app, sending("user")).run()).status == 503:
            await asyncio.sleep(0.01)
        return second

    assert run(main()).text == "anonymous"


async def never(message: Message) -> None:
    await asyncio.Event().wait()


async def broken(message: Message) -> None:
    raise OSError("broken pipe")


async def closed(message: Message) -> None:
    raise RuntimeError(
        "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"
    )


@pytest.mark.parametrize("refuse", [broken, closed])
def test_a_client_that_leaves_before_its_response_is_no_error(
    refuse: Callable[[Message], Awaitable[None]], make: Callable[..., ASGIApp]
) -> None:
    async def main() -> Server:
        server = Server(make(), sending("user"))
        server.refuse = refuse
        return await server.run()

    assert run(main()).sent == []


def test_other_errors_of_a_server_are_not_hidden(make: Callable[..., ASGIApp]) -> None:
    async def wrong(message: Message) -> None:
        raise RuntimeError("Response content longer than Content-Length")

    async def main() -> None:
        server = Server(make(), sending("user"))
        server.refuse = wrong
        await server.run()

    with pytest.raises(RuntimeError, match="longer than"):
        run(main())


@pytest.mark.parametrize("refuse", [never, broken, closed])
def test_a_client_that_does_not_read_loses_its_stream(
    refuse: Callable[[Message], Awaitable[None]], make: Callable[..., ASGIApp]
) -> None:
    app = make(threads=1, write_timeout=0.05)

    async def main() -> tuple[Server, Server]:
        first = Server(app, streaming("wait"))
        first.refuse = refuse
        await first.run()
        return first, await Server(app, sending("user")).run()

    first, second = run(main())
    assert first.sent == []
    assert second.text == "anonymous"


def test_a_client_that_leaves_while_it_is_being_sent_to_is_not_waited_for(make: Callable[..., ASGIApp]) -> None:
    app = make(threads=1, write_timeout=3600)

    async def main() -> Server:
        first = Server(app, streaming("wait"))
        first.refuse = never
        running = asyncio.create_task(first.run())
        await first.begun.wait()
        first.left.set()
        await running
        return await Server(app, sending("user")).run()

    assert run(main()).text == "anonymous"


class Stalling(Server):
    """A client that sends the beginning of its body only."""

    async def receive(self) -> Message:
        if self.received:
            await self.left.wait()
            return {"type": "http.disconnect"}
        self.received += 1
        return {"type": "http.request", "body": b'{"jsonrpc"', "more_body": True}


@pytest.mark.parametrize("add", [{}, {"content-length": "1000"}], ids=["chunked", "with a length"])
def test_clients_that_stall_within_their_bodies_hold_no_thread(
    add: dict[str, str], make: Callable[..., ASGIApp]
) -> None:
    app = make(threads=1)

    async def main() -> Server:
        stalling = [Stalling(app, add=add) for _ in range(20)]
        running = [asyncio.create_task(server.run()) for server in stalling]
        while not all(server.received for server in stalling):
            await asyncio.sleep(0)
        answered = await Server(app, sending("user")).run()
        for server in stalling:
            server.left.set()
        await asyncio.gather(*running)
        assert [server.sent for server in stalling] == [[]] * 20
        return answered

    assert run(main()).text == "anonymous"


@pytest.mark.parametrize("add", [{}, {"content-length": "2000000"}], ids=["without a thread", "large"])
def test_incomplete_bodies_are_bounded_together(
    add: dict[str, str], make: Callable[..., ASGIApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi_bridge, "_MAX_RECEIVED_BYTES", 25)
    app = make()

    async def main() -> list[int]:
        stalling = [Stalling(app, add=add) for _ in range(3)]
        running = [asyncio.create_task(server.run()) for server in stalling]
        # 30 bytes: the oldest is answered, and the others wait.
        await running[0]
        sent = [len(server.sent) for server in stalling]
        for server in stalling:
            server.left.set()
        await asyncio.gather(*running)
        assert json.loads(stalling[0].body)["error"]["code"] == -32700
        return sent

    assert run(main())[1:] == [0, 0]


def test_a_body_in_tiny_pieces_takes_no_more_memory_than_its_bytes() -> None:
    """As under Hypercorn, which passes on every frame of HTTP/2 by itself."""

    async def main() -> int:
        body = asgi_bridge.Body(asyncio.get_running_loop(), TIMEOUT, ahead=1_000_000)
        tracemalloc.start()
        for number in range(50_000):
            await body.feed(b"%05d" % number, last=False)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await body.feed(b"", last=True)
        assert body.read() == b"".join(b"%05d" % number for number in range(50_000))
        return used

    assert run(main()) < 500_000


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "GET"])
def test_a_client_that_does_not_read_a_response_holds_no_thread(method: str, make: Callable[..., ASGIApp]) -> None:
    app = make(threads=1, write_timeout=3600)

    async def main() -> Server:
        first = Server(app, sending("user"), method=method, path="/" if method == "POST" else CARD)
        first.refuse = never
        running = asyncio.create_task(first.run())
        await first.begun.wait()
        # The thread is free a moment after it has left the response to the loop.
        while (second := await Server(app, sending("user")).run()).status == 503:
            await asyncio.sleep(0)
        assert not running.done()
        first.left.set()
        await running
        return second

    assert run(main()).text == "anonymous"


def test_large_responses_that_are_not_read_are_bounded_together(
    make: Callable[..., ASGIApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.unsent_responses, "max_bytes", 6_000_000)
    app = make(threads=8, write_timeout=3600)

    async def main() -> int:
        # Each response has 4 MB: the text is in the artifact and in the history.
        servers = [Server(app, sending("echo " + "x" * 2_000_000)) for _ in range(2)]
        for server in servers:
            server.refuse = never
        running = [asyncio.create_task(server.run()) for server in servers]
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for server in servers:
            server.left.set()
        await asyncio.gather(*running)
        return len(done)

    assert run(main()) == 1


def test_a_large_response_is_sent_in_pieces(make: Callable[..., ASGIApp]) -> None:
    server = run(Server(make(), sending("echo " + "x" * 2_000_000)).run())
    assert server.text == "echo: " + "x" * 2_000_000
    assert server.complete
    assert max(len(message.get("body", b"")) for message in server.sent) <= 64 * 1024


def test_requests_beyond_the_threads_are_refused_with_a_hint(make: Callable[..., ASGIApp]) -> None:
    app = make(threads=2)

    async def main() -> Server:
        held = [Server(app, streaming("wait")) for _ in range(2)]
        running = [asyncio.create_task(server.run()) for server in held]
        for server in held:
            await server.begun.wait()
        refused = await Server(app, sending("user")).run()
        for server in held:
            server.left.set()
        await asyncio.gather(*running)
        return refused

    refused = run(main())
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert json.loads(refused.body)["error"]["code"] == 503


def holding() -> tuple[list[str], threading.Event, Callable[[Any], str]]:
    """The users whose requests have begun, the event that lets these go on, and the function that knows the user of each."""
    begun: list[str] = []
    finish = threading.Event()

    def user(scope: Any) -> str:
        begun.append(scope["user"])
        assert finish.wait(TIMEOUT)
        return str(scope["user"])

    return begun, finish, user


@pytest.mark.parametrize("seconds", [TIMEOUT * 10, 0.01])
def test_few_requests_begin_at_once_in_the_order_of_their_arrival(
    seconds: float, make: Callable[..., ASGIApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that takes long lets others begin."""
    monkeypatch.setattr(asgi, "_STARTING", 2)
    monkeypatch.setattr(asgi, "_STARTING_SECONDS", seconds)
    begun, finish, user = holding()

    async def main() -> list[Server]:
        app = make(threads=8, principal=user)
        servers = [Server(app, sending("user"), user=str(number)) for number in range(6)]
        running = [asyncio.create_task(server.run()) for server in servers]
        at_once = 2 if seconds > TIMEOUT else 6
        while len(begun) < at_once:
            await asyncio.sleep(0.001)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(begun) == at_once
        finish.set()
        return list(await asyncio.gather(*running))

    served = run(main())
    assert [server.text for server in served] == list("012345")
    # Those that begin at the same time do so on threads of their own.
    assert [set(begun[at : at + 2]) for at in (0, 2, 4)] == [{"0", "1"}, {"2", "3"}, {"4", "5"}]


def test_a_server_that_gives_a_request_up_before_it_began_frees_its_place(
    make: Callable[..., ASGIApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "_STARTING", 1)
    finish = threading.Event()

    def user(scope: Any) -> str:
        assert finish.wait(TIMEOUT)
        return "ada"

    async def main() -> Server:
        app = make(threads=2, principal=user)
        first = asyncio.create_task(Server(app, sending("user")).run())
        while not app._starting.locked():
            await asyncio.sleep(0.001)
        second = asyncio.create_task(Server(app, sending("user")).run())
        while not app._starting._waiters:
            await asyncio.sleep(0.001)
        second.cancel()
        await asyncio.wait([second])
        finish.set()
        await first
        return (await asyncio.gather(*(Server(app, sending("user")).run() for _ in range(2))))[1]

    monkeypatch.setattr(asgi, "_STARTING_SECONDS", TIMEOUT)
    assert run(main()).text == "ada"


def test_a_request_does_not_begin_whose_client_has_left_while_it_waited(
    make: Callable[..., ASGIApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "_STARTING", 1)
    monkeypatch.setattr(asgi, "_STARTING_SECONDS", TIMEOUT)
    begun, finish, user = holding()

    async def main() -> tuple[Server, Server]:
        app = make(threads=2, principal=user)
        first = asyncio.create_task(Server(app, sending("user"), user="first").run())
        while not begun:
            await asyncio.sleep(0.001)
        leaving = Server(app, sending("user"), user="leaving")
        second = asyncio.create_task(leaving.run())
        while not app._starting._waiters:
            await asyncio.sleep(0.001)
        leaving.left.set()
        for _ in range(100):
            await asyncio.sleep(0)
        finish.set()
        await asyncio.gather(first, second)
        # Both places are free again.
        await asyncio.gather(*(Server(app, sending("user"), user="later").run() for _ in range(2)))
        return leaving, await Server(app, sending("user"), user="last").run()

    leaving, last = run(main())
    assert leaving.sent == []
    assert begun == ["first", "later", "later", "last"]
    assert last.text == "last"


def test_the_app_leaves_threads_free_of_its_setting(make: Callable[..., ASGIApp]) -> None:
    app = make(threads=4, reserve=True)

    async def main() -> list[int]:
        held = [Server(app, streaming("wait")) for _ in range(2)]
        running = [asyncio.create_task(server.run()) for server in held]
        for server in held:
            await server.begun.wait()
        statuses = [(await Server(app, pieces).run()).status for pieces in (streaming("wait"), [rpc("ListTasks")])]
        for server in held:
            server.left.set()
        await asyncio.gather(*running)
        return statuses

    assert run(main()) == [429, 200]


# -- the host -----------------------------------------------------------------------------------------------------------


def test_the_host_sets_the_caller_on_the_thread_of_the_request(make: Callable[..., ASGIApp]) -> None:
    loop: list[int] = []
    seen: list[int] = []

    def user(scope: Any) -> str:
        seen.append(threading.get_ident())
        name: str = scope["user"]
        return name

    async def main() -> Server:
        loop.append(threading.get_ident())
        return await Server(make(principal=user), sending("user"), user="ada").run()

    assert run(main()).text == "ada"
    assert seen != loop


def test_variables_of_the_host_reach_the_thread(make: Callable[..., ASGIApp]) -> None:
    name = contextvars.ContextVar("name", default="anonymous")

    async def main() -> Server:
        name.set("grace")
        return await Server(make(principal=lambda scope: name.get()), sending("user")).run()

    assert run(main()).text == "grace"


def test_what_a_host_raises_is_the_hosts_and_the_thread_comes_back(make: Callable[..., ASGIApp]) -> None:
    wrong = [LookupError("no such session")] * 3

    def user(scope: Any) -> str:
        if wrong:
            raise wrong.pop()
        return "ada"

    app = make(threads=1, principal=user)

    async def main() -> Server:
        for _ in range(3):
            with pytest.raises(LookupError, match="no such session"):
                await Server(app, sending("user")).run()
        return await Server(app, sending("user")).run()

    assert run(main()).text == "ada"


def test_pages_of_other_sites_cannot_use_their_visitors_login(make: Callable[..., ASGIApp]) -> None:
    headers = {"cookie": "session=1", "sec-fetch-site": "cross-site"}
    server = run(Server(make(principal=lambda scope: "ada"), sending("user"), add=headers).run())
    assert server.status == 403
    assert json.loads(server.body)["error"]["code"] == 403


def test_a_websocket_is_refused(make: Callable[..., ASGIApp]) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    run(make()({"type": "websocket", "path": "/"}, receive, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1000}]


def test_what_is_neither_is_an_error(make: Callable[..., ASGIApp]) -> None:
    with pytest.raises(ValueError, match="carrier-pigeon"):
        run(make()({"type": "carrier-pigeon"}, never, never))  # type: ignore[arg-type]


class Lifespan:
    """A server that starts and stops an application."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent: list[str] = []

    async def run(self) -> list[str]:
        messages = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> Message:
            return {"type": next(messages)}

        async def send(message: Message) -> None:
            self.sent.append(message["type"])

        async with asyncio.timeout(TIMEOUT):
            await self.app({"type": "lifespan"}, receive, send)
        return self.sent


COMPLETE = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_server_that_stops_closes_the_app(make: Callable[..., ASGIApp]) -> None:
    app = make()

    async def main() -> Server:
        assert await Lifespan(app).run() == COMPLETE
        return await Server(app, sending("user")).run()

    assert run(main()).status == 429


def test_a_stream_ends_when_the_app_is_closed_beside_the_loop(make: Callable[..., ASGIApp]) -> None:
    app = make()

    async def main() -> Server:
        server = Server(app, streaming("wait"))
        running = asyncio.create_task(server.run())
        await server.begun.wait()
        await app.close()
        return await running

    server = run(main())
    assert server.complete
    assert b"server stopped" in server.body


def test_the_loop_may_be_gone_before_the_thread(make: Callable[..., ASGIApp], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    app = make(threads=1)

    async def main() -> None:
        server = Server(app, streaming("wait"))
        running = asyncio.create_task(server.run())
        await server.begun.wait()
        running.cancel()

    run(main())

    async def again() -> Server:
        return await Server(app, sending("user")).run()

    eventually(lambda: run(again()).status == 200)
    assert caplog.records == []


# -- the dispatcher -----------------------------------------------------------------------------------------------------


async def host(scope: Any, receive: Any, send: Any) -> None:
    """A host that knows nothing but HTTP, as Django does."""
    assert scope["type"] in ("http", "websocket"), scope["type"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"host {scope['root_path']} {scope['path']}".encode()})


def dispatched(make: Callable[..., ASGIApp]) -> Dispatcher:
    return Dispatcher(host, {"/agents": make(), "/agents/echo/": make(principal=lambda scope: "echo")})


@pytest.mark.parametrize(
    ("path", "user"), [("/agents/echo", "echo"), ("/agents/echo/", "echo"), ("/agents", "anonymous")]
)
def test_the_longest_prefix_that_fits_has_it(path: str, user: str, make: Callable[..., ASGIApp]) -> None:
    assert run(Server(dispatched(make), sending("user"), path=path).run()).text == user


@pytest.mark.parametrize("path", ["/", "/agents2", "/agent", "/x/agents"])
def test_everything_else_is_the_hosts_and_untouched(path: str, make: Callable[..., ASGIApp]) -> None:
    assert run(Server(dispatched(make), path=path).run()).body == f"host  {path}".encode()


@pytest.mark.parametrize("root", ["", "/x"])
def test_the_card_of_a_dispatched_agent_names_its_prefix(root: str, make: Callable[..., ASGIApp]) -> None:
    path = root + "/agents/echo" + CARD
    server = run(Server(dispatched(make), method="GET", root_path=root, path=path).run())
    assert json.loads(server.body)["supportedInterfaces"][0]["url"] == f"http://{HOST}{root}/agents/echo/"


def test_the_dispatcher_closes_every_agent_when_its_server_stops(make: Callable[..., ASGIApp]) -> None:
    app = dispatched(make)

    async def main() -> list[int]:
        assert await Lifespan(app).run() == COMPLETE
        return [(await Server(app, sending("user"), path=path).run()).status for path in ("/agents", "/agents/echo")]

    assert run(main()) == [429, 429]
