"""Several agents as one WSGI application, each under a path of its own, over one engine.

What an agent's requests mean is its app's business; here is decided which app they are for, and who comes and goes.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.wrappers import Request, Response

from a2a_sync import jsontext
from a2a_sync.bindings.headers import VERSION
from a2a_sync.codec.fields import shown
from a2a_sync.concurrency.closing import Closes
from a2a_sync.errors import InvalidRequestError
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.push import PushOptions
from a2a_sync.server.engine import Engine, Seat
from a2a_sync.server.metrics import Metrics
from a2a_sync.stores.base import Owner, TaskStore
from a2a_sync.wsgi.app import A2AApp
from a2a_sync.wsgi.connection import limited
from a2a_sync.wsgi.exchange import address_of
from a2a_sync.wsgi.origins import Origins
from a2a_sync.wsgi.pages import HEALTH, OperatorPages, Readiness
from a2a_sync.wsgi.plain import host_is_served, only, plain_error
from a2a_sync.wsgi.process import serve
from a2a_sync.wsgi.proxies import ADDRESS_HEADERS, TrustedProxies

#: Where the agents of a host are listed.
LIST_PATH = "/.well-known/agents"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,99}")
_TAKEN = frozenset({"healthz", "readyz", "metrics"})
#: Belong to all agents of a host, which share them.
_SHARED = frozenset({"store", "limits", "owner_quota", "push", "metrics", "url", "debug", "seat"})


class AgentHost(Closes, Mapping[str, A2AApp]):
    """Several agents in one application: ``AgentHost({"echo": echo, "sum": sum_})`` serves them at ``/echo`` and ``/sum``.

    An agent is an `Agent`, an executor that describes itself, or an `A2AApp` with all its own settings. The agents (but for
    apps) share what `store`, `limits`, `owner_quota`, `push` and `metrics` say: one store, in which each sees its own tasks only, and one pool
    of threads. `options` are those of `A2AApp` and meant for each of them; `add` takes others. `url` is the public address of
    the host. ``/.well-known/agents`` lists the cards; with `root`, the name of one of them, that agent answers at ``/`` too.

    As a mapping it gives each agent's app: ``Client(host["echo"])``. All methods may be called from any thread; agents that
    come and go do so in this process only.

    Raises:
        ValueError: a name that is no part of a path, or taken; what `A2AApp` raises.
        TypeError: what `A2AApp` raises.
    """

    def __init__(
        self,
        agents: Mapping[str, Any] | None = None,
        *,
        store: TaskStore | str | None = None,
        limits: Limits | None = None,
        owner_quota: OwnerQuota | None = None,
        push: PushOptions | bool = False,
        metrics: Metrics | None = None,
        url: str | None = None,
        root: str | None = None,
        cors: Iterable[str] = (),
        trusted_hosts: Sequence[str] | None = None,
        trusted_proxies: int = 0,
        debug: bool = False,
        **options: Any,
    ) -> None:
        if agents is not None and not isinstance(agents, Mapping):
            raise TypeError(f"agents is a mapping of names to agents, not a {type(agents).__name__}")
        self._seats: dict[str, Seat] = {}
        self._apps: dict[str, A2AApp] = {}
        self._engine = Engine(
            store, limits or Limits(), self._executor_of, metrics=metrics, push=push, debug=debug, quota=owner_quota
        )
        self.limits = self._engine.limits
        self.origins = Origins(cors)
        self._url = url.rstrip("/") if url else None
        self._root = root
        self._trusted_hosts = list(trusted_hosts) if trusted_hosts is not None else None
        self._options = {
            **options,
            "metrics": metrics,
            "cors": tuple(cors),
            "trusted_hosts": trusted_hosts,
            "trusted_proxies": trusted_proxies,
        }
        self._readiness = Readiness(self._engine)
        self._operators = OperatorPages(self.trouble, metrics)
        pages = self.origins.around(self._page) if self.origins else self._page
        self._pages: WSGIApplication = pages
        self._respond: WSGIApplication = (
            TrustedProxies(self._answer, trusted_proxies) if trusted_proxies else self._answer
        )
        self._vary = ", ".join([VERSION, "Host", *(ADDRESS_HEADERS if trusted_proxies else ())])
        self._serves = False
        for name, agent in (agents or {}).items():
            self.add(name, agent)
        if root is not None and root not in self._apps:
            raise ValueError(f"root names no agent of this host: {root!r}")

    # -- who is here --

    def add(self, name: str, agent: Any, **options: Any) -> A2AApp:
        """Serve one more agent at ``/name``; its app. `options` are those of `A2AApp` and stand over the host's.

        Raises:
            ValueError: the name is no part of a path, is taken, or its former agent is still being removed.
            TypeError: an option that all agents share, or one beside an `A2AApp`.
        """
        if not _NAME.fullmatch(name) or name in _TAKEN:
            raise ValueError(
                f"{name!r} cannot be the name of an agent: letters, digits and ._~- make one part of a path"
            )
        seat = Seat(self._engine, name)
        if self._seats.setdefault(name, seat) is not seat:
            raise ValueError(f"there is an agent named {name!r}; remove it first")
        try:
            self._apps[name] = app = self._app(seat, agent, options)
        except BaseException:
            del self._seats[name]
            raise
        return app

    def _app(self, seat: Seat, agent: Any, options: dict[str, Any]) -> A2AApp:
        if isinstance(agent, A2AApp):
            if options:
                raise TypeError(f"an A2AApp has its own settings: {', '.join(options)} cannot be given beside it")
            return agent
        if shared := _SHARED & options.keys():
            raise TypeError(f"all agents of a host share {', '.join(sorted(shared))}: give it an A2AApp of its own")
        url = f"{self._url}/{seat.name}" if self._url else None
        return A2AApp(agent, url=url, seat=seat, **{**self._options, **options})

    def remove(self, name: str, *, timeout: float = 10.0) -> None:
        """Serve an agent no more: its path answers 404 at once, its runs get `timeout` seconds, what is left of them fails.

        Returns when that is over. Its tasks stay in the store, and are there when it is added again under this name; an
        `A2AApp` is closed.

        Raises:
            KeyError: there is no such agent.
        """
        app = self._apps.pop(name)
        app.close(timeout)
        del self._seats[name]

    def _executor_of(self, scope: Owner) -> Any | None:
        seat = self._seats.get(Seat.named_by(scope))
        return None if seat is None else seat.executor

    def __getitem__(self, name: str) -> A2AApp:
        return self._apps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._apps))

    def __len__(self) -> int:
        return len(self._apps)

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    # -- WSGI --

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI interface; `wsgi_app` can be wrapped in middleware."""
        return self.wsgi_app(environ, start_response)

    def wsgi_app(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request. Blocks the server's thread for as long as the call takes."""
        if not self._serves:
            self._serves = True
            serve(self)
        return self._respond(environ, start_response)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        name, slash, rest = path.removeprefix("/").partition("/")
        app = self._apps.get(name)
        if app is not None:
            below = {**environ, "SCRIPT_NAME": f"{environ.get('SCRIPT_NAME', '')}/{name}", "PATH_INFO": slash + rest}
            return app.wsgi_app(below, start_response)
        if path == LIST_PATH or path in self._operators.paths:
            return self._pages(environ, start_response)
        app = self._apps.get(self._root) if self._root is not None else None
        return (self._pages if app is None else app.wsgi_app)(environ, start_response)

    def _page(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """What is said of all agents together."""
        request = Request(environ)
        request.trusted_hosts = self._trusted_hosts
        path, method = request.environ.get("PATH_INFO", ""), request.environ["REQUEST_METHOD"]
        response: WSGIApplication
        if self._trusted_hosts is not None and path not in HEALTH and not host_is_served(request):
            response = plain_error(400, "this host is not served here")
        elif path != LIST_PATH and path not in self._operators.paths:
            where = shown(request.root_path + request.path)
            response = plain_error(
                404, f"there is no agent at {where}; agents are listed at {request.root_path}{LIST_PATH}"
            )
        elif method not in ("GET", "HEAD"):
            response = only(method, "GET, HEAD, OPTIONS")
        else:
            response = self._list(request) if path == LIST_PATH else self._operators.respond(path)
        return limited(environ, response(environ, start_response), self.limits.write_timeout)

    def _list(self, request: Request) -> Response:
        try:
            base = self._url or address_of(request).rstrip("/")
        except InvalidRequestError as error:
            return plain_error(error.http_status, error.message)
        # The cards are JSON already, the same bytes as at their own paths.
        entries = [
            _entry(name, base, app.card_text(request, f"{base}/{name}/")) for name, app in list(self._apps.items())
        ]
        body = b'{"agents":[' + b",".join(entries) + b"]}"
        response = Response(body, content_type="application/json")
        response.headers.update({"Cache-Control": "no-cache", "Vary": self._vary})
        response.set_etag(hashlib.sha256(body).hexdigest()[:32])
        return response.make_conditional(request)

    # -- the whole --

    @property
    def alone(self) -> bool:
        """Tasks of some agent live in the memory of this process: another one would not know them."""
        return self._engine.store.workers is None or any(app.alone for app in self._mounted())

    @property
    def stores(self) -> dict[str, str]:
        """For each agent, the path that all processes with its tasks have in common; nothing for tasks in memory."""
        found: dict[str, str] = {}
        for app in list(self._apps.values()):
            found.update(app.stores)
        return found

    @property
    def running(self) -> int:
        """Runs that this process has not ended."""
        return self._engine.running + sum(app.running for app in self._mounted())

    def trouble(self) -> str:
        """Why some agent can take no work now, in words that say nothing of the inside; ``""`` when all can."""
        own = self._readiness.trouble(stopping=self._engine.draining)
        return own or next(filter(None, (app.trouble() for app in self._mounted())), "")

    def reserve(self, threads: int) -> None:
        """The server has so many threads: leave some free. See `A2AApp.reserve`."""
        for app in self._mounted():
            app.reserve(threads)
        if self.limits.server_threads is None:
            self._engine.places.reserve(threads)

    def begin(self) -> None:
        """Begin what goes on without requests. See `A2AApp.begin`, which also says what it raises."""
        self._engine.begin()
        for app in list(self._apps.values()):
            app.begin()

    def drain(self) -> None:
        """Take no more work, but for what the runs that go on ask for: the first step of `close`. Idempotent."""
        self._engine.drain()
        for app in self._mounted():
            app.drain()

    def close(self, timeout: float = 10.0) -> None:
        """Take no more runs, give the running ones `timeout` seconds together, end everything. Idempotent."""
        deadline = time.monotonic() + timeout
        self.drain()
        self._engine.close(timeout)
        for app in list(self._apps.values()):
            app.close(max(0.0, deadline - time.monotonic()))
        self._engine.release()

    def _mounted(self) -> list[A2AApp]:
        """The apps with engines of their own."""
        # One that is being removed has no seat any more.
        seats = [(self._seats.get(name), app) for name, app in list(self._apps.items())]
        return [app for seat, app in seats if seat is not None and seat.executor is None]


def _entry(name: str, base: str, card: bytes) -> bytes:
    head = jsontext.dumps({"name": name, "url": f"{base}/{name}/"})
    return head[:-1] + b',"card":' + card + b"}"
