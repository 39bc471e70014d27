"""HTTP+JSON over WSGI, the server's half: one request in, one answer or one stream out (spec 11).

It finds the operation by verb and path and hands the call on. WSGI itself is `exchange`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable

from a2a_sync.bindings import http_json
from a2a_sync.bindings.headers import UNNAMED, named_versions
from a2a_sync.codec import Codec
from a2a_sync.codec.fields import shown
from a2a_sync.errors import A2AError, VersionNotSupportedError
from a2a_sync.exchange import Exchange, internal_error
from a2a_sync.operations import GET_EXTENDED_CARD, Call, Endpoint

_JSON = "application/json"
#: What goes with the answers of some operations. An extended card is for one caller (spec 13.3).
_HEADERS = {GET_EXTENDED_CARD: {"Cache-Control": "private, no-store"}}


class HttpJsonService:
    """Answers HTTP+JSON requests in the version of `codec` with what `endpoint` gives.

    `media_type` is that of all answers; without it, it depends on the request. `served` are all versions of this app.
    """

    def __init__(
        self, endpoint: Endpoint, codec: Codec, *, served: Iterable[str], media_type: str | None = None
    ) -> None:
        self._endpoint = endpoint
        self._codec = codec
        self._served = ", ".join(served)
        self._media_type = media_type

    def respond(self, exchange: Exchange) -> Iterable[bytes] | None:
        """Answer one request; None where its path is none of this binding. Blocks as long as the call takes; never raises."""
        try:
            place = http_json.find(exchange.path)
            return None if place is None else self._respond(exchange, place)
        except A2AError as caught:
            error = caught
        except Exception:
            error = internal_error()
        allow = {"Allow": error.allowed} if isinstance(error, http_json.WrongVerbError) else None
        body = http_json.write_error(error, self._codec)
        return exchange.answer(error.http_status, body, error, self._type_for(exchange), allow)

    def _respond(self, exchange: Exchange, place: http_json.Place) -> Iterable[bytes]:
        if exchange.verb == "OPTIONS":
            return exchange.answer(204, b"", headers={"Allow": place.allowed})
        exchange.admit()
        operation = place.operation(exchange.verb)
        self._check(exchange.named_version)
        params = place.params(operation, exchange.query, exchange.body() if exchange.verb == "POST" else None)
        call = Call(
            operation,
            self._codec.load_request(operation, params),
            exchange.context(self._codec.version, addressed=operation.addressed),
        )
        if operation.streaming:
            return exchange.stream(lambda: self._endpoint(call), http_json.BareEvents(), self._codec)
        result = self._endpoint(call)
        if operation.response is None:
            return exchange.answer(204, b"")
        body = http_json.write_result(self._codec.dump_result(operation, result))
        return exchange.answer(200, body, media_type=self._type_for(exchange), headers=_HEADERS.get(operation))

    def _check(self, named: str) -> None:
        """See that the caller names this version (spec 3.6.2)."""
        version = self._codec.version
        if (named_versions(named) or {UNNAMED}) != {version}:
            raise VersionNotSupportedError(
                f"This path is one of protocol {version}"
                + (f", and the request names version {shown(named)}" if named else ", and the request names no version")
                + f"; send the header 'A2A-Version: {version}' (served: {self._served})",
                metadata={"supportedVersions": self._served},
            )

    def _type_for(self, exchange: Exchange) -> str:
        if self._media_type is not None:
            return self._media_type
        plain = exchange.media_type == _JSON or _JSON in exchange.accepted
        return _JSON if plain else http_json.MEDIA_TYPE
