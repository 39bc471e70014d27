"""gRPC, with real channels and servers. These tests need the extra ``grpc``, which `make test` installs."""
