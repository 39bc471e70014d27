"""The endpoint that speaks HTTP+JSON (spec 11)."""

from __future__ import annotations

from typing import Any

from a2a_sync import urls
from a2a_sync.bindings import http_json
from a2a_sync.bindings.routes import route_of
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.endpoint import HttpRequest, WireEndpoint
from a2a_sync.client.http import HttpResponse, HttpTransport
from a2a_sync.client.request import ErrorContext
from a2a_sync.codec import Codec
from a2a_sync.errors import (
    AgentError,
    HTTPStatusError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.operations import LIST_TASKS, AnyCall, AnyOperation, Call


class HttpJsonEndpoint(WireEndpoint):
    """See `WireEndpoint`. `url` is the prefix of the paths of all operations; it may have a query of its own.

    Raises (from a call):
        InvalidParamsError: an id that cannot be part of a path; nothing was sent.
    """

    def __init__(self, http: HttpTransport, url: str, codec: Codec) -> None:
        super().__init__(http, url, codec)
        self.media_type: str = http_json.media_type(codec.version)
        self.accepts: str = ", ".join(dict.fromkeys((self.media_type, http_json.JSON)))
        base = urls.parse(url)
        self._base = str(base._replace(path=base.path.rstrip("/"), query=""))
        self._query = base.query
        self._verbs: dict[AnyOperation, str] = {}

    def __call__(self, call: Call[Any, Any]) -> Any:
        try:
            return super().__call__(call)
        except (AgentError, HTTPStatusError) as error:
            # The path is in the text of 0.3.0 (3.5.6) and missing in its proto, so most agents do not have it.
            if call.operation is LIST_TASKS and self._codec.version == "0.3" and _is_missing(error):
                raise UnsupportedOperationError(f"{self._agent} does not list tasks over HTTP+JSON of 0.3") from None
            raise

    def _write_request(self, call: AnyCall) -> HttpRequest:
        return self._write_with_verb(call, self._verbs.get(call.operation, ""))

    def _write_with_verb(self, call: AnyCall, verb: str) -> HttpRequest:
        version = self._codec.version
        self._codec.method(call.operation)
        params = self._codec.dump_request(call.operation, call.request)
        verb, path, query, body = http_json.write_request(call.operation, params, version, verb)
        query = "&".join(filter(None, (self._query, query)))
        return HttpRequest(verb, self._base + path + (f"?{query}" if query else ""), body)

    def _send(self, call: AnyCall, error_context: ErrorContext, deadline: Deadline, opening: Deadline) -> HttpResponse:
        """Servers differ on the verb of a subscription: if the first is refused, the others are tried."""
        answer = super()._send(call, error_context, deadline, opening)
        for verb in route_of(self._codec.version, call.operation).also:
            if answer.status != 405 or call.operation in self._verbs:
                break
            answer.close()
            answer = self._open(self._write_with_verb(call, verb), call, error_context, deadline, opening)
            if answer.ok:
                self._verbs[call.operation] = verb
        return answer

    def _read_answer(self, body: bytes, status: int) -> Any:
        return http_json.read_answer(body, status, self._codec)

    def _read_event(self, data: str, name: str) -> Any:
        return http_json.read_event(data, name, self._codec)


def _is_missing(error: AgentError | HTTPStatusError) -> bool:
    """The server has nothing at the path; servers report that in several ways."""
    if isinstance(error, HTTPStatusError):
        return error.status_code in (404, 405, 501)
    return isinstance(error, (TaskNotFoundError, MethodNotFoundError))
