"""`A2AApp`: the WSGI application, and the one place where everything is wired together.

It knows paths and mounting, and decides which binding answers a request. What an operation means is the handler's
business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.wrappers import Request

from a2a_sync.agent.executor import check_executor
from a2a_sync.agent.extensions import Extension
from a2a_sync.agent.modes import InputModes
from a2a_sync.auth import admission_of
from a2a_sync.auth.policy import Auth, Scopes, principal_in
from a2a_sync.card import AgentCard, AgentExtension
from a2a_sync.codec import Codec, by_version
from a2a_sync.concurrency.closing import Closes
from a2a_sync.engine.around import AroundRun, Surrounded, database_connections
from a2a_sync.errors import AgentError, InvalidRequestError, VersionNotSupportedError
from a2a_sync.lazymodule import LazyModule
from a2a_sync.limits import Limits, OwnerQuota
from a2a_sync.operations import Call, Endpoint, Interceptor
from a2a_sync.push import PushOptions
from a2a_sync.server.activation import Activation
from a2a_sync.server.cards import BINDINGS, OwnCard, described, offering
from a2a_sync.server.engine import Engine, Seat
from a2a_sync.server.extended import ExtendedCard, ExtendedCardSource
from a2a_sync.server.handler import RequestHandler
from a2a_sync.server.idempotency import IdempotentSend
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.omission import slim
from a2a_sync.server.ownership import OwnerResolver, owned
from a2a_sync.stores.base import TaskStore
from a2a_sync.telemetry import tracing
from a2a_sync.telemetry.logs import placed
from a2a_sync.telemetry.tracing import traced
from a2a_sync.wsgi.cards import CARD_PATH, KEYS_PATH, OLD_CARD_PATH, CardDocument, key_set
from a2a_sync.wsgi.connection import Connection, limited
from a2a_sync.wsgi.exchange import Exchange, address_of, internal_error
from a2a_sync.wsgi.http_json import HttpJsonService, SaysTwice
from a2a_sync.wsgi.jsonrpc import JsonRpcService
from a2a_sync.wsgi.origins import REFUSED, Origins
from a2a_sync.wsgi.pages import HEALTH, OperatorPages, Readiness
from a2a_sync.wsgi.plain import host_is_served, nothing_here, only, plain_error
from a2a_sync.wsgi.process import ALONE, serve
from a2a_sync.wsgi.proxies import ADDRESS_HEADERS, TrustedProxies
from a2a_sync.wsgi.slowbodies import SlowBodies

if TYPE_CHECKING:
    from a2a_sync.signing import signer as _signer
else:
    _signer = LazyModule("a2a_sync.signing.signer")

#: Request headers that runs may see. Never credentials: they are stored with the run.
FORWARDED_HEADERS = ("accept-language", "user-agent", "x-request-id", "traceparent", "tracestate")


class A2AApp(Closes):
    """An agent as a WSGI application: ``gunicorn module:app --threads 32``.

    Nothing is started or opened before the first request, so the app may be made before a fork.

    Parameters:
        agent: an `Agent`, or any `AgentExecutor` together with `card`.
        extended_card: what those get who ask for more: a card, or a function of a `CardContext` that gives one.
        signer: signs both cards (it needs `url`); several do it one after the other.
        store: a `TaskStore` or a URL (``sqlite:///tasks.db``, ``memory:``); without one tasks live in memory.
        url: the public address; without it the card takes it from each request.
        versions: those of the protocol that are served, preferred first.
        bindings: those that are served, at one URL, in the order of the card.
        media_type: that of all answers of ``HTTP+JSON`` in 1.0; by default the one that ``Accept`` names,
            ``application/json`` for JSON bodies and for clients of event streams, else ``application/a2a+json``.
        files_twice: a function of a request's headers, in lower case, that says whether its caller encodes files twice over
            ``HTTP+JSON`` of 0.3, as Python's official SDK does. By default that SDK is known by its user agent.
        limits: the numbers that bound it.
        owner_quota: what one owner of tasks may take of it (an `OwnerQuota`, from `a2a_sync.limits`).
        headers: the request headers, in lower case, that handlers may see.
        trusted_hosts: the names by which the app may be called (None: any, and then shared caches may not keep the card).
        trusted_proxies: how many proxies in front of the app tell the truth in ``X-Forwarded-For``, ``-Proto``, ``-Host`` and
            ``-Prefix``; without it nobody is believed.
        around_run: called with the context of each run; what it returns is entered around the agent's code, on the run's
            thread.
        extensions: what clients may ask for besides the protocol, added to those of the agent and of the card.
        interceptors: put around every call, the first outermost: each takes an endpoint and gives one.
        metrics: counts what happens and adds ``/metrics``.
        push: switches push notifications on, as it says or with its defaults (True).
        auth: who may call: `BearerAuth` and its like, combined by ``&`` and ``|``, or a function of ``environ``.
        scopes: those that operations need, by name (``"*"``: all).
        owner: a function of a `Call` that says whose tasks are meant, by the id of a principal or by any other; without it
            everybody has their own.
        cors: the origins whose web pages may call it, besides its own.
        debug: for development: a task that fails by an unexpected exception, and an internal error, show its traceback to the
            caller. Never where callers are not trusted: tracebacks tell of code, paths and values.
        seat: the place of this app among several; given by an `AgentHost`.

    Raises:
        ValueError: a version or binding that this library does not speak, a store URL it does not know, a negative number of proxies.
        TypeError: `agent` is a class, has no ``execute``, has no handler, or is an executor that does not describe itself
            and comes without `card`.
    """

    def __init__(
        self,
        agent: Any,
        *,
        card: AgentCard | None = None,
        extended_card: ExtendedCardSource | None = None,
        card_signer: _signer.CardSigner | Sequence[_signer.CardSigner] | None = None,
        store: TaskStore | str | None = None,
        url: str | None = None,
        protocol_versions: Sequence[str] = ("1.0", "0.3"),
        protocol_bindings: Sequence[str] = BINDINGS,
        media_type: str | None = None,
        files_twice: SaysTwice | None = None,
        limits: Limits | None = None,
        owner_quota: OwnerQuota | None = None,
        handler_headers: Iterable[str] = FORWARDED_HEADERS,
        trusted_hosts: Sequence[str] | None = None,
        trusted_proxies: int = 0,
        around_run: AroundRun | None = None,
        extensions: Sequence[Extension | AgentExtension] = (),
        interceptors: Sequence[Interceptor] = (),
        metrics: Metrics | None = None,
        push: PushOptions | bool = False,
        auth: Auth | None = None,
        required_scopes: Scopes | None = None,
        owner: OwnerResolver | None = None,
        cors: Iterable[str] = (),
        debug: bool = False,
        seat: Seat | None = None,
    ) -> None:
        check_executor(agent)
        self._agent = agent
        self._url = url.rstrip("/") + "/" if url else None
        #: Which web pages may call; hosts ask it before they do anything for a request.
        self.origins = Origins(cors)
        self._trusted_hosts = list(trusted_hosts) if trusted_hosts is not None else None
        sign = None if card_signer is None else _signing(card_signer, self._url)
        codecs = _speaking(protocol_versions)
        offered = offering(codecs, protocol_bindings)
        self._codecs = {version: codecs[version] for _, version in offered}
        direct = bool(getattr(agent, "direct", False))
        card = card or described(agent)
        admission = admission_of(auth, required_scopes, card)
        self._admit = admission or principal_in
        # The first hook sees the request as it was sent: a send that comes again must look the same.
        activation = Activation(
            (
                IdempotentSend(listed=not direct),
                *card.capabilities.extensions,
                *getattr(agent, "extensions", ()),
                *extensions,
            )
        )
        self._cards = OwnCard(
            card,
            url=self._url,
            interfaces=offered,
            extensions=activation.declared,
            extended=extended_card is not None,
            push=bool(push) if seat is None else seat.engine.push_configs is not None,
            secured=admission.declared if admission is not None else None,
        )
        executor = activation.within(agent)
        counting_run = metrics.around_run if metrics is not None else None
        for around in filter(None, (around_run, counting_run, database_connections)):
            executor = Surrounded(executor, around)
        if seat is None:
            engine = Engine(
                store,
                limits or Limits(),
                lambda scope: executor,
                metrics=metrics,
                push=push,
                quota=owner_quota,
                debug=debug,
            )
        else:
            engine, seat.executor = seat.engine, executor
        if auth is not None or owner is not None:
            engine.quotas.several = True
        self._engine, self._work = engine, seat or engine
        self.store, self.limits = engine.store, engine.limits
        self._handler = RequestHandler(
            engine.store,
            engine.execution,
            engine.hub,
            engine.limits,
            self._cards.capabilities,
            InputModes(card),
            direct=direct,
            headers=tuple(handler_headers),
            extended_card=ExtendedCard(extended_card, self._cards, sign),
            push=engine.push_configs,
        )
        self._places = engine.places
        self._slow = SlowBodies(self.limits.body_timeout)
        handler: Endpoint = self._handler if seat is None else seat.around(self._handler)
        self._endpoint = activation.around(self._owned(self._places.guard(handler), owner))
        limiting = (admission.around,) if admission is not None and admission.limits_operations else ()
        counting = (metrics.count_calls,) if metrics is not None else ()
        for interceptor in (*reversed(interceptors), *limiting, *counting):
            self._endpoint = interceptor(self._endpoint)
        # What is counted is counted for the whole engine.
        self._readiness = Readiness(engine)
        self._operators = OperatorPages(self.trouble, metrics if seat is None else None)
        fixed = self._url is not None or self._trusted_hosts is not None
        vary = (*(() if fixed else ("Host",)), *(ADDRESS_HEADERS if trusted_proxies and not url else ()))
        self._document = CardDocument(self.agent_card, self._codecs, fixed=fixed, vary=vary, sign=sign)
        signers = [*_several(card_signer), *(_several(push.signer) if isinstance(push, PushOptions) else ())]
        self._keys = key_set(one.public_jwk for one in signers) if signers else None
        # The old path is for clients that know nothing but 0.3.
        self._card_paths = (CARD_PATH, OLD_CARD_PATH) if "0.3" in self._codecs else (CARD_PATH,)
        served = {binding for binding, _ in offered}
        self._jsonrpc = JsonRpcService(self._dispatch, self._codecs) if "JSONRPC" in served else None
        self._http_json = self._rest(media_type, files_twice) if "HTTP+JSON" in served else None
        self._respond: WSGIApplication = self.origins.around(self._limited) if self.origins else self._limited
        if trusted_proxies and seat is None:
            self._respond = TrustedProxies(self._respond, trusted_proxies)
        self._closed = False
        # Who serves several looks after them itself.
        self._serves = seat is not None

    def _owned(self, handler: Endpoint, owner: OwnerResolver | None) -> Endpoint:
        """`handler`, for the tasks of whom `owner` names, and without what is too large to send back."""
        if owner is not None:
            handler = owned(owner, handler)
        return (
            handler if self.limits.max_history_part_bytes is None else slim(self.limits.max_history_part_bytes, handler)
        )

    def _rest(self, media_type: str | None, files_twice: SaysTwice | None) -> HttpJsonService:
        dialects = {version: by_version(version, "HTTP+JSON") for version in self._codecs}
        return HttpJsonService(
            self._dispatch, dialects, served=self._codecs, media_type=media_type, files_twice=files_twice
        )

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

    def _limited(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return limited(environ, self._answer(environ, start_response), self.limits.write_timeout)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if self._engine.neighbours is not None:
            self._engine.neighbours.meet()
        elif environ.get("wsgi.multiprocess"):
            return plain_error(503, ALONE)(environ, start_response)
        request = Request(environ)
        request.trusted_hosts = self._trusted_hosts
        path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
        if self.origins.refuse(environ):
            return plain_error(403, REFUSED)(environ, start_response)
        if self._trusted_hosts is not None and path not in HEALTH and not host_is_served(request):
            return plain_error(400, "this host is not served here")(environ, start_response)
        response: WSGIApplication
        if path in ("", "/") and self._jsonrpc is not None:
            if method == "POST":
                return self._jsonrpc.respond(self._exchange(request, start_response))
            response = only(method, "POST, OPTIONS")
        elif path in self._operators.paths:
            read = method in ("GET", "HEAD")
            response = self._operators.respond(path) if read else only(method, "GET, HEAD, OPTIONS")
        elif path == KEYS_PATH and self._keys is not None:
            response = self._keys if method in ("GET", "HEAD") else only(method, "GET, HEAD, OPTIONS")
        elif path in self._card_paths:
            response = self._card(request) if method in ("GET", "HEAD") else only(method, "GET, HEAD, OPTIONS")
        else:
            if self._http_json is not None:
                answer = self._http_json.respond(self._exchange(request, start_response))
                if answer is not None:
                    return answer
            response = nothing_here(request)
        return response(environ, start_response)

    def _exchange(self, request: Request, start_response: StartResponse) -> Exchange:
        connection = Connection(request.environ, lambda: self._closed)
        return Exchange(request, start_response, connection, self.limits, self._admit, self._slow)

    def _card(self, request: Request) -> WSGIApplication:
        try:
            return self._document.respond(request, self._url or address_of(request))
        except InvalidRequestError as error:
            return plain_error(error.http_status, error.message)

    # -- the same without a network --

    def endpoint(self) -> Endpoint:
        """What a client in the same process calls: no network, no JSON, the same checks and errors."""
        return self._dispatch

    def _dispatch(self, call: Call) -> Any:
        self._work.start()
        trace = tracing.incoming(call.context.headers)
        with placed(method=call.operation.name), traced(f"A2A {call.operation.name}", trace, kind="server"):
            try:
                return self._endpoint(call)
            except AgentError:
                raise
            except Exception:
                raise internal_error(call, debug=self._engine.debug) from None

    @property
    def open_streams(self) -> int:
        """Streams that this process has open now."""
        return self._places.streams

    def reserve(self, threads: int) -> None:
        """The server that this app runs in has so many threads: leave some free, whatever streams and waiting calls take.

        Called by ``a2a_sync.gunicorn``; `Limits.server_threads` stands over it.
        """
        if self.limits.server_threads is None:
            self._places.reserve(threads)

    def agent_card(self, address: str | None = None) -> AgentCard:
        """The card, with what this app adds to it: its address (a URL), its versions and what it can do."""
        return self._cards.public(address)

    def card_text(self, request: Request, address: str) -> bytes:
        """The card as a document, in the form that the request asks for; at `address`, where the app has no ``url``."""
        return self._document.text(request, self._url or address)

    # -- the end --

    @property
    def alone(self) -> bool:
        """Tasks live in the memory of this process: another one would not know them."""
        return self.store.workers is None

    @property
    def stores(self) -> dict[str, str]:
        """The agent's name, and the path that all processes with its tasks have in common; nothing for tasks in memory."""
        workers = self.store.workers
        return {} if workers is None else {self._cards.name: workers.meeting_place}

    def trouble(self) -> str:
        """Why no work can be taken now, in words that say nothing of the inside; ``""`` when it can."""
        return self._readiness.trouble(stopping=self._work.draining)

    @property
    def running(self) -> int:
        """Runs that this process has not ended."""
        return self._work.running

    def begin(self) -> None:
        """Begin what goes on without requests: old tasks go, runs of dead processes are taken over, webhooks are told.

        The first request does it too. Called by ``a2a_sync.gunicorn`` in each worker; not before a fork.

        Raises:
            TypeError: the agent has no handler.
        """
        check_executor(self._agent, complete=True)
        self._work.begin()

    def drain(self) -> None:
        """Take no more work, but for what the runs that go on ask of this app: the first step of `close`.

        Streams of tasks that do not run in this process end, so that their clients resume elsewhere. Idempotent.
        """
        self._work.drain()

    def close(self, timeout: float = 10.0) -> None:
        """Take no more runs, give the running ones `timeout` seconds, fail what is left, end streams, close the store.

        A store that was handed in stays open. Idempotent.
        """
        self._work.close(timeout)
        self._closed = True
        self._slow.close()
        self._work.release()


def _speaking(versions: Sequence[str]) -> dict[str, Codec]:
    """The codecs of `versions`, the preferred one first."""
    try:
        codecs = {version: by_version(version) for version in versions}
    except VersionNotSupportedError:
        raise ValueError(f"not every version in {tuple(versions)} is one that this library speaks") from None
    if not codecs:
        raise ValueError("an app serves at least one version")
    return codecs


def _several(given: Any) -> Sequence[Any]:
    """What may be given as none, one or many."""
    return () if given is None else given if isinstance(given, Sequence) else (given,)


def _signing(signer: _signer.CardSigner | Sequence[_signer.CardSigner], url: str | None) -> _signer.Sign:
    from a2a_sync.signing.signer import together

    if url is None:
        raise ValueError("signer= needs url=: the card that is signed names the app's address")
    return together(signer)
