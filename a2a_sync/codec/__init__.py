"""One codec for each version of the protocol: JSON values, method names and errors. 0.3 has two dialects.

Codecs are independent of HTTP and of policies. They produce bytes only for events, which are encoded once and shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from a2a_sync.codec.fields import DecodeError, shown
from a2a_sync.errors import AgentError, MethodNotFoundError, VersionNotSupportedError
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import AnyOperation, StreamItem
from a2a_sync.types import StreamResponse

__all__ = ["VERSIONS", "Codec", "DecodeError", "by_method", "by_version"]

#: The module of each protocol version, the newest first. A version is added by its module and one row.
VERSIONS: dict[str, str] = {"1.0": "a2a_sync.codec.v10", "0.3": "a2a_sync.codec.v03"}
#: The codec modules of bindings with a dialect of their own.
_DIALECTS = {("0.3", "HTTP+JSON"): "a2a_sync.codec.v03.http"}
#: The same for peers that encode files twice.
_DOUBLE_BASE64 = {("0.3", "HTTP+JSON"): "a2a_sync.codec.v03.twice"}


class Codec(Protocol):
    """The codec of one version, in both directions: clients and servers use the same object. Thread-safe.

    Values are those of `jsontext.loads` and `jsontext.dumps`. Requests are decoded strictly: an error is an
    `InvalidParamsError`, which names the member. Results, events and cards of a peer are decoded leniently: a missing
    member gets its default, an unknown one is ignored. A value that cannot be decoded raises `DecodeError`, a
    ValueError, which the caller converts to an error of the transport.
    """

    @property
    def version(self) -> str:
        """``"1.0"``: the value of the A2A-Version header."""

    @property
    def operations(self) -> Mapping[str, AnyOperation]:
        """The operations of this version by the names of their methods. No name is used in two versions."""

    def method(self, operation: AnyOperation) -> str:
        """The name of `operation` in this version; raises `UnsupportedOperationError` if there is none."""

    def load_request(self, operation: AnyOperation, params: Any) -> Any:
        """The request of `operation`; raises `InvalidParamsError`. Ranges (page sizes …) are not checked here."""

    def dump_request(self, operation: AnyOperation, request: Any) -> Any:
        """The params of `request`."""

    def load_result(self, operation: AnyOperation, value: Any) -> Any:
        """The result of `operation`, None where it has none; raises `DecodeError`."""

    def dump_result(self, operation: AnyOperation, result: Any) -> Any:
        """The JSON of a result; for ListTasks, without members that the given tasks do not have."""

    def load_event(self, value: Any) -> Any:
        """One element of a stream: a Task, a Message or an update event; raises `DecodeError`."""

    def dump_event(self, event: StreamResponse) -> Any:
        """The JSON of one element of a stream."""

    def ends_stream(self, value: Any) -> bool:
        """Whether the JSON of an element of a stream marks it as the last one. Not all versions have such a mark."""

    def encode_item(self, item: StreamItem | Entry) -> bytes:
        """The bytes of an element of a stream, encoded once per version and stored in ``item.encoded``.

        Raises:
            ValueError: it holds a value that JSON does not have.
        """

    def encode_end(self, item: StreamItem) -> bytes | None:
        """The bytes that repeat an element and mark it as the last one; None if the version has no such mark."""

    def load(self, cls: Any, value: Any, strict: bool = True) -> Any:
        """An object of any type of the model (`AgentCard`, `Message`, the union `Part` …).

        Raises:
            InvalidParamsError: `strict`, and the value does not fit.
            DecodeError: not `strict`, and the value does not fit.
        """

    def dump(self, obj: Any) -> Any:
        """The JSON of any object of the model.

        Raises:
            ValueError: it holds a timestamp without a time zone.
        """

    def dump_error(self, error: AgentError) -> dict[str, Any]:
        """The error object of JSON-RPC: code, message, and an array of details that begins with an ErrorInfo."""

    def load_error(self, value: Any) -> AgentError:
        """The error for an error object. Never raises: malformed values result in an `AgentError`."""


@cache
def by_version(version: str, binding: str = "JSONRPC", *, double_base64_files: bool = False) -> Codec:
    """The codec of a protocol version (``Major.Minor``) for a binding.

    `double_base64_files` selects the codec for peers that encode files twice, as some do over HTTP+JSON of 0.3.

    Raises:
        VersionNotSupportedError: there is no codec for `version`.
    """
    spoken = version, binding
    module = (
        (_DOUBLE_BASE64.get(spoken) if double_base64_files else None) or _DIALECTS.get(spoken) or VERSIONS.get(version)
    )
    if module is None:
        raise VersionNotSupportedError(
            f"Protocol version {version!r} is not supported; send the header A2A-Version: {', '.join(VERSIONS)}"
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
