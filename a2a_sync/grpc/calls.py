"""One gRPC call and its answer: the caller, the request and the context in; a result, a stream or an error out.

Messages come and go as bytes, so that what cannot be decoded gets an error of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import InitVar, dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import grpc

from a2a_sync import jsontext
from a2a_sync.auth.request import AuthRequest, PeerCertificate
from a2a_sync.bindings import protobuf
from a2a_sync.bindings.headers import VERSION, named_extensions, named_versions
from a2a_sync.codec import Codec, by_version
from a2a_sync.codec.base import ENCODING, LOCKS
from a2a_sync.codec.fields import shown
from a2a_sync.engine.hub import PolledStream, Steps, Wait
from a2a_sync.errors import AgentError, InvalidParamsError, VersionNotSupportedError
from a2a_sync.grpc.streams import OpenStream, Sender
from a2a_sync.grpc.threads import CallThreads, StreamedCall
from a2a_sync.operations import (
    OPERATIONS,
    SEND_STREAMING_MESSAGE,
    AnyOperation,
    Call,
    CallContext,
    Principal,
    StreamItem,
)
from a2a_sync.server.pending import CallerGone, PendingReply
from a2a_sync.server.service import AgentService
from a2a_sync.stores.base import SMALL_BYTES
from a2a_sync.telemetry.incidents import incident
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: The metadata that names the agent of a host; clients of 1.0 can name it in the tenant of their request.
AGENT = "a2a-agent"
#: Seconds after which a call that waits leaves its thread; most tasks are short.
_DEFERRED_AFTER = 0.25
#: Smaller messages are never expensive to read.
_SMALL_MESSAGE = 64 * 1024


class Agents:
    """The agents of a server by name: one without a name, or those of a host.

    Parameters:
        services: returns the service of a name, and None for a name without an agent.
        names: returns the names; empty where there is one agent, which needs none.
    """

    def __init__(self, services: Callable[[str], AgentService | None], names: Callable[[], list[str]]) -> None:
        self._services = services
        self._names = names

    def find(self, headers: dict[str, str], tenant: str) -> tuple[AgentService, str]:
        """The agent of a request of `tenant`, and what of the tenant does not belong to the agent's name.

        Raises:
            InvalidParamsError: the request names no agent.
        """
        named = headers.get(AGENT, "")
        name, rest = (named, tenant) if named else tenant.partition("/")[::2]
        service = self._services(name)
        if service is None and not named:
            service, rest = self._services(""), tenant
        if service is not None:
            return service, rest
        raise InvalidParamsError(
            f"there is no agent named {shown(named or tenant)} here; name one of {', '.join(self._names()) or 'none'}"
            f" in the tenant of the request or in the metadata {AGENT!r}"
        )


class _Caller(NamedTuple):
    """The caller of a request to an agent, which belongs to `tenant`; `owner_found` is that of its context."""

    headers: dict[str, str]
    tenant: str
    peer: str
    principal: Principal | None
    owner_found: Callable[[str], None] | None


@dataclass(eq=False, repr=False)
class Methods:
    """The methods of one protocol version, by their paths.

    Parameters:
        version: the protocol version.
        agents: finds the agent of each request.
        address: returns the address that results contain.
        sender: sends the events of streams, and the answers of sends that have left their thread.
        threads: receive the messages of calls.
    """

    version: InitVar[str]
    agents: Agents
    address: Callable[[], str]
    sender: Sender
    threads: CallThreads

    def __post_init__(self, version: str) -> None:
        self._codec: Codec = by_version(version, "GRPC")

    def handlers(self) -> Any:
        """The handler of these methods, for grpcio."""
        version = self._codec.version
        handlers = {}
        for name, method in protobuf.methods(version).items():
            serve: Any = self.threads.receiving(partial(self._serve, OPERATIONS[name], method))
            # It may write after it has returned. On the wire a call with one message is like a stream of one.
            serve.experimental_non_blocking = True
            handlers[method.path.rpartition("/")[2]] = grpc.unary_stream_rpc_method_handler(serve)
        return grpc.method_handlers_generic_handler(protobuf.SERVICES[version], handlers)

    # -- calls --

    def _serve(
        self,
        operation: AnyOperation,
        method: protobuf.Method,
        data: bytes | AgentError,
        rpc: Any,
        write: Callable[[bytes | None], None],
    ) -> None:
        """Answer a call. Events, and the answer of a call that waits, are sent after this has returned."""
        steps = self._steps(operation, method, data, rpc, write)
        self._go_on(steps, steps.__next__)

    def _go_on(self, steps: Steps[None], take: Callable[[], Wait]) -> None:
        """Take the next steps of a call, and leave the thread while it waits."""
        with suppress(StopIteration):
            self.threads.resume(take(), partial(self._go_on, steps, partial(steps.send, 0.0)))

    def _steps(
        self,
        operation: AnyOperation,
        method: protobuf.Method,
        data: bytes | AgentError,
        rpc: Any,
        write: Callable[[bytes | None], None],
    ) -> Steps[None]:
        service: AgentService | None = None
        try:
            try:
                if isinstance(data, AgentError):
                    raise data
                # It may have waited for a thread.
                _leave_if_gone(rpc)
                service, caller = self._admit(method, data, rpc)
                owner = "" if caller.principal is None else caller.principal.id
                if not service.names_owners:
                    service.engine.responses.check(owner)
                many = len(data) > _SMALL_MESSAGE and protobuf.has_many_fields(data, method.request)
                service.engine.responses.begin(owner, expensive=many, found=not service.names_owners)
                if len(data) > SMALL_BYTES:
                    yield from service.engine.responses.reserving(len(data), owner, response=False)
                    _leave_if_gone(rpc)
                call = self._read(operation, method, data, caller, rpc)
                result = service.call(call)
                if operation.streaming or isinstance(result, PendingReply):
                    self._open_stream(service, call, result, rpc)
                else:
                    self._answer(call, result, rpc)
            finally:
                if service is not None:
                    service.engine.responses.release()
        # No variable of this frame keeps an error: its traceback refers to the frame, and so to the message, until the garbage
        # collector finds such a cycle.
        except AgentError as error:
            self._refuse(error, rpc, write)
        except Exception:
            self._refuse(incident(logger, "request failed", {"method": operation.name}), rpc, write)

    def _refuse(self, error: AgentError, rpc: Any, write: Callable[[bytes | None], None]) -> None:
        _set_error(error, self._codec, rpc)
        write(None)

    def _answer(self, call: Call[Any, Any], result: Any, rpc: Any) -> None:
        body = self._encode_result(call, result, rpc)
        _send_headers(call, rpc)
        StreamedCall(rpc, self.sender.unread).end(body)

    def _encode_result(self, call: Call[Any, Any], result: Any, rpc: Any) -> bytes:
        _leave_if_gone(rpc)
        dumped = self._codec.dump_result(call.operation, result)
        return protobuf.encode_result(call.operation.name, dumped, self._codec.version)

    def _admit(self, method: protobuf.Method, data: bytes, rpc: Any) -> tuple[AgentService, _Caller]:
        """The agent that is called, and the caller. Of the message only the tenant is parsed."""
        headers = _headers(rpc)
        version = self._codec.version
        named = headers.get(VERSION.lower(), "")
        if named and named_versions(named) != {version}:
            raise VersionNotSupportedError(
                f"{method.path} is a method of protocol {version}, and the metadata names version {shown(named)};"
                f" send 'a2a-version: {version}'"
            )
        service, tenant = self.agents.find(headers, protobuf.read_tenant(data, method.request))
        if version not in {served for _, served in service.interfaces}:
            raise VersionNotSupportedError(f"this agent does not serve protocol {version}")
        peer = _address(rpc.peer())
        certificate = partial(_certificate, rpc)
        principal = service.authenticate(AuthRequest(headers, peer_address=peer, certificate=certificate))
        owner_found = service.engine.responses.count_for if service.names_owners else None
        return service, _Caller(headers, tenant, peer, principal, owner_found)

    def _read(
        self, operation: AnyOperation, method: protobuf.Method, data: bytes, caller: _Caller, rpc: Any
    ) -> Call[Any, Any]:
        message = protobuf.parse(data, method.request)
        value = protobuf.decode_request(operation.name, message, self._codec.version)
        request = self._codec.load_request(operation, value)
        if caller.tenant != getattr(request, "tenant", caller.tenant):
            request = replace(request, tenant=caller.tenant)
        return Call(operation, request, self._context(operation, caller, rpc))

    def _context(self, operation: AnyOperation, caller: _Caller, rpc: Any) -> CallContext:
        headers = caller.headers
        last = headers.get("last-event-id", "")
        return CallContext(
            headers=headers,
            principal=caller.principal,
            extensions=named_extensions(headers, self._codec.version),
            answer_headers={},
            version=self._codec.version,
            last_event_id=int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None,
            gone=lambda: not rpc.is_active(),
            address=self.address() if operation.addressed else "",
            owner_found=caller.owner_found,
            peer=caller.peer,
            # Streams leave the thread at once, and calls that wait after a moment.
            threaded=False,
            deferred_after=_DEFERRED_AFTER,
        )

    # -- streams --

    def _open_stream(self, service: AgentService, call: Call[Any, Any], events: PolledStream, rpc: Any) -> None:
        responses, streaming = service.engine.responses, call.operation.streaming
        pending = events if isinstance(events, PendingReply) else None
        leave: Callable[[], None] | None = None
        numbered = streaming and protobuf.EVENT_NUMBERS in call.context.headers
        encode_item = self._encode_numbered if numbered else self._encode

        def encode(item: StreamItem) -> bytes:
            _leave_if_gone(rpc)
            return encode_item(item)

        def encode_pending(item: StreamItem) -> bytes:
            nonlocal leave
            try:
                if streaming:
                    return encode(item)
                body = self._encode_result(call, item.event, rpc)
            finally:
                # What this thread has reserved; another one may end the call.
                leave = leave or responses.release_bytes()
            _send_headers(call, rpc)
            return body

        def finish(error: AgentError | None) -> None:
            try:
                if error is not None:
                    _set_error(error, self._codec, rpc)
            finally:
                responses.release()
                if leave is not None:
                    leave()

        try:
            # A stream reserves bytes until its snapshot is encoded, and a place until it ends.
            first = [encode(item) for item in events.poll(0) or ()] if pending is None and responses.reserved else []
            leave = responses.release_bytes()
            if numbered and call.context.answer_headers is not None:
                call.context.answer_headers[protobuf.EVENT_NUMBERS] = "1"
            if streaming:
                _send_headers(call, rpc)
            opened = OpenStream(
                self.sender,
                events,
                encode if pending is None else encode_pending,
                self._encode_end,
                StreamedCall(rpc, self.sender.unread),
                heartbeats=numbered,
                ages=streaming,
                pending=pending,
                first=first,
                finish=finish,
            )
            opened.open(rpc)
        except BaseException:
            events.close()
            if pending is not None:
                with suppress(AgentError):
                    pending.poll(0)
            if leave is not None:
                leave()
            raise

    def _encode_end(self, item: StreamItem) -> bytes | None:
        """The message that marks the end, in those versions that have one."""
        last = self._codec.encode_end(item)
        if last is None:
            return None
        return protobuf.encode_result(SEND_STREAMING_MESSAGE.name, jsontext.loads(last), self._codec.version)

    def _encode_numbered(self, item: StreamItem) -> bytes:
        data = self._encode(item)
        return data if item.number is None else protobuf.with_event_number(data, item.number)

    def _encode(self, item: StreamItem) -> bytes:
        """The message of an event, encoded once for all streams."""
        key = f"grpc {self._codec.version}"
        encoded = item.encoded.get(key)
        if encoded is None:
            with ENCODING.locks[id(item.encoded) // 16 % LOCKS]:
                encoded = item.encoded.get(key)
                if encoded is None:
                    event = self._codec.dump_event(item.event)
                    encoded = protobuf.encode_result(SEND_STREAMING_MESSAGE.name, event, self._codec.version)
                    item.encoded[key] = encoded
        return encoded


def _leave_if_gone(rpc: Any) -> None:
    """Called before what takes long.

    Raises:
        CallerGone: the client has left, or its deadline has passed.
    """
    if not rpc.is_active():
        raise CallerGone


def _set_error(error: AgentError, codec: Codec, rpc: Any) -> None:
    """End the call with `error` when it ends."""
    status = protobuf.encode_status(error, codec)
    trailing: list[tuple[str, str | bytes]] = [(protobuf.STATUS_DETAILS, status)]
    trailing += [("www-authenticate", challenge) for challenge in error.challenges]
    rpc.set_trailing_metadata(tuple(trailing))
    rpc.set_code(getattr(grpc.StatusCode, error.grpc_status))
    rpc.set_details(protobuf.error_text(error, codec.version))


def _send_headers(call: Call[Any, Any], rpc: Any) -> None:
    headers = call.context.answer_headers
    if headers:
        rpc.send_initial_metadata(tuple((name.lower(), value) for name, value in headers.items()))


def _headers(rpc: Any) -> dict[str, str]:
    """The metadata of a call as headers. The values of a name that occurs more than once are joined; binary ones are left out."""
    headers: dict[str, str] = {}
    for name, value in rpc.invocation_metadata():
        if isinstance(value, str):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _address(peer: str) -> str:
    """The IP address in gRPC's name of a peer: ``ipv4:127.0.0.1:50051``, ``ipv6:%5B::1%5D:50051``, ``unix:``."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


def _certificate(rpc: Any) -> PeerCertificate | None:
    """The client certificate that the TLS session has verified."""
    # In the order and with the escapes of RFC 2253, as `PeerCertificate` has it.
    subject = rpc.auth_context().get("x509_subject")
    return PeerCertificate(subject[0].decode("utf-8", "replace")) if subject else None
