"""One agent as a service, below every transport: authentication, calls, cards and lifecycle.

A transport turns a request into an `AuthRequest` and a `Call`, and the result into its answer; it decides nothing about
either. `A2AApp` is the transport over WSGI, and a client of the same process calls the service without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from a2a_sync.agent.executor import AgentExecutor
from a2a_sync.agent.extensions import Extension
from a2a_sync.agent.mediatypes import InputMediaTypes
from a2a_sync.agent.spec import AgentSpec
from a2a_sync.auth.admission import Admission, make_admission
from a2a_sync.auth.policy import Auth, Scopes, as_principal
from a2a_sync.auth.request import AuthRequest
from a2a_sync.card import AgentCard, AgentExtension
from a2a_sync.codec import VERSIONS, Codec, by_version
from a2a_sync.engine.around import AroundRun, with_run_context
from a2a_sync.engine.components import Components
from a2a_sync.engine.hub import Observer
from a2a_sync.errors import AgentError, VersionNotSupportedError
from a2a_sync.operations import (
    GET_TASK,
    Call,
    CallContext,
    Endpoint,
    EventStream,
    GeneratorInterceptor,
    Interceptor,
    Principal,
    RequestT,
    ResultT,
    check_interceptors,
    owner_of,
)
from a2a_sync.server.activation import Activation
from a2a_sync.server.cards import AppCard, describe_agent, list_interfaces
from a2a_sync.server.engine import Mount, ServerEngine
from a2a_sync.server.extended import ExtendedCard, ExtendedCardSource
from a2a_sync.server.handler import RequestHandler
from a2a_sync.server.idempotency import IdempotentSend
from a2a_sync.server.metrics import Metrics
from a2a_sync.server.omission import omit_large_parts
from a2a_sync.server.ownership import OwnerResolver, scope_to_owner
from a2a_sync.server.pending import PendingReply, within
from a2a_sync.server.readiness import Readiness
from a2a_sync.stores.base import Owner
from a2a_sync.telemetry import tracing
from a2a_sync.telemetry.incidents import call_error
from a2a_sync.telemetry.logs import get_logger, log_context
from a2a_sync.telemetry.tracing import traced
from a2a_sync.types import GetTaskRequest

if TYPE_CHECKING:
    from a2a_sync.signing.signer import Sign

logger: Final = get_logger(__name__)

#: What the innermost call within a function as an interceptor has got so far.
_streams: ContextVar[list[EventStream]] = ContextVar("_streams")


class AgentService(Components):
    """An agent with its tasks, its card and its callers. Safe from many threads; nothing is started before the first call.

    Parameters:
        agent, card, extended_card, url, protocol_versions, protocol_bindings, handler_headers, around_run, extensions,
            interceptors, observers, metrics, auth, required_scopes, owner: as for `A2AApp`.
        mount: the place of the agent on an engine, which holds its tasks.
        sign: makes the signatures of both cards.

    Raises:
        ValueError, TypeError: as `A2AApp`.
    """

    def __init__(
        self,
        agent: AgentExecutor,
        mount: Mount,
        *,
        card: AgentCard | None = None,
        extended_card: ExtendedCardSource | None = None,
        sign: Sign | None = None,
        url: str | None = None,
        protocol_versions: Sequence[str] = ("1.0", "0.3"),
        protocol_bindings: Sequence[str] = ("JSONRPC", "HTTP+JSON"),
        handler_headers: Iterable[str] = (),
        around_run: AroundRun | None = None,
        extensions: Sequence[Extension | AgentExtension] = (),
        interceptors: Sequence[Interceptor] = (),
        observers: Sequence[Observer] = (),
        metrics: Metrics | None = None,
        auth: Auth | None = None,
        required_scopes: Scopes | None = None,
        owner: OwnerResolver | None = None,
    ) -> None:
        super().__init__(mount.component)
        self._work = mount.component
        #: The name under which the agent is one of several on its engine, or ``""``.
        self.mount_name: str = mount.name
        resolve = mount.around(_owner_of_call)
        self._resolve_owner: Callable[[Any], Any] = resolve if owner is None else scope_to_owner(owner, resolve)
        self.engine: ServerEngine = mount.engine
        engine = self.engine
        spec = AgentSpec.of(agent)
        self._check_handler = spec.check_handler
        #: What the card lists: bindings and versions.
        self.interfaces: list[tuple[str, str]] = list_interfaces(_check_versions(protocol_versions), protocol_bindings)
        card = card or describe_agent(spec)
        #: What callers must fulfil; None: they need no credentials.
        self.auth: Auth | None = auth
        self._admission = make_admission(auth, required_scopes, card)
        # The hook of the first extension gets the request as it was sent: a repeated send must look the same.
        first = IdempotentSend(listed=not spec.direct)
        activation = Activation((first, *card.capabilities.extensions, *spec.extensions, *extensions))
        self.cards: AppCard = AppCard(
            card,
            url=url,
            interfaces=self.interfaces,
            extensions=activation.declared,
            extended=extended_card is not None,
            push=engine.push_configs is not None,
            secured=self._admission.declare if self._admission is not None else None,
        )
        mount.serve(_with_hooks(spec, activation, around_run, metrics))
        #: The owner of a call is known when its request has been read, and not by its principal.
        self.names_owners: bool = owner is not None
        if auth is not None or owner is not None:
            engine.quotas.several = True
        for observer in observers:
            engine.hub.observe(mount.observer(observer))
        self._readiness = Readiness(engine)
        handler = RequestHandler(
            engine,
            self.cards.card.capabilities,
            InputMediaTypes(card),
            direct=spec.direct,
            headers=tuple(handler_headers),
            extended_card=ExtendedCard(extended_card, self.cards, sign),
        )
        interceptors = check_interceptors(interceptors)
        #: Those that keep the thread of a call that waits for its result.
        self.plain_interceptors: list[Interceptor] = [
            one for one in interceptors if not isinstance(one, GeneratorInterceptor)
        ]
        self._endpoint = self._wrap(mount.around(handler), owner, activation)
        for interceptor in reversed(interceptors):
            generates = isinstance(interceptor, GeneratorInterceptor)
            self._endpoint = interceptor(self._endpoint) if generates else _within_function(interceptor, self._endpoint)
        for interceptor in _own_interceptors(self._admission, metrics):
            self._endpoint = interceptor(self._endpoint)

    def _wrap(self, endpoint: Endpoint, owner: OwnerResolver | None, activation: Activation) -> Endpoint:
        """`endpoint` with what each call passes before it, but for interceptors."""
        endpoint = self.engine.thread_budget.guard(endpoint)
        if owner is not None:
            endpoint = scope_to_owner(owner, endpoint)
        if self.engine.limits.max_history_part_bytes is not None:
            endpoint = omit_large_parts(self.engine.limits.max_history_part_bytes, endpoint)
        return activation.around(endpoint)

    # -- calls --

    @property
    def secured(self) -> bool:
        """Callers need credentials."""
        return self._admission is not None

    def owner(self, principal: Principal | None) -> Owner:
        """The owner of the tasks that `principal` has with this agent, as the store names it."""
        owner: Owner = self._resolve_owner(Call(GET_TASK, GetTaskRequest(id=""), CallContext(principal=principal)))
        return owner

    def authenticate(self, request: AuthRequest) -> Principal | None:
        """The caller of a request, before its body is read; None where callers need no credentials and gave none.

        Raises:
            UnauthenticatedError: the request has no credentials, or wrong ones.
            PermissionDeniedError: the caller lacks a scope that its authenticator requires.
        """
        if self._admission is not None:
            return self._admission.authenticate(request)
        return None if request.principal is None else as_principal(request.principal)

    def call(self, call: Call[RequestT, ResultT]) -> ResultT:
        """The result of a call, or its stream of events. Blocks the calling thread as long as the call takes.

        A call with `CallContext.deferred_after` may return a `PendingReply`, which has the result later.

        Raises:
            AgentError: every failure; an unexpected exception is logged, and raised as an `InternalError` with its id. Where the
                store cannot be reached now, an `UnavailableError`.
        """
        self._work.start()
        if call.context.deferred_after < math.inf and self.plain_interceptors:
            # They have no other result than that of the call.
            call = replace(call, context=replace(call.context, deferred_after=math.inf))
        if call.context.deferred_after == math.inf:
            with self._serve(call):
                return self._endpoint(call)
        # A reply that is pending ends on another thread, in the same context.
        context = copy_context()
        result: ResultT = context.run(within, self._serve(call), self._endpoint, call)
        if isinstance(result, PendingReply):
            result.context = context
        return result

    @contextmanager
    def _serve(self, call: Call[Any, Any]) -> Iterator[None]:
        name = call.operation.name
        with log_context(method=name), traced(f"A2A {name}", tracing.incoming(call.context.headers), kind="server"):
            try:
                yield
            except AgentError:
                raise
            except Exception:
                raise call_error(logger, "request failed", {"method": name}, debug=self.engine.debug) from None

    def codecs(self, binding: str) -> dict[str, Codec]:
        """The codec of each version that is served over `binding`, the preferred version first."""
        return {version: by_version(version, binding) for served, version in self.interfaces if served == binding}

    def card(self, address: str | None = None) -> AgentCard:
        """The public card, at `address` (a URL) or at the service's own."""
        return self.cards.public(address)

    # -- the lifecycle --

    def not_ready_reason(self) -> str:
        """Why no work can be accepted now, without internal details; ``""`` when it can."""
        return self._readiness.not_ready_reason(stopping=self._work.draining)

    def start_work(self) -> None:
        """Start what works without calls, unchecked: cheap where it has started."""
        self._work.start()

    def start(self) -> bool:
        """Start what works without calls: retention, runs of dead processes, push notifications. Not before a fork.

        Raises:
            TypeError: the agent has no handler.
        """
        self._check_handler()
        return super().start()


