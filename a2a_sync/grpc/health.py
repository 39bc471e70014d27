"""``grpc.health.v1``: the readiness page of gRPC, for load balancers and Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from a2a_sync.codec.fields import shown
from a2a_sync.errors import AgentError
from a2a_sync.grpc.threads import CallThreads

_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


def health_handler(services: Collection[str], not_ready_reason: Callable[[], str], threads: CallThreads) -> Any:
    """The handler of ``Check``, for grpcio; callers need no credentials. There is no ``Watch``, which would hold a call each.

    Parameters:
        services: the names that can be checked besides ``""``.
        not_ready_reason: returns why no work can be accepted; ``""`` when it can.
        threads: receive the messages of calls.
    """

    def check(data: bytes | AgentError, rpc: Any) -> Any:
        if isinstance(data, AgentError):
            rpc.abort(getattr(grpc.StatusCode, data.grpc_status), data.message)
        try:
            request = health_pb2.HealthCheckRequest.FromString(data)
        except (DecodeError, ValueError):
            rpc.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a valid HealthCheckRequest")
        if request.service and request.service not in services:
            rpc.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {shown(request.service)} here")
        status = "NOT_SERVING" if not_ready_reason() else "SERVING"
        return health_pb2.HealthCheckResponse(status=status)

    method = grpc.unary_unary_rpc_method_handler(
        threads.receiving(check), response_serializer=health_pb2.HealthCheckResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler(_SERVICE, {"Check": method})
