"""JSON-RPC over WSGI, the server's half: one request in, one answer or one stream out (spec 9).

It chooses the codec, joins it with the JSON-RPC envelope and hands the call on. WSGI itself is `exchange`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from a2a_sync.bindings import jsonrpc
from a2a_sync.bindings.headers import UNNAMED, named_versions
from a2a_sync.codec import Codec, by_method
from a2a_sync.codec.fields import shown
from a2a_sync.errors import AgentError, VersionNotSupportedError
from a2a_sync.operations import Call, Endpoint
from a2a_sync.wsgi.exchange import Exchange, internal_error


class JsonRpcService:
    """Answers JSON-RPC requests with what `endpoint` gives. `codecs` are the versions that are served, preferred first."""

    def __init__(self, endpoint: Endpoint, codecs: Mapping[str, Codec]) -> None:
        self._endpoint = endpoint
        self._codecs = codecs

    def respond(self, exchange: Exchange) -> Iterable[bytes]:
        """Answer one request. Blocks for as long as the call takes; never raises."""
        rpc_id: jsonrpc.RpcId = None
        codec = next(iter(self._codecs.values()))
        streams = False
        try:
            exchange.admit()
            rpc = jsonrpc.read_request(exchange.body())
            rpc_id = rpc.id
            codec = self._codec(rpc.method, exchange.named_version)
            operation = codec.operation(rpc.method)
            # The official clients of 0.3 read nothing but a stream where they asked for one, errors included.
            streams = operation.streaming and codec.version == "0.3"
            call = Call(
                operation,
                codec.load_request(operation, rpc.params),
                exchange.context(codec.version, addressed=operation.addressed),
            )
            if operation.streaming:
                return exchange.stream(lambda: self._endpoint(call), jsonrpc.EventEnvelope(rpc_id), codec)
            body = jsonrpc.write_result(rpc_id, codec.dump_result(operation, self._endpoint(call)))
            return exchange.answer(200, body)
        except jsonrpc.RpcError as invalid:
            rpc_id, error = invalid.id, invalid.error
        except AgentError as caught:
            error = caught
        except Exception:
            error = internal_error()
        body = jsonrpc.write_error(rpc_id, error, codec)
        if streams and error.rpc_http_status == 200 and exchange.wants_events:
            return exchange.event(body)
        return exchange.answer(error.rpc_http_status, body, error)

    def _codec(self, method: str, named: str) -> Codec:
        """The codec whose version the method is of, if the caller names that version too.

        Raises:
            MethodNotFoundError: the method is of no version.
            VersionNotSupportedError: the two differ, or the version is not served here.
        """
        codec = by_method(method)
        if codec.version in self._codecs and (named_versions(named) or {UNNAMED}) == {codec.version}:
            return codec
        served = ", ".join(self._codecs)
        wanted = codec.version if codec.version in self._codecs else next(iter(self._codecs))
        raise VersionNotSupportedError(
            f"{method} is a method of protocol {codec.version}"
            + ("" if codec.version in self._codecs else ", which is not served here")
            + (f", and the request names version {shown(named)}" if named else ", and the request names no version")
            + f"; send the header 'A2A-Version: {wanted}' (served: {served})",
            metadata={"supportedVersions": served},
        )
