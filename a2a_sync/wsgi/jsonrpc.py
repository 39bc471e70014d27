"""The server's half of JSON-RPC over WSGI: one request in, one response or one stream out (spec 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from a2a_sync.bindings import jsonrpc
from a2a_sync.bindings.headers import only_version, wrong_version
from a2a_sync.codec import Codec, by_method
from a2a_sync.errors import AgentError, VersionNotSupportedError
from a2a_sync.operations import AnyOperation, Call, Endpoint
from a2a_sync.server.pending import PendingReply
from a2a_sync.wsgi.exchange import Exchange, internal_error
from a2a_sync.wsgi.options import HTTPOptions
from a2a_sync.wsgi.pages import method_not_allowed

_PATHS = ("/", "")


class JsonRpcService:
    """Responds to JSON-RPC requests, which are posted to the app's own address; see `BindingService`."""

    def __init__(self, endpoint: Endpoint, codecs: Mapping[str, Codec], http: HTTPOptions) -> None:
        self._endpoint = endpoint
        self._codecs = codecs

    def respond(self, exchange: Exchange) -> Iterable[bytes] | None:
        """The response to one request; None for other paths. Blocks as long as the call takes, or its body does; never raises."""
        if exchange.environ.get("PATH_INFO", "") not in _PATHS:
            return None
        if exchange.method != "POST":
            return exchange.respond_with(method_not_allowed(exchange.method, "POST, OPTIONS"))
        rpc_id: jsonrpc.RpcId = None
        codec = next(iter(self._codecs.values()))
        streams = False
        try:
            exchange.authenticate()
            rpc = jsonrpc.read_request(exchange.read_body())
            rpc_id = rpc.id
            codec, operation = self._find(rpc.method, exchange.requested_version)
            # The official clients of 0.3 read nothing but a stream where they asked for one, errors included.
            streams = operation.streaming and codec.version == "0.3"
            request = codec.load_request(operation, rpc.params)
            call: Call[Any, Any] = Call(operation, request, exchange.context(codec.version, operation))
            result = self._endpoint(call)
            if operation.streaming:
                return exchange.stream(result, jsonrpc.EventEnvelope(rpc_id), codec)
            if isinstance(result, PendingReply):
                return exchange.pending(result, partial(_respond_later, exchange, rpc_id, codec, operation))
            return exchange.answer(200, jsonrpc.write_result(rpc_id, codec.dump_result(operation, result)))
        except jsonrpc.RpcError as invalid:
            # Handled here: an error that a variable keeps refers to its own frame by its traceback, and so keeps the request until
            # the garbage collector finds the cycle.
            return _respond_with_error(exchange, invalid.id, codec, invalid.error)
        except AgentError as error:
            return _respond_with_error(exchange, rpc_id, codec, error, streams)
        except Exception:
            return _respond_with_error(exchange, rpc_id, codec, internal_error(), streams)

    def _find(self, method: str, requested: str) -> tuple[Codec, AnyOperation]:
        """The codec of the requested version, and the operation that it calls `method`.

        Raises:
            MethodNotFoundError: no version has the method.
            VersionNotSupportedError: the requested version is not served here, or does not have the method.
        """
        codec = self._codecs.get(requested if requested in self._codecs else only_version(requested))
        operation = None if codec is None else codec.operations.get(method)
        if codec is None or operation is None:
            raise self._unserved(method, requested)
        return codec, operation

    def _unserved(self, method: str, requested: str) -> VersionNotSupportedError:
        codec = next((one for one in self._codecs.values() if method in one.operations), None) or by_method(method)
        served = codec.version in self._codecs
        what = f"{method} is a method of protocol {codec.version}" + ("" if served else ", which is not served here")
        return wrong_version(what, requested, codec.version if served else next(iter(self._codecs)), self._codecs)


def _respond_later(
    exchange: Exchange, rpc_id: jsonrpc.RpcId, codec: Codec, operation: AnyOperation, outcome: Callable[[], Any]
) -> Iterable[bytes]:
    """The response to a call that has waited; `outcome` returns its result, or raises its error."""
    try:
        return exchange.answer(200, jsonrpc.write_result(rpc_id, codec.dump_result(operation, outcome())))
    except AgentError as error:
        return _respond_with_error(exchange, rpc_id, codec, error)
    except Exception:
        return _respond_with_error(exchange, rpc_id, codec, internal_error())


def _respond_with_error(
    exchange: Exchange, rpc_id: jsonrpc.RpcId, codec: Codec, error: AgentError, streams: bool = False
) -> Iterable[bytes]:
    if streams and error.rpc_http_status == 200 and exchange.wants_events:
        return exchange.event(jsonrpc.write_error(rpc_id, error, codec))
    return exchange.answer(error.rpc_http_status, jsonrpc.write_error(rpc_id, error, codec), error)
