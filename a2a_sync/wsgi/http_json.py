"""HTTP+JSON over WSGI, the server's half: one request in, one answer or one stream out (spec 11).

It finds the operation by verb and path and hands the call on. WSGI itself is `exchange`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from a2a_sync.bindings import http_json
from a2a_sync.bindings.headers import UNNAMED, named_versions
from a2a_sync.bindings.routes import OLD_PREFIX, Paths, Place, WrongVerbError
from a2a_sync.codec import Codec, by_version
from a2a_sync.codec.fields import shown
from a2a_sync.errors import AgentError, VersionNotSupportedError
from a2a_sync.operations import GET_EXTENDED_CARD, Call, Endpoint, Operation
from a2a_sync.types import SendMessageRequest
from a2a_sync.wsgi.exchange import Exchange, internal_error
from a2a_sync.wsgi.streaming import EVENT_STREAM

#: Says of the headers of a request, in lower case, whether its caller encodes files twice.
SaysTwice: TypeAlias = Callable[[Mapping[str, str]], bool]
#: The ranges of ``Accept`` that match the binding's own media type.
_WILDCARDS = ("*/*", "application/*")
#: How the user agent of Python's official SDK of 0.3 begins, which is that of its HTTP library.
_ENCODES_TWICE = "python-httpx/"
#: What goes with the answers of some operations. An extended card is for one caller (spec 13.3).
_HEADERS = {GET_EXTENDED_CARD: {"Cache-Control": "private, no-store"}}


class HttpJsonService:
    """Answers HTTP+JSON requests with what `endpoint` gives. `codecs` are the versions that are served over this binding.

    `media_type` is that of all answers in 1.0; without it, it depends on the request. `served` are all versions of this app.
    `double_base64_files` decides about callers of 0.3 in place of the user agents that are known.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        codecs: Mapping[str, Codec],
        *,
        served: Iterable[str],
        media_type: str | None = None,
        files_twice: SaysTwice | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._codecs = codecs
        self._paths = Paths(codecs)
        self._served = ", ".join(served)
        self._media_type = media_type
        self._files_twice = files_twice

    def respond(self, exchange: Exchange) -> Iterable[bytes] | None:
        """Answer one request; None where its path is none of this binding. Blocks as long as the call takes; never raises."""
        codec = next(iter(self._codecs.values()))
        try:
            path = exchange.path
            codec = self._codecs[self._paths.version(path)]
            place = self._paths.find(path)
            return None if place is None else self._respond(exchange, place, codec)
        except AgentError as caught:
            error = caught
        except Exception:
            error = internal_error()
        allow = {"Allow": error.allowed} if isinstance(error, WrongVerbError) else None
        body = http_json.write_error(error, codec)
        return exchange.answer(error.http_status, body, error, self._type_for(exchange, codec), allow)

    def _respond(self, exchange: Exchange, place: Place, codec: Codec) -> Iterable[bytes]:
        if exchange.verb == "OPTIONS":
            return exchange.answer(204, b"", headers={"Allow": place.allowed})
        exchange.admit()
        operation = place.operation(exchange.verb)
        self._check(exchange.named_version, codec.version)
        codec.method(operation)
        body = exchange.body() if exchange.verb == "POST" else None
        params = http_json.read_params(place, operation, exchange.query, body)
        context = exchange.context(codec.version, addressed=operation.addressed)
        if codec.version == UNNAMED and self._encodes_twice(context.headers, codec, operation, params):
            codec = by_version(UNNAMED, "HTTP+JSON", files_twice=True)
        call = Call(operation, codec.load_request(operation, params), context)
        if operation.streaming:
            return exchange.stream(lambda: self._endpoint(call), http_json.BareEvents(), codec)
        result = self._endpoint(call)
        # Nothing is said by an empty object: some clients read JSON whatever the status is.
        answer = http_json.write_result({} if operation.response is None else codec.dump_result(operation, result))
        return exchange.answer(200, answer, media_type=self._type_for(exchange, codec), headers=_HEADERS.get(operation))

    def _encodes_twice(
        self, headers: Mapping[str, str], codec: Codec, operation: Operation, params: dict[str, Any]
    ) -> bool:
        """The caller encodes files twice: the option says so; without it, it is known to and all files of the request fit."""
        if self._files_twice is not None:
            return self._files_twice(headers)
        if not headers.get("user-agent", "").startswith(_ENCODES_TWICE):
            return False
        from a2a_sync.codec.v03.twice import encoded_twice

        request = codec.load_request(operation, params)
        return not isinstance(request, SendMessageRequest) or encoded_twice(request)

    def _check(self, named: str, version: str) -> None:
        """See that the caller names the version of the path (spec 3.6.2)."""
        if (named_versions(named) or {UNNAMED}) != {version}:
            other = (
                f" (those of 0.3 begin with /{OLD_PREFIX}/)" if version != UNNAMED and UNNAMED in self._codecs else ""
            )
            raise VersionNotSupportedError(
                f"This path is one of protocol {version}{other}"
                + (f", and the request names version {shown(named)}" if named else ", and the request names no version")
                + f"; send the header 'A2A-Version: {version}' (served: {self._served})",
                metadata={"supportedVersions": self._served},
            )

    def _type_for(self, exchange: Exchange, codec: Codec) -> str:
        own = http_json.MEDIA_TYPES[codec.version]
        if own == http_json.JSON:
            return own
        if self._media_type is not None:
            return self._media_type
        accepted = exchange.accepted
        named = [one for one in (http_json.JSON, own) if accepted.get(one)]
        if named:
            return max(named, key=accepted.__getitem__)
        # Some clients of event streams read an error only in plain JSON, with a wildcard beside them or without.
        any_json = not accepted or any(accepted.get(one) for one in _WILDCARDS)
        plain = not any_json or own in accepted or accepted.get(EVENT_STREAM) or exchange.media_type == http_json.JSON
        return http_json.JSON if plain else own
