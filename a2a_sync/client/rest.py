"""The endpoint that speaks HTTP+JSON (spec 11)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from a2a_sync.bindings import http_json
from a2a_sync.client.wire import HttpRequest, WireEndpoint
from a2a_sync.operations import Call


class HttpJsonEndpoint(WireEndpoint):
    """See `WireEndpoint`; `url` is what the paths of all operations begin with. It may have a query of its own.

    Raises (from a call):
        InvalidParamsError: an id that no path can hold; nothing was sent.
    """

    media_type = http_json.MEDIA_TYPE
    accepts = f"{http_json.MEDIA_TYPE}, application/json"

    def _request(self, call: Call) -> HttpRequest:
        params = self._codec.dump_request(call.operation, call.request)
        verb, path, query, body = http_json.write_request(call.operation, params)
        base = urlsplit(self._url)
        query = "&".join(filter(None, (base.query, query)))
        return HttpRequest(verb, base._replace(path=base.path.rstrip("/") + path, query=query).geturl(), body)

    def _read_answer(self, body: bytes, status: int) -> Any:
        return http_json.read_answer(body, status, self._codec)

    def _read_event(self, data: str, name: str) -> Any:
        return http_json.read_event(data, name, self._codec)
