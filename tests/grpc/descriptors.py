"""Compiles the official protos to the descriptors that the library ships: ``python -m tests.grpc.descriptors``."""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

import a2a_sync.bindings.protobuf as shipped

PROTOS = Path(__file__).parent / "protos"
NAMES = ("a2a_v1.proto", "a2a_v03.proto")


def compiled() -> bytes:
    """The descriptors without comments, and without the annotations of HTTP paths, which would need google/api."""
    result = descriptor_pb2.FileDescriptorSet()
    included = [str(files("grpc_tools") / "_proto"), str(files("google.api").joinpath("../.."))]
    for name in NAMES:
        with tempfile.NamedTemporaryFile() as output:
            paths = [f"-I{path}" for path in (PROTOS, *included)]
            assert protoc.main(["protoc", *paths, f"--descriptor_set_out={output.name}", name]) == 0
            found = descriptor_pb2.FileDescriptorSet.FromString(Path(output.name).read_bytes())
        for file in found.file:
            _strip(file)
            result.file.append(file)
    return result.SerializeToString(deterministic=True)


def _strip(file: descriptor_pb2.FileDescriptorProto) -> None:
    kept = [one for one in file.dependency if one.startswith("google/protobuf/")]
    del file.dependency[:]
    file.dependency.extend(kept)
    file.ClearField("options")
    for service in file.service:
        service.ClearField("options")
        for method in service.method:
            method.ClearField("options")
    for message in file.message_type:
        _strip_message(message)


def _strip_message(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("options")
    for nested in message.nested_type:
        _strip_message(nested)


if __name__ == "__main__":
    shipped.DESCRIPTORS.write_bytes(compiled())
