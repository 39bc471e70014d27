"""One codec for each version of the protocol: JSON values, method names and errors. 0.3 has two dialects.

Codecs are independent of HTTP and of policies. They produce bytes only for events, which are encoded once and shared.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from a2a_sync.codec.base import Codec
from a2a_sync.codec.fields import DecodeError, shown
from a2a_sync.errors import MethodNotFoundError, VersionNotSupportedError

__all__ = ["VERSIONS", "Codec", "DecodeError", "by_method", "by_version"]

#: The module of each protocol version, the newest first. A version is added by its module and one row.
VERSIONS: dict[str, str] = {"1.0": "a2a_sync.codec.v10", "0.3": "a2a_sync.codec.v03"}
#: The codec modules of bindings with a dialect of their own.
_DIALECTS = {("0.3", "HTTP+JSON"): "a2a_sync.codec.v03.http", ("0.3", "GRPC"): "a2a_sync.codec.v03.http"}
#: The same for peers that encode files twice.
_DOUBLE_BASE64 = {("0.3", "HTTP+JSON"): "a2a_sync.codec.v03.twice", ("0.3", "GRPC"): "a2a_sync.codec.v03.twice"}


@cache
def by_version(version: str, binding: str = "JSONRPC", *, double_base64_files: bool = False) -> Codec:
    """The codec of a protocol version (``Major.Minor``) for a binding.

    `double_base64_files` selects the codec for peers that encode files twice, as some do over HTTP+JSON and gRPC of 0.3.

    Raises:
        VersionNotSupportedError: there is no codec for `version`.
    """
    module = _DOUBLE_BASE64.get((version, binding)) if double_base64_files else None
    module = module or _DIALECTS.get((version, binding)) or VERSIONS.get(version)
    if module is None:
        known = ", ".join(VERSIONS)
        raise VersionNotSupportedError(
            f"Protocol version {version!r} is not supported; send the header A2A-Version: {known}"
        )
    codec: Codec = import_module(module).CODEC
    return codec


def by_method(method: str) -> Codec:
    """The codec of the version that has a method of this name.

    Raises:
        MethodNotFoundError: no version has it.
    """
    for codec in map(by_version, VERSIONS):
        if method in codec.operations:
            return codec
    raise MethodNotFoundError(f"There is no method {shown(method)}")
