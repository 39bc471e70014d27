"""A version of the protocol is a codec: JSON-ready values in and out, method names, the shape of errors. 0.3 has two dialects.

Codecs know no bytes (but for an event's, which are made once and shared), no HTTP and no policy.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Protocol

from a2a_sync.codec.fields import DecodeError, shown
from a2a_sync.errors import AgentError, MethodNotFoundError, VersionNotSupportedError
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import Operation, StreamItem
from a2a_sync.types import StreamResponse

__all__ = ["Codec", "DecodeError", "by_method", "by_version"]

_MODULES = {"1.0": "a2a_sync.codec.v10", "0.3": "a2a_sync.codec.v03"}
#: Where a binding has a dialect of its own.
_DIALECTS = {("0.3", "HTTP+JSON"): "a2a_sync.codec.v03.http"}
#: The same for peers that encode files twice.
_TWICE = {("0.3", "HTTP+JSON"): "a2a_sync.codec.v03.twice"}


class Codec(Protocol):
    """One version, in both directions: the server reads what the client writes with the same object.

    Values are what `jsontext.loads` gives and `jsontext.dumps` takes. Reading a request is strict and raises
    `InvalidParamsError`, which names the member. Reading what a peer answered (results, events, cards) is lenient:
    a missing member gets its default, an unknown one is passed over; what cannot be read raises `DecodeError`,
    a ValueError, for the caller to turn into an error of the transport. All methods may be called from any thread.
    """

    @property
    def version(self) -> str:
        """``"1.0"``: the value of the A2A-Version header."""

    def method(self, operation: Operation) -> str:
        """The name of `operation` in this version; raises `UnsupportedOperationError` where it has none."""

    def operation(self, method: str) -> Operation:
        """The operation that `method` names; raises `MethodNotFoundError`."""

    def knows(self, method: str) -> bool:
        """`method` names an operation in this version; no name does in two of them."""

    def load_request(self, operation: Operation, params: Any) -> Any:
        """The request of `operation`; raises `InvalidParamsError`. Ranges (page sizes …) are not checked here."""

    def dump_request(self, operation: Operation, request: Any) -> Any:
        """The params that say `request`."""

    def load_result(self, operation: Operation, value: Any) -> Any:
        """The result of `operation`, None where it has none; raises `DecodeError`."""

    def dump_result(self, operation: Operation, result: Any) -> Any:
        """The JSON of a result; ListTasks leaves out what the given tasks do not hold."""

    def load_event(self, value: Any) -> Any:
        """One element of a stream: a Task, a Message or an update event; raises `DecodeError`."""

    def dump_event(self, event: StreamResponse) -> Any:
        """The JSON of one element of a stream."""

    def ends_stream(self, value: Any) -> bool:
        """The JSON of an element of a stream says that it is the last one. Only some versions say so at all."""

    def encode_item(self, item: StreamItem | Entry) -> bytes:
        """The bytes of an element of a stream, made once per version and kept in ``item.encoded``.

        Raises:
            ValueError: it holds what JSON cannot say.
        """

    def encode_end(self, item: StreamItem) -> bytes | None:
        """The bytes that repeat an element and say that it was the last one; None where the version says no such thing."""

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
        """The error that an error object stands for. Any junk gives an `AgentError`; this never raises."""


@cache
def by_version(version: str, binding: str = "JSONRPC", *, files_twice: bool = False) -> Codec:
    """The codec of a protocol version (``Major.Minor``), as it is spoken over a binding.

    `double_base64_files`: with a peer that encodes files twice, which some do over HTTP+JSON of 0.3.

    Raises:
        VersionNotSupportedError: there is none.
    """
    spoken = version, binding
    module = (_TWICE.get(spoken) if files_twice else None) or _DIALECTS.get(spoken) or _MODULES.get(version)
    if module is None:
        raise VersionNotSupportedError(
            f"Protocol version {version!r} is not supported; send the header A2A-Version: {', '.join(_MODULES)}"
        )
    codec: Codec = import_module(module).CODEC
    return codec


def by_method(method: str) -> Codec:
    """The codec of the one version that has a method of this name.

    Raises:
        MethodNotFoundError: none has.
    """
    for codec in map(by_version, _MODULES):
        if codec.knows(method):
            return codec
    raise MethodNotFoundError(f"There is no method {shown(method)}")
