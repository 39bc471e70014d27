"""The server's half of HTTP+JSON over WSGI: one request in, one response or one stream out (spec 11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from a2a_sync.bindings import http_json
from a2a_sync.bindings.headers import UNNAMED, only_version, wrong_version
from a2a_sync.bindings.routes import V03_PREFIX, Paths, RouteMatch, WrongVerbError
from a2a_sync.codec import Codec, by_version
from a2a_sync.errors import AgentError, VersionNotSupportedError
from a2a_sync.operations import AnyOperation, Call, Endpoint
from a2a_sync.server.pending import PendingReply
from a2a_sync.types import SendMessageRequest
from a2a_sync.wsgi.exchange import Exchange, internal_error
from a2a_sync.wsgi.options import HTTPOptions
from a2a_sync.wsgi.streaming import EVENT_STREAM

#: The ranges of ``Accept`` that match the binding's own media type.
_WILDCARDS = ("*/*", "application/*")
#: The prefix of the user agent of Python's official SDK of 0.3, which is that of its HTTP library.
_DOUBLE_BASE64_AGENT = "python-httpx/"


class HttpJsonService:
    """Responds to HTTP+JSON requests; see `BindingService`."""

    def __init__(self, endpoint: Endpoint, codecs: Mapping[str, Codec], http: HTTPOptions) -> None:
        self._endpoint = endpoint
        self._codecs = codecs
        self._paths = Paths(codecs)
        self._media_type = http.response_media_type
        self._double_base64_clients = http.double_base64_clients

    def respond(self, exchange: Exchange) -> Iterable[bytes] | None:
        """The response to one request; None for other paths. Blocks as long as the call takes, or its body does; never raises."""
        codec = next(iter(self._codecs.values()))
        try:
            path = exchange.path
            requested = only_version(exchange.requested_version)
            codec = self._codecs[self._paths.version(path, requested)]
            match = self._paths.find(path, requested)
            if match is None:
                return None
            codec = self._codecs[match.version]
            return self._respond(exchange, match, codec, requested)
        except AgentError as error:
            # Handled here, so that no variable keeps the error: see `JsonRpcService.respond`.
            return self._respond_with_error(exchange, codec, error)
        except Exception:
            return self._respond_with_error(exchange, codec, internal_error())

    def _respond_with_error(self, exchange: Exchange, codec: Codec, error: AgentError) -> Iterable[bytes]:
        allow = {"Allow": error.allowed} if isinstance(error, WrongVerbError) else None
        body = http_json.write_error(error, codec)
        return exchange.answer(error.http_status, body, error, self._media_type_of(exchange, codec), allow)

    def _respond(self, exchange: Exchange, match: RouteMatch, codec: Codec, requested: str) -> Iterable[bytes]:
        if exchange.method == "OPTIONS":
            return exchange.answer(204, b"", headers={"Allow": match.allowed})
        exchange.authenticate()
        operation = match.operation(exchange.method)
        if requested != codec.version:
            raise self._wrong_version(exchange.requested_version, codec.version)
        codec.method(operation)
        body = exchange.read_body() if exchange.method == "POST" else None
        params = http_json.read_params(match, operation, exchange.query, body)
        context = exchange.context(codec.version, operation)
        if codec.version == UNNAMED and self._double_base64(context.headers, codec, operation, params):
            codec = by_version(UNNAMED, "HTTP+JSON", double_base64_files=True)
        call: Call[Any, Any] = Call(operation, codec.load_request(operation, params), context)
        result = self._endpoint(call)
        if operation.streaming:
            return exchange.stream(result, http_json.BareEvents(), codec)
        if isinstance(result, PendingReply):
            return exchange.pending(result, partial(self._respond_later, exchange, codec, operation))
        return self._respond_with_result(exchange, codec, operation, result)

    def _respond_later(
        self, exchange: Exchange, codec: Codec, operation: AnyOperation, outcome: Callable[[], Any]
    ) -> Iterable[bytes]:
        """The response to a call that has waited; `outcome` returns its result, or raises its error."""
        try:
            return self._respond_with_result(exchange, codec, operation, outcome())
        except AgentError as error:
            return self._respond_with_error(exchange, codec, error)
        except Exception:
            return self._respond_with_error(exchange, codec, internal_error())

    def _respond_with_result(
        self, exchange: Exchange, codec: Codec, operation: AnyOperation, result: Any
    ) -> Iterable[bytes]:
        # An operation without a result sends an empty object: some clients read JSON whatever the status is.
        answer = http_json.write_result({} if operation.response is None else codec.dump_result(operation, result))
        return exchange.answer(200, answer, media_type=self._media_type_of(exchange, codec))

    def _double_base64(
        self, headers: Mapping[str, str], codec: Codec, operation: AnyOperation, params: dict[str, Any]
    ) -> bool:
        """The client encodes files twice: the option decides; else it is known to, and all files of the request fit."""
        if self._double_base64_clients is not None:
            return self._double_base64_clients(headers)
        if not headers.get("user-agent", "").startswith(_DOUBLE_BASE64_AGENT):
            return False
        from a2a_sync.codec.v03.twice import encoded_twice

        request = codec.load_request(operation, params)
        return not isinstance(request, SendMessageRequest) or encoded_twice(request)

    def _wrong_version(self, named: str, version: str) -> VersionNotSupportedError:
        other = f" (those of 0.3 begin with /{V03_PREFIX}/)" if version != UNNAMED and UNNAMED in self._codecs else ""
        return wrong_version(f"This path is one of protocol {version}{other}", named, version, self._codecs)

    def _media_type_of(self, exchange: Exchange, codec: Codec) -> str:
        """The media type of the response."""
        own = http_json.media_type(codec.version)
        if own == http_json.JSON:
            return own
        if self._media_type is not None:
            return self._media_type
        accepted = exchange.accepted
        named = [one for one in (http_json.JSON, own) if accepted.get(one)]
        if named:
            return max(named, key=accepted.__getitem__)
        # Some clients of event streams read an error in plain JSON only, with a wildcard beside them or without.
        any_json = not accepted or any(accepted.get(one) for one in _WILDCARDS)
        plain = not any_json or own in accepted or accepted.get(EVENT_STREAM) or exchange.media_type == http_json.JSON
        return http_json.JSON if plain else own
