"""JSON-RPC 2.0 as the protocol uses it: requests, answers and the envelope of stream events (spec 9).

Bytes in, bytes out, for both sides of the wire. What a method means, and HTTP, are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from a2a_sync.codec import Codec, DecodeError
from a2a_sync.codec.base import has_long_texts, load_answer
from a2a_sync.errors import AgentError, InvalidParamsError, InvalidRequestError, JSONParseError
from a2a_sync.jsontext import dumps, loads
from a2a_sync.limits import MAX_ID_LENGTH

#: An id is given back as it came.
RpcId: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """A request as it stands on the wire; its params are not read yet."""

    id: RpcId
    method: str
    params: dict[str, Any] = field(default_factory=dict)


class RpcError(Exception):
    """The body is no request. Answer with ``error`` under ``id`` (None where the id could not be read)."""

    def __init__(self, error: AgentError, id: RpcId = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.id = id


# -- server -------------------------------------------------------------------------------------------------------------


def read_request(body: bytes) -> RpcRequest:
    """The request in a body. A missing id is taken as null: the protocol has no notifications (spec 9.1).

    Raises:
        RpcError: there is none; it holds the error and the id to answer with.
    """
    try:
        value = loads(body)
    except JSONParseError as error:
        raise RpcError(error) from None
    if isinstance(value, list):
        raise RpcError(InvalidRequestError("Batches are not supported; send one request object"))
    if not isinstance(value, dict):
        raise RpcError(InvalidRequestError("A request is a JSON object"))
    request_id = value.get("id")
    if not isinstance(request_id, (str, int, type(None))) or isinstance(request_id, bool):
        raise RpcError(InvalidRequestError("id must be a string, an integer or null"))
    # Every event of a stream repeats it.
    if request_id is not None and len(str(request_id)) > MAX_ID_LENGTH:
        raise RpcError(InvalidRequestError(f"id must have at most {MAX_ID_LENGTH} characters"))
    if value.get("jsonrpc") != "2.0":
        raise RpcError(InvalidRequestError('jsonrpc must be "2.0"'), request_id)
    method = value.get("method")
    if not isinstance(method, str) or not method:
        raise RpcError(InvalidRequestError("method must be a non-empty string"), request_id)
    params = value.get("params")
    if params is None:
        params = {}
    elif not isinstance(params, dict):
        raise RpcError(InvalidParamsError.at("params", "expected an object"), request_id)
    return RpcRequest(request_id, method, params)


def write_result(id: RpcId, result: Any) -> bytes:
    """The answer that carries `result`.

    Raises:
        ValueError: JSON cannot represent it.
    """
    return dumps({"jsonrpc": "2.0", "id": id, "result": result}, long_texts=has_long_texts(result))


def write_error(id: RpcId, error: AgentError, codec: Codec) -> bytes:
    """The answer that carries `error`."""
    return EventEnvelope(id).wrap_error(error, codec)


class EventEnvelope:
    """The answers of one stream: every event repeats the id, which is written once (spec 9.4.2)."""

    __slots__ = ("_head",)
    #: Errors are answers like all others.
    error_event = ""

    def __init__(self, id: RpcId) -> None:
        self._head = b'{"jsonrpc":"2.0","id":' + dumps(id)

    def wrap(self, event: bytes) -> bytes:
        """The answer that carries one event's bytes."""
        return b"".join((self._head, b',"result":', event, b"}"))

    def wrap_error(self, error: AgentError, codec: Codec) -> bytes:
        """The answer that carries an error, at the start of an exchange or in the middle of a stream. It never fails."""
        try:
            written = dumps(codec.dump_error(error))
        except ValueError:
            # Its text comes from user code and may be one that UTF-8 cannot hold.
            written = dumps({"code": error.jsonrpc_code, "message": error.default_message})
        return b"".join((self._head, b',"error":', written, b"}"))


# -- client -------------------------------------------------------------------------------------------------------------


def write_request(id: RpcId, method: str, params: Any) -> bytes:
    """A request.

    Raises:
        ValueError: JSON cannot represent the params.
    """
    return dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def read_response(body: bytes | str, codec: Codec) -> Any:
    """The result in an answer, or in one event of a stream. Ids are not compared: HTTP pairs the two.

    Raises:
        AgentError: the answer is an error; this is the peer's.
        DecodeError: it is not a JSON-RPC answer.
    """
    value = load_answer(body)
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise DecodeError("The answer is not a JSON-RPC 2.0 object")
    if value.get("error") is not None:
        raise codec.load_error(value["error"])
    # Some servers omit an empty result: whether it may be missing is for the codec.
    return value.get("result")