def _within_function(interceptor: Interceptor, endpoint: Endpoint) -> Endpoint:
    """`endpoint` within an interceptor; a stream that it gets is closed if it raises an exception instead of returning it."""

    def noted(call: Call[Any, Any]) -> Any:
        result = endpoint(call)
        if call.operation.streaming and isinstance(result, EventStream):
            _streams.get([]).append(result)
        return result

    intercepted = interceptor(noted)

    def closing(call: Call[Any, Any]) -> Any:
        token = _streams.set([])
        try:
            return intercepted(call)
        except BaseException:
            for stream in _streams.get():
                stream.close()
            raise
        finally:
            _streams.reset(token)

    return closing


def _owner_of_call(call: Call[Any, Any]) -> Any:
    return Owner(id=owner_of(call.context))


def _with_hooks(
    spec: AgentSpec, activation: Activation, around_run: AroundRun | None, metrics: Metrics | None
) -> AgentSpec:
    """`spec` within the hooks of extensions, the context of each run, and its count, from the inside to the outside."""
    spec = activation.with_event_hooks(spec)
    for around in filter(None, (around_run, metrics.around_run if metrics is not None else None)):
        spec = with_run_context(spec, around)
    return spec


def _own_interceptors(admission: Admission | None, metrics: Metrics | None) -> list[Interceptor]:
    interceptors: list[Interceptor] = []
    if admission is not None and admission.scopes_of_each:
        interceptors.append(admission.require_scopes)
    if metrics is not None:
        interceptors.append(metrics.count_calls)
    return interceptors


def _check_versions(versions: Sequence[str]) -> Sequence[str]:
    """`versions`.

    Raises:
        ValueError: there is none, or one that this library does not speak.
    """
    for version in versions:
        try:
            by_version(version)
        except VersionNotSupportedError:
            raise ValueError(f"protocol_versions: {version!r} is none of {', '.join(VERSIONS)}") from None
    if not versions:
        raise ValueError("an app serves at least one version")
    return versions
