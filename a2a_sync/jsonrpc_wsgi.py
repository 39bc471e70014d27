"""JSON-RPC over WSGI, the server's half: one request in, one answer or one stream out (spec 9).

It chooses the codec, joins it with the JSON-RPC envelope and hands the call on. WSGI itself is `exchange`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from a2a_sync.bindings import jsonrpc
from a2a_sync.codec import Codec
from a2a_sync.errors import A2AError, VersionNotSupportedError
from a2a_sync.exchange import Exchange, internal_error
from a2a_sync.operations import Call, Endpoint


class JsonRpcService:
    """Answers JSON-RPC requests with what `endpoint` gives. `codecs` are the versions that are served, preferred first."""

    def __init__(self, endpoint: Endpoint, codecs: Mapping[str, Codec]) -> None:
        self._endpoint = endpoint
        self._codecs = codecs

    def respond(self, exchange: Exchange) -> Iterable[bytes]:
        """Answer one request. Blocks for as long as the call takes; never raises."""
        rpc_id: jsonrpc.RpcId = None
        codec = next(iter(self._codecs.values()))
        try:
            rpc = jsonrpc.read_request(exchange.body())
            rpc_id = rpc.id
            codec = self._codec(exchange.named_version)
            operation = codec.operation(rpc.method)
            call = Call(operation, codec.load_request(operation, rpc.params), exchange.context(codec.version))
            if operation.streaming:
                return exchange.stream(lambda: self._endpoint(call), jsonrpc.EventEnvelope(rpc_id), codec)
            body = jsonrpc.write_result(rpc_id, codec.dump_result(operation, self._endpoint(call)))
            return exchange.answer(200, body)
        except jsonrpc.RpcError as invalid:
            rpc_id, error = invalid.id, invalid.error
        except A2AError as caught:
            error = caught
        except Exception:
            error = internal_error()
        return exchange.answer(error.rpc_http_status, jsonrpc.write_error(rpc_id, error, codec), error)

    def _codec(self, named: str) -> Codec:
        """The codec of the version that the caller names; none named is 0.3 (spec 3.6.2)."""
        # A header that was sent twice arrives as a list; patch numbers mean nothing (spec 3.6).
        asked_for = {".".join(value.split(".")[:2]) for value in (named or "0.3").replace(" ", "").split(",") if value}
        codec = self._codecs.get(asked_for.pop()) if len(asked_for) == 1 else None
        if codec is not None:
            return codec
        served = ", ".join(self._codecs)
        asked = f"Protocol version {named!r} is not served here" if named else "The request names no protocol version"
        raise VersionNotSupportedError(
            f"{asked}; send the header 'A2A-Version: {next(iter(self._codecs))}' (served: {served})",
            metadata={"supportedVersions": served},
        )
