"""``grpc.reflection``: the descriptors of the services, for tools like grpcurl. Served on request, and without credentials."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import Any

import grpc
from google.protobuf import descriptor_pool, duration_pb2
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from a2a_sync.bindings import protobuf

#: A call holds a thread until its client ends it, so there are few of them, and not for long (seconds); tools make another one.
_MAX_CALLS = 2
_MAX_SECONDS = 0.9


def reflection_handler(services: Collection[str]) -> Any:
    """The handler of reflection for `services`, by their full names, for grpcio."""
    pool = descriptor_pool.DescriptorPool()
    for file in protobuf.files():
        pool.AddSerializedFile(file)
    # The details of errors are shown by tools that know their messages.
    for module in (health_pb2, reflection_pb2, duration_pb2, error_details_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    listed = (*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
    servicer = reflection.ReflectionServicer(listed, pool)
    places = threading.BoundedSemaphore(_MAX_CALLS)

    def answer(requests: Iterator[Any], rpc: Any) -> Iterator[Any]:
        if not places.acquire(blocking=False):
            rpc.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls of reflection; retry later")
        end = threading.Timer(_MAX_SECONDS, rpc.cancel)
        end.daemon = True
        try:
            end.start()
            yield from servicer.ServerReflectionInfo(requests, rpc)
        finally:
            end.cancel()
            places.release()

    method = grpc.stream_stream_rpc_method_handler(
        answer,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": method})
