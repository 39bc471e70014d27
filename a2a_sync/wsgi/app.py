"""`A2AApp`: an agent as a WSGI application.

It handles paths, pages and mounting, and passes each request to the binding that its path belongs to. `AgentService`
executes the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.wrappers import Request

from a2a_sync.agent.executor import AgentExecutor
from a2a_sync.agent.extensions import Extension
from a2a_sync.auth.policy import Auth, Scopes
from a2a_sync.bindings.registry import BINDINGS
from a2a_sync.card import AgentCard, AgentExtension
from a2a_sync.engine.around import AroundRun
from a2a_sync.engine.hub import Observer
from a2a_sync.engine.jobs import JobQueue, JobReference
from a2a_sync.errors import InvalidRequestError
from a2a_sync.lazymodule import LazyModule
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.operations import Endpoint, Interceptor
from a2a_sync.push.options import PushOptions
from a2a_sync.server.engine import Mount, ServerEngine
from a2a_sync.server.extended import ExtendedCardSource
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.ownership import OwnerResolver
from a2a_sync.server.service import AgentService
from a2a_sync.stores.base import PubSub, TaskStore
from a2a_sync.wsgi.agentpage import agent_page, wants_page
from a2a_sync.wsgi.bodydeadline import BodyDeadline
from a2a_sync.wsgi.cards import CARD_PATH, KEYS_PATH, OLD_CARD_PATH, CardDocument, key_set
from a2a_sync.wsgi.connection import Connection
from a2a_sync.wsgi.exchange import BindingService, Exchange, address_of
from a2a_sync.wsgi.options import ConsoleOptions, HTTPOptions
from a2a_sync.wsgi.origins import REFUSED, Origins
from a2a_sync.wsgi.pages import (
    HEALTH,
    IF_MATCH,
    IF_NONE_MATCH,
    LONG_LISTS,
    OperatorPages,
    has_long_lists,
    host_is_served,
    method_not_allowed,
    path_not_found,
    plain_error,
    werkzeug_request,
)
from a2a_sync.wsgi.process import SINGLE_PROCESS, Site
from a2a_sync.wsgi.proxies import ADDRESS_HEADERS, TrustedProxies

if TYPE_CHECKING:
    from a2a_sync.signing import signer as _signer
else:
    _signer = LazyModule("a2a_sync.signing.signer")

#: Request headers that runs may see. Never credentials: they are stored with the run.
FORWARDED_HEADERS = ("accept-language", "user-agent", "x-request-id", "traceparent", "tracestate")


class A2AApp(Site):
    """An agent as a WSGI application: ``gunicorn module:app --threads 32``.

    The app starts no thread and opens no file before the first request, so it may be created before a fork. To wrap it
    in WSGI middleware, assign to ``app.wsgi_app``.

    Parameters:
        agent: an `Agent`, or any `AgentExecutor` together with `card`.
        card: the public card, in place of the agent's own card.
        extended_card: the card for authenticated callers, or a function of a `CardContext` that returns one.
        card_signer: a `CardSigner` that signs both cards, or several of them; requires `url`.
        store: a `TaskStore` or a URL (``sqlite:///tasks.db``, ``memory:``); by default tasks are kept in memory.
        pubsub: carries messages between the processes that share the store: a `PubSub`, or a URL (``redis://``); by default
            the one of the store (SQLite: sockets beside its file; PostgreSQL: notifications).
        job_queue: a `JobQueue`, which sends runs to other processes; these execute them by calling `work`. By default
            threads of this process execute them.
        url: the public address; without it the card takes it from each request.
        protocol_versions: the versions of the protocol that are served, the preferred one first.
        protocol_bindings: the bindings that are served, at one URL, in the order of the card.
        http: host names, proxies, web pages and media types (an `HTTPOptions`).
        limits: the limits of the app.
        owner_quota: how much of these limits one owner of tasks may use (an `OwnerQuota`, from `a2a_sync.limits`).
        handler_headers: the names of the request headers that handlers may read.
        around_run: called with the context of each run; the context manager that it returns is entered around the agent's
            code, on the run's thread.
        extensions: protocol extensions that clients may request, in addition to those of the agent and of the card.
        interceptors: wrap every call, the first one outermost; see `a2a_sync.operations.interceptor`.
        observers: functions of a `TaskBatch`, called after each write of this process to a task and before its streams
            show it, on the thread that wrote; they must not block.
        metrics: counts calls and runs, and adds the page ``/metrics``.
        push: enables push notifications, with these options or with the defaults (True).
        auth: how callers authenticate: authenticators such as `BearerAuth`, combined by ``&`` and ``|``, or a function
            of an `AuthRequest`.
        required_scopes: the scopes that each operation requires, by the name of the operation (``"*"``: all). If only
            one of SendMessage and SendStreamingMessage is listed, its scopes apply to both. A send that sets a webhook needs
            those of CreateTaskPushNotificationConfig too.
        owner: a function of a `Call` that returns the owner of its tasks: the id of a principal or any other id. Without
            it each caller owns its own tasks.
        debug: for development: failed tasks and internal errors show the traceback of an unexpected exception to the
            caller. Do not use it with untrusted callers: tracebacks contain code, paths and values.
        console: serves pages for people at ``/console``, with the defaults (True) or with `ConsoleOptions`; needs the extra
            ``console``.

    Raises:
        ValueError: a protocol version, binding or store URL is not supported, or `url` does not begin with ``http://``
            or ``https://``.
        TypeError: `agent` is a class, has no ``execute``, has no handler, or is an executor that does not describe itself
            and comes without `card`; an option of the wrong type.
    """

    _closed = False

    def __init__(
        self,
        agent: AgentExecutor,
        *,
        card: AgentCard | None = None,
        extended_card: ExtendedCardSource | None = None,
        card_signer: _signer.CardSigner | Sequence[_signer.CardSigner] | None = None,
        store: TaskStore | str | None = None,
        pubsub: PubSub | str | None = None,
        job_queue: JobQueue | None = None,
        url: str | None = None,
        protocol_versions: Sequence[str] = ("1.0", "0.3"),
        protocol_bindings: Sequence[str] = ("JSONRPC", "HTTP+JSON"),
        http: HTTPOptions | None = None,
        limits: Limits | None = None,
        owner_quota: OwnerQuota | None = None,
        handler_headers: Iterable[str] = FORWARDED_HEADERS,
        around_run: AroundRun | None = None,
        extensions: Sequence[Extension | AgentExtension] = (),
        interceptors: Sequence[Interceptor] = (),
        observers: Sequence[Observer] = (),
        metrics: Metrics | None = None,
        push: PushOptions | bool = False,
        auth: Auth | None = None,
        required_scopes: Scopes | None = None,
        owner: OwnerResolver | None = None,
        debug: bool = False,
        console: ConsoleOptions | bool = False,
        _mount: Mount | None = None,
    ) -> None:
        self._url = check_url(url, slash="/")
        http = check_options(http)
        sign = None if card_signer is None else _signing(card_signer, self._url)
        mount = _mount or Mount(
            ServerEngine(
                store,
                Limits.of(limits),
                metrics=metrics,
                push=push,
                quota=owner_quota,
                pubsub=pubsub,
                job_queue=job_queue,
                debug=debug,
            )
        )
        self._service = AgentService(
            agent,
            mount,
            card=card,
            extended_card=extended_card,
            sign=sign,
            url=self._url,
            protocol_versions=protocol_versions,
            protocol_bindings=protocol_bindings,
            handler_headers=handler_headers,
            around_run=around_run,
            extensions=extensions,
            interceptors=interceptors,
            observers=observers,
            metrics=metrics,
            auth=auth,
            required_scopes=required_scopes,
            owner=owner,
        )
        super().__init__(self._service)
        self._engine = mount.engine
        self.store: TaskStore = mount.engine.store
        self.limits: Limits = mount.engine.limits
        self._body_deadline = BodyDeadline(self.limits.body_timeout)
        self.origins: Origins = Origins(http.cors_origins)
        self._trusted_hosts = list(http.trusted_hosts) if http.trusted_hosts is not None else None
        self._bindings = self._load_bindings(http)
        self._document = self._card_document(http, sign)
        # A host of several agents is the site of the process: it serves the metrics and applies the proxies.
        self._registered = _mount is not None
        self._pages = self._list_pages(None if self._registered else metrics, card_signer, push)
        #: The application without what `__call__` adds; assign a wrapped one to put WSGI middleware around it.
        self.wsgi_app: WSGIApplication = self._with_middleware(http, console)
        if job_queue is not None:
            job_queue.connect(self)

    def _with_middleware(self, http: HTTPOptions, console: ConsoleOptions | bool) -> WSGIApplication:
        """The application inside the checks of origins, the console, and the trusted proxies."""
        app: WSGIApplication = self.origins.around(self._respond) if self.origins else self._respond
        if console:
            from a2a_sync.console.site import ConsoleSite

            self.console: ConsoleSite = ConsoleSite({"agent": self}, console, http, self._url, engine=self._engine)
            app = self.console.around(app)
        if http.trusted_proxies and not self._registered:
            app = TrustedProxies(app, http.trusted_proxies)
        return app

    def _load_bindings(self, http: HTTPOptions) -> list[Callable[[Exchange], Iterable[bytes] | None]]:
        service = self._service
        found: list[Callable[[Exchange], Iterable[bytes] | None]] = []
        for name in dict.fromkeys(binding for binding, _ in service.interfaces):
            binding: type[BindingService] = BINDINGS[name].load_service()
            found.append(binding(service.call, service.codecs(name), http).respond)
        return found

    def _card_document(self, http: HTTPOptions, sign: _signer.Sign | None) -> CardDocument:
        # The name of the host in the card does not come from the request, or is trusted.
        fixed = self._url is not None or self._trusted_hosts is not None
        proxied = http.trusted_proxies and self._url is None
        # Trusted hosts have any port, which a cache might omit from its key.
        vary = (*(() if self._url is not None else ("Host",)), *(ADDRESS_HEADERS if proxied else ()))
        versions = dict.fromkeys(version for _, version in self._service.interfaces)
        return CardDocument(self.agent_card, versions, fixed=fixed, vary=vary, sign=sign)

    def _list_pages(
        self, metrics: Metrics | None, card_signer: object, push: PushOptions | bool
    ) -> dict[str, Callable[[Request], WSGIApplication]]:
        """The pages that belong to no binding, by path; all of them are read with GET or HEAD."""
        pages: dict[str, Callable[[Request], WSGIApplication]] = {CARD_PATH: self._card}
        if any(version == "0.3" for _, version in self._service.interfaces):
            pages[OLD_CARD_PATH] = self._card
        operators = OperatorPages(self._service.not_ready_reason, metrics)
        for path in operators.paths:
            pages[path] = partial(operators.respond, path)
        push_signer = push.signer if isinstance(push, PushOptions) else None
        if signers := [*_as_list(card_signer), *_as_list(push_signer)]:
            keys = key_set(signer.public_jwk for signer in signers)
            pages[KEYS_PATH] = lambda request: keys
        return pages

    # -- WSGI --

    def respond_over(
        self, binding: BindingService, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """The response of `binding`, even if the app does not list it; 404 if the path is not one of the binding."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse, connection: Connection) -> Iterable[bytes]:
            refusal = self._refusal(environ, environ.get("PATH_INFO", ""))
            if refusal is not None:
                return refusal(environ, start_response)
            exchange = self._exchange(environ, start_response, connection)
            body = binding.respond(exchange)
            return exchange.respond_with(path_not_found(exchange.request)) if body is None else body

        return self._respond(environ, start_response, answer)

    def _respond(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        answer: Callable[[WSGIEnvironment, StartResponse, Connection], Iterable[bytes]] | None = None,
    ) -> Iterable[bytes]:
        connection = Connection(environ, self._is_closed)
        try:
            body = (answer or self._answer)(environ, start_response, connection)
        except BaseException:
            self._engine.responses.release()
            raise
        leave = self._engine.responses.release_bytes()
        return connection.limit_body(environ, body, self.limits.write_timeout, leave)

    def _answer(
        self, environ: WSGIEnvironment, start_response: StartResponse, connection: Connection
    ) -> Iterable[bytes]:
        response: WSGIApplication
        path = environ.get("PATH_INFO", "")
        page = self._pages.get(path)
        refusal = self._refusal(environ, path)
        if refusal is not None:
            response = refusal
        elif page is None and environ["REQUEST_METHOD"] != "POST" and wants_page(environ, path):
            response = agent_page(self.agent_card(), werkzeug_request(environ))
        elif page is None:
            exchange = self._exchange(environ, start_response, connection)
            for respond in self._bindings:
                answer = respond(exchange)
                if answer is not None:
                    return answer
            response = path_not_found(exchange.request)
        elif environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            response = page(werkzeug_request(environ))
        else:
            response = method_not_allowed(environ["REQUEST_METHOD"], "GET, HEAD, OPTIONS")
        return response(environ, start_response)

    def _exchange(self, environ: WSGIEnvironment, start_response: StartResponse, connection: Connection) -> Exchange:
        return Exchange(
            environ,
            start_response,
            connection,
            self.limits,
            self._service.authenticate,
            self._body_deadline,
            self._engine.responses,
            self._service.names_owners,
        )

    def _refusal(self, environ: WSGIEnvironment, path: str) -> WSGIApplication | None:
        """The error of a request that is refused whatever it asks for; starts what works without calls, if need be."""
        if self.store.workers is not None:
            # Also for a page: runs of dead processes are resumed without a call.
            self._service.start_work()
        elif environ.get("wsgi.multiprocess"):
            return plain_error(503, SINGLE_PROCESS)
        if (environ.get("QUERY_STRING") or IF_NONE_MATCH in environ or IF_MATCH in environ) and has_long_lists(environ):
            return plain_error(400, LONG_LISTS)
        if self.origins.refuse(environ):
            return plain_error(403, REFUSED)
        if self._trusted_hosts is not None and path not in HEALTH and not host_is_served(environ, self._trusted_hosts):
            return plain_error(400, "this host is not served here")
        return None

    def _is_closed(self) -> bool:
        return self._closed

    # -- the card --

    def _card(self, request: Request) -> WSGIApplication:
        try:
            return self._document.respond(request, self._url or address_of(request))
        except InvalidRequestError as error:
            return plain_error(error.http_status, error.message)

    def agent_card(self, address: str | None = None) -> AgentCard:
        """The card, with what this app adds to it: its address (a URL), its versions and its capabilities."""
        return self._service.card(address)

    def card_text(self, request: Request, address: str) -> bytes:
        """The card as a document, in the form that the request asks for; at `address`, where the app has no ``url``."""
        return self._document.text(request, self._url or address)

    @property
    def service(self) -> AgentService:
        """The agent without HTTP, for other transports."""
        return self._service

    # -- without a network --

    def endpoint(self) -> Endpoint:
        """The endpoint for clients of the same process: no network and no JSON, the same checks and errors."""
        return self._service.call

    # -- the process --

    @property
    def open_streams(self) -> int:
        """Streams that this process has open now."""
        return self._engine.thread_budget.streams

    def reserve(self, threads: int, connections: int | None = None) -> None:
        """Leave some of the server's `threads` free of streams and waiting calls, and some of its `connections` of streams.

        Called by ``a2a_sync.gunicorn``; `Limits.server_threads` takes precedence over `threads`.
        """
        self._engine.reserve(threads, connections)

    @property
    def single_process(self) -> bool:
        """Tasks live in the memory of this process, so that no other process knows them."""
        return self.store.workers is None

    @property
    def stores(self) -> dict[str, str]:
        """The agent's name, and the path that all processes with its tasks share; empty for tasks in memory."""
        workers = self.store.workers
        return {} if workers is None else {self._service.cards.card.name: workers.store_id}

    def work(self, job: JobReference) -> bool:
        """Execute a run that a process with the same `job_queue` has started. Blocks until the run ends.

        Called by the consumer of the queue. Returns False if the job was not executed, because it was delivered before
        or its task has ended.

        Raises:
            OverloadedError, StoreError: this process is stopping, or the store failed; deliver the job again.
        """
        self._service.start_work()
        return self._engine.runs.work(job)

    def not_ready_reason(self) -> str:
        """Why no work can be accepted now, without internal details; ``""`` when it can."""
        return self._service.not_ready_reason()

    def start(self) -> bool:
        """Start the background work: retention, runs of dead processes, push notifications.

        The first request or call starts it too. ``a2a_sync.gunicorn`` calls this method in each worker. Do not call it
        before a fork.

        Raises:
            TypeError: the agent has no handler.
        """
        return super().start()

    def drain(self) -> None:
        """Accept no new work, except calls of running handlers to this app: the first step of `close`.

        Streams of tasks that do not run in this process end, so that their clients resume elsewhere. Idempotent.
        """
        super().drain()

    def close(self, timeout: float = 10.0) -> None:
        """Accept no new runs, give the running ones `timeout` seconds, fail the rest, end streams, close the store.

        A store that was passed as an object stays open. Idempotent.
        """
        super().close(timeout)
        self._closed = True
        self._body_deadline.close()


def check_url(url: str | None, *, slash: str = "") -> str | None:
    """The public URL that a user passed as ``url``, with `slash` at its end; None for an empty one.

    Raises:
        ValueError: it does not begin with ``http://`` or ``https://``.
    """
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https://, as in https://agents.example.com; not {url!r}")
    return url.rstrip("/") + slash


def check_options(http: HTTPOptions | None) -> HTTPOptions:
    """The options that a user passed as ``http``.

    Raises:
        TypeError: they are of another type.
    """
    if http is None:
        return HTTPOptions()
    if not isinstance(http, HTTPOptions):
        raise TypeError(f"http takes HTTPOptions(…), not a {type(http).__name__}")
    return http


def _as_list(given: Any) -> Sequence[Any]:
    """What a parameter that takes none, one or several was given."""
    return () if given is None else given if isinstance(given, Sequence) else (given,)


def _signing(signer: _signer.CardSigner | Sequence[_signer.CardSigner], url: str | None) -> _signer.Sign:
    from a2a_sync.signing.signer import combine_signers

    if url is None:
        raise ValueError("card_signer= needs url=: the card that is signed names the app's address")
    return combine_signers(signer)
