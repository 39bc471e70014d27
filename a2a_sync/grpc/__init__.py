"""The gRPC binding of a server (spec 10): `GRPCServer` serves an app or a host beside HTTP. Needs the extra ``grpc``."""

from a2a_sync.grpc.server import TLS, GRPCServer

__all__ = ["GRPCServer", "TLS"]
