"""The echo agent on a2a-sdk over gRPC: ``python grpc_sdk.py --port PORT``. Environment: as `sdk`."""

import asyncio
import sys

import grpc
from a2a.server.request_handlers import GrpcHandler
from a2a.types import a2a_pb2_grpc
from sdk import handler


async def serve() -> None:
    server = grpc.aio.server()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    server.add_insecure_port(f"127.0.0.1:{sys.argv[-1]}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
