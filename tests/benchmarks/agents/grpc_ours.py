"""The echo agent on this library over gRPC: ``python grpc_ours.py --port PORT``. Environment: as `ours`, and THREADS."""

import os
import sys

from ours import app

from a2a_sync.grpc import GRPCServer

if __name__ == "__main__":
    with GRPCServer(app, f"127.0.0.1:{sys.argv[-1]}", threads=int(os.environ.get("THREADS", "32"))) as server:
        server.wait()
