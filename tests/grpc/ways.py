"""gRPC as one more way of the table of ownership: calls from the bytes up, and answers in the form of those over HTTP."""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakKeyDictionary

import grpc
from google.protobuf.json_format import MessageToDict
from google.rpc import status_pb2
from werkzeug.datastructures import Headers

from a2a_sync import A2AApp
from a2a_sync.bindings import protobuf
from a2a_sync.codec import by_version
from a2a_sync.grpc import GRPCServer
from a2a_sync.operations import Operation
from tests.engine import TIMEOUT
from tests.wsgi import Answer

#: The status codes of HTTP for those of gRPC that the table expects.
STATUS = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404}
_servers: WeakKeyDictionary[A2AApp, GRPCServer] = WeakKeyDictionary()


def server_of(app: A2AApp) -> GRPCServer:
    """The server of an app, which closes it."""
    if app not in _servers:
        _servers[app] = GRPCServer(app, "127.0.0.1:0")
        app.register(_servers[app])
        app.start()
    return _servers[app]


def call(
    app: A2AApp, version: str, operation: Operation[Any, Any], params: dict[str, Any], token: str | None
) -> Answer:
    """The first message of an operation, whose parameters are those of JSON-RPC, or its error with all that it says."""
    request = by_version(version).load_request(operation, params)
    value = by_version(version, "GRPC").dump_request(operation, request)
    data = protobuf.encode_request(operation.name, value, version)
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(f"127.0.0.1:{server_of(app).port}") as channel:
        method = protobuf.methods(version)[operation.name].path
        answers = channel.unary_stream(method)(data, metadata=metadata, timeout=TIMEOUT)
        try:
            body = next(answers, b"")
            return Answer(200, Headers(list(answers.initial_metadata())), body)
        except grpc.RpcError as error:
            return _refused(error)
        finally:
            answers.cancel()


def _refused(error: Any) -> Answer:
    trailing = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailing.pop(protobuf.STATUS_DETAILS))
    code = error.code().name
    said = {"code": code, "message": error.details(), "status": MessageToDict(status)}
    return Answer(STATUS.get(code, 400), Headers(list(trailing.items())), json.dumps({"error": said}).encode())
