"""Several agents as one WSGI application, each under a path of its own, over one engine.

The host selects the app of a request and adds and removes agents; the app interprets the request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.wrappers import Request, Response

from a2a_sync import jsontext
from a2a_sync.bindings.headers import VERSION
from a2a_sync.codec.fields import shown
from a2a_sync.engine.jobs import JobQueue, JobReference
from a2a_sync.errors import InvalidRequestError
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.push import PushOptions
from a2a_sync.server.engine import NamedMount, ServerEngine
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.readiness import Readiness
from a2a_sync.stores.base import PubSub, TaskStore
from a2a_sync.wsgi.app import A2AApp, check_options, check_url
from a2a_sync.wsgi.connection import Connection
from a2a_sync.wsgi.exchange import address_of
from a2a_sync.wsgi.options import ConsoleOptions, HTTPOptions
from a2a_sync.wsgi.origins import Origins
from a2a_sync.wsgi.pages import (
    HEALTH,
    LONG_LISTS,
    OperatorPages,
    has_long_lists,
    host_is_served,
    method_not_allowed,
    plain_error,
    werkzeug_request,
)
from a2a_sync.wsgi.process import Site
from a2a_sync.wsgi.proxies import ADDRESS_HEADERS, TrustedProxies

#: The path of the list of agents of a host.
LIST_PATH = "/.well-known/agents"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,99}")
_RESERVED_NAMES = frozenset({"console", "healthz", "readyz", "metrics"})
#: Options that the agents of a host share.
_SHARED_OPTIONS = frozenset(
    {"store", "pubsub", "job_queue", "limits", "owner_quota", "push", "metrics", "url", "debug", "console", "_mount"}
)


class AgentHost(Site, Mapping[str, A2AApp]):
    """Several agents in one application.

    ``AgentHost({"echo": echo, "sum": sum_})`` serves them at ``/echo`` and ``/sum``.

    ``/.well-known/agents`` lists the cards. As a mapping the host contains the app of each agent:
    ``Client(host["echo"])``. Thread-safe. Agents are added and removed in this process only.

    Agents other than apps share one thread pool, and one store in which each sees only its own tasks.

    Parameters:
        agents: `Agent` objects, executors that describe themselves, or `A2AApp` objects with their own settings, by
            name.
        url: the public URL of the host.
        root: the name of an agent that is also served at ``/``.
        store, pubsub, job_queue, limits, owner_quota, push, metrics, debug: as for `A2AApp`; shared by all agents other than
            apps.
        http: as for `A2AApp`; for the host and for each agent other than apps.
        console: as for `A2AApp`; one console for all agents.
        options: other options of `A2AApp`, for each agent; `add` can override them.

    Raises:
        ValueError: a name is not usable as a path segment, or already in use; `root` is not an agent; or as `A2AApp`.
        TypeError: as `A2AApp`.
    """

    def __init__(
        self,
        agents: Mapping[str, Any] | None = None,
        *,
        store: TaskStore | str | None = None,
        pubsub: PubSub | str | None = None,
        job_queue: JobQueue | None = None,
        limits: Limits | None = None,
        owner_quota: OwnerQuota | None = None,
        push: PushOptions | bool = False,
        metrics: Metrics | None = None,
        url: str | None = None,
        root: str | None = None,
        http: HTTPOptions | None = None,
        debug: bool = False,
        console: ConsoleOptions | bool = False,
        **options: Any,
    ) -> None:
        if agents is not None and not isinstance(agents, Mapping):
            raise TypeError(f"agents is a mapping of names to agents, not a {type(agents).__name__}")
        self._mounts: dict[str, NamedMount] = {}
        self._apps: dict[str, A2AApp] = {}
        self._engine = ServerEngine(
            store,
            Limits.of(limits),
            metrics=metrics,
            push=push,
            debug=debug,
            quota=owner_quota,
            pubsub=pubsub,
            job_queue=job_queue,
        )
        super().__init__(self._engine)
        self.limits: Limits = self._engine.limits
        http = check_options(http)
        self.origins: Origins = Origins(http.cors_origins)
        self._url = check_url(url)
        self._root = root
        self._trusted_hosts = list(http.trusted_hosts) if http.trusted_hosts is not None else None
        self._options = {**options, "metrics": metrics, "http": http}
        self._readiness = Readiness(self._engine)
        self._operators = OperatorPages(self.not_ready_reason, metrics)
        pages = self.origins.around(self._page) if self.origins else self._page
        self._pages: WSGIApplication = pages
        self.wsgi_app: WSGIApplication = self._answer
        if console:
            from a2a_sync.console.site import ConsoleSite

            self.console: ConsoleSite = ConsoleSite(
                self._apps, console, http, self._url, mounted=True, engine=self._engine
            )
            self.wsgi_app = self.console.around(self.wsgi_app)
        if http.trusted_proxies:
            self.wsgi_app = TrustedProxies(self.wsgi_app, http.trusted_proxies)
        self._vary = ", ".join([VERSION, "Host", *(ADDRESS_HEADERS if http.trusted_proxies else ())])
        self._on_add: list[Callable[[str, A2AApp], None]] = []
        for name, agent in (agents or {}).items():
            self.add(name, agent)
        if root is not None and root not in self._apps:
            raise ValueError(f"root names no agent of this host: {root!r}")
        if job_queue is not None:
            job_queue.connect(self)

    # -- agents --

    def add(self, name: str, agent: Any, **options: Any) -> A2AApp:
        """Serve one more agent at ``/name`` and return its app. `options` of `A2AApp` override those of the host.

        Raises:
            ValueError: the name is not usable as a path segment, is in use, or its former agent is still being removed; or an
                interceptor is a function, and a `GRPCServer` serves the host.
            TypeError: an option is one that all agents share, or an option was given for an `A2AApp`.
        """
        if not _NAME.fullmatch(name) or name in _RESERVED_NAMES:
            raise ValueError(
                f"{name!r} cannot be the name of an agent: letters, digits and ._~- make one part of a path"
            )
        mount = NamedMount(self._engine, name)
        if self._mounts.setdefault(name, mount) is not mount:
            raise ValueError(f"there is an agent named {name!r}; remove it first")
        try:
            app = self._app(mount, agent, options)
            for callback in self._on_add:
                callback(name, app)
        except BaseException:
            self._engine.agents.pop(name, None)
            del self._mounts[name]
            raise
        self._apps[name] = app
        self.register(app)
        return app

    def on_add(self, callback: Callable[[str, A2AApp], None]) -> None:
        """Call `callback` with the name and the app of each agent that is added from now on; what it raises refuses the agent."""
        self._on_add.append(callback)

    def _app(self, mount: NamedMount, agent: Any, options: dict[str, Any]) -> A2AApp:
        if isinstance(agent, A2AApp):
            if options:
                raise TypeError(f"an A2AApp has its own settings: {', '.join(options)} cannot be given beside it")
            return agent
        if shared := _SHARED_OPTIONS & options.keys():
            raise TypeError(f"all agents of a host share {', '.join(sorted(shared))}: give it an A2AApp of its own")
        url = f"{self._url}/{mount.name}" if self._url else None
        return A2AApp(agent, url=url, _mount=mount, **{**self._options, **options})

    def remove(self, name: str, *, timeout: float = 10.0) -> None:
        """Stop serving an agent: its path answers 404 at once; runs that do not end within `timeout` seconds fail.

        Blocks until all runs have ended. The tasks remain in the store and are available when an agent is added under
        the same name; an `A2AApp` is closed.

        Raises:
            KeyError: there is no agent of this name.
        """
        app = self._apps.pop(name)
        self.deregister(app)
        app.close(timeout)
        self._engine.agents.pop(name, None)
        del self._mounts[name]

    @property
    def root(self) -> str | None:
        """The name of the agent that is also served at ``/``."""
        return self._root

    def __getitem__(self, name: str) -> A2AApp:
        return self._apps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._apps))

    def __len__(self) -> int:
        return len(self._apps)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return object.__eq__(self, other)

    # -- WSGI --

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
        """The response for a path of the host itself."""
        request = werkzeug_request(environ)
        path, method = request.environ.get("PATH_INFO", ""), request.environ["REQUEST_METHOD"]
        response: WSGIApplication
        if has_long_lists(environ):
            response = plain_error(400, LONG_LISTS)
        elif (
            self._trusted_hosts is not None and path not in HEALTH and not host_is_served(environ, self._trusted_hosts)
        ):
            response = plain_error(400, "this host is not served here")
        elif path != LIST_PATH and path not in self._operators.paths:
            where = shown(request.root_path + request.path)
            response = plain_error(
                404, f"there is no agent at {where}; agents are listed at {request.root_path}{LIST_PATH}"
            )
        elif method not in ("GET", "HEAD"):
            response = method_not_allowed(method, "GET, HEAD, OPTIONS")
        else:
            response = self._list(request) if path == LIST_PATH else self._operators.respond(path, request)
        connection = Connection(environ, lambda: False)
        return connection.limit_body(environ, response(environ, start_response), self.limits.write_timeout)

    def _list(self, request: Request) -> Response:
        try:
            base = self._url or address_of(request).rstrip("/")
        except InvalidRequestError as error:
            return plain_error(error.http_status, error.message)
        # The cards are encoded already: the same bytes as at their own paths.
        entries = [
            _list_entry(name, base, app.card_text(request, f"{base}/{name}/")) for name, app in list(self._apps.items())
        ]
        body = b'{"agents":[' + b",".join(entries) + b"]}"
        response = Response(body, content_type="application/json")
        response.headers.update({"Cache-Control": "no-cache", "Vary": self._vary})
        response.set_etag(hashlib.sha256(body).hexdigest()[:32])
        return response.make_conditional(request)

    # -- the whole --

    def work(self, job: JobReference) -> bool:
        """Execute a job of `job_queue` for an agent other than an app; see `A2AApp.work`."""
        self._engine.start()
        return self._engine.runs.work(job)

    @property
    def single_process(self) -> bool:
        """Whether tasks of an agent are in the memory of this process, so that other processes cannot read them."""
        return self._engine.store.workers is None or any(app.single_process for app in self._own_engine_apps())

    @property
    def stores(self) -> dict[str, str]:
        """For each agent, the path of the store that all processes with its tasks share; without agents in memory."""
        found: dict[str, str] = {}
        for app in list(self._apps.values()):
            found.update(app.stores)
        return found

    @property
    def running(self) -> int:
        # Those of mounted agents are runs of the shared engine.
        return self._engine.running + sum(app.running for app in self._own_engine_apps())

    def not_ready_reason(self) -> str:
        """The reason why an agent cannot accept work now, without internals; ``""`` if all agents can."""
        own = self._readiness.not_ready_reason(stopping=self._engine.draining)
        return own or next(filter(None, (app.not_ready_reason() for app in self._own_engine_apps())), "")

    def reserve(self, threads: int, connections: int | None = None) -> None:
        """Leave some of the `threads` and `connections` of the server free; see `A2AApp.reserve`."""
        for app in self._own_engine_apps():
            app.reserve(threads, connections)
        self._engine.reserve(threads, connections)

    def _own_engine_apps(self) -> list[A2AApp]:
        """The apps with engines of their own."""
        # An app that is being removed no longer has a mount.
        mounts = [(self._mounts.get(name), app) for name, app in list(self._apps.items())]
        return [app for mount, app in mounts if mount is not None and mount.executor is None]


def _list_entry(name: str, base: str, card: bytes) -> bytes:
    head = jsontext.dumps({"name": name, "url": f"{base}/{name}/"})
    return head[:-1] + b',"card":' + card + b"}"
