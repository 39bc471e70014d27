"""A toy binding, both halves: ``POST /toy/VERSION/OPERATION`` with the request as JSON, and the result or the error as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from a2a_sync.bindings import http_json
from a2a_sync.bindings.registry import Binding
from a2a_sync.client.endpoint import HttpRequest, WireEndpoint
from a2a_sync.codec import Codec
from a2a_sync.errors import AgentError, InternalError, VersionNotSupportedError
from a2a_sync.jsontext import dumps, loads
from a2a_sync.operations import OPERATIONS, Call, Endpoint
from a2a_sync.wsgi.exchange import Exchange
from a2a_sync.wsgi.options import HTTPOptions

PREFIX = "/toy/"


class ToyService:
    """The server's half."""

    def __init__(self, endpoint: Endpoint, codecs: Mapping[str, Codec], http: HTTPOptions) -> None:
        self._endpoint = endpoint
        self._codecs = codecs

    def respond(self, exchange: Exchange) -> Iterable[bytes] | None:
        if not exchange.path.startswith(PREFIX):
            return None
        version, _, name = exchange.path.removeprefix(PREFIX).partition("/")
        codec = self._codecs.get(version) or next(iter(self._codecs.values()))
        try:
            if codec.version != version:
                raise VersionNotSupportedError(f"Protocol {version} is not served over this binding")
            exchange.authenticate()
            operation = OPERATIONS[name]
            request = codec.load_request(operation, loads(exchange.read_body()))
            call: Call[Any, Any] = Call(operation, request, exchange.context(version, operation))
            result = self._endpoint(call)
            if operation.streaming:
                return exchange.stream(result, http_json.BareEvents(), codec)
            return exchange.answer(200, dumps(codec.dump_result(operation, result)))
        except AgentError as caught:
            error = caught
        except Exception:
            error = InternalError()
        return exchange.answer(error.http_status, http_json.write_error(error, codec), error)


class ToyEndpoint(WireEndpoint):
    """The client's half."""

    def _write_request(self, call: Call[Any, Any]) -> HttpRequest:
        body = dumps(self._codec.dump_request(call.operation, call.request))
        return HttpRequest("POST", f"{self._url}{self._codec.version}/{call.operation.name}", body)

    def _read_answer(self, body: bytes, status: int) -> Any:
        return http_json.read_answer(body, status, self._codec)

    def _read_event(self, data: str, name: str) -> Any:
        return http_json.read_event(data, name, self._codec)


def interface_url(url: str) -> str:
    return url.rstrip("/") + PREFIX


#: The row of the registry.
TOY = Binding("TOY", "tests.extending.toy:ToyService", "tests.extending.toy:ToyEndpoint", interface_url)
