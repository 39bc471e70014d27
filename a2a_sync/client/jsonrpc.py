"""The endpoint that speaks JSON-RPC over HTTP (spec 9)."""

from __future__ import annotations

import itertools
from typing import Any

from a2a_sync.bindings import jsonrpc
from a2a_sync.client.endpoint import HttpRequest, WireEndpoint
from a2a_sync.client.http import HttpTransport
from a2a_sync.codec import Codec
from a2a_sync.operations import AnyCall


class JsonRpcEndpoint(WireEndpoint):
    """See `WireEndpoint`; all requests are posted to `url`."""

    def __init__(self, http: HttpTransport, url: str, codec: Codec) -> None:
        super().__init__(http, url, codec)
        self._ids = itertools.count(1)

    def _write_request(self, call: AnyCall) -> HttpRequest:
        method = self._codec.method(call.operation)
        params = self._codec.dump_request(call.operation, call.request)
        return HttpRequest("POST", self._url, jsonrpc.write_request(next(self._ids), method, params))

    def _read_answer(self, body: bytes, status: int) -> Any:
        return jsonrpc.read_response(body, self._codec)

    def _read_event(self, data: str, name: str) -> Any:
        return jsonrpc.read_response(data, self._codec)
