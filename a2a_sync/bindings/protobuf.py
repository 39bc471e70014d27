"""The messages of the gRPC binding, as the JSON of the codecs (spec 10; spec 5.5: the JSON of 1.0 is ProtoJSON).

The descriptors are those of the official protos, so no message is defined here. Needs the extra ``grpc``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, empty_pb2, message_factory, struct_pb2, timestamp_pb2
from google.protobuf.json_format import Error as JSONFormatError
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import EncodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

from a2a_sync import errors, jsontext
from a2a_sync.bindings.protoreader import reader
from a2a_sync.bindings.protowriter import UNWRITABLE, is_repeated, writer
from a2a_sync.codec import Codec
from a2a_sync.errors import (
    AgentError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    OverloadedError,
    PermissionDeniedError,
    TaskNotFoundError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedOperationError,
)

# Its import registers the types of the details of a status.
assert error_details_pb2

#: The descriptors of all versions; ``python -m tests.grpc.descriptors`` compiles them.
DESCRIPTORS = Path(__file__).with_name("a2a.binpb")
#: The service of each protocol version.
SERVICES = {"1.0": "lf.a2a.v1.A2AService", "0.3": "a2a.v1.A2AService"}
#: The operations of those methods of 0.3 that have another name. It has no ListTasks.
_OPERATIONS_03 = {
    "TaskSubscription": "SubscribeToTask",
    "ListTaskPushNotificationConfig": "ListTaskPushNotificationConfigs",
    "GetAgentCard": "GetExtendedAgentCard",
}
#: The metadata by which a client asks for the numbers of events, with which it resumes a stream. The server confirms it with the same
#: metadata, and from then on sends an empty message in place of each heartbeat.
EVENT_NUMBERS = "a2a-sync-event-numbers"
#: The field of a StreamResponse that holds the number, and its tag as a fixed64. The protocol has no such field, and readers ignore
#: fields that they do not know.
_NUMBER_FIELD = 1000
_NUMBER_TAG = b"\xc1\x3e"
#: The fields of a StreamResponse among which the number is looked for: one, or the pieces of one, usually come before it.
_MAX_EVENT_FIELDS = 100


class Method(NamedTuple):
    """A method of a service: its path, and the classes of its messages."""

    path: str
    request: Any
    response: Any


@cache
def methods(version: str) -> dict[str, Method]:
    """The methods of a protocol version by the name of their operation."""
    service = pool().FindServiceByName(SERVICES[version])
    return {
        _OPERATIONS_03.get(method.name, method.name): Method(
            f"/{service.full_name}/{method.name}",
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
        )
        for method in service.methods
    }


@cache
def pool() -> Any:
    """The descriptors of all versions."""
    # Not the default pool, in which other SDKs of the process register files of the same names.
    pool = descriptor_pool.DescriptorPool()
    for file in files():
        pool.AddSerializedFile(file)
    return pool


def files() -> list[bytes]:
    """The descriptors of all versions and of what they import, one file each, in the order in which pools need them."""
    known = [module.DESCRIPTOR.serialized_pb for module in (empty_pb2, struct_pb2, timestamp_pb2)]
    own = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
    return [*known, *(file.SerializeToString() for file in own)]


def encode(value: Any, message: Any) -> bytes:
    """The bytes of `value`, the JSON of a codec, as a message of the given class, without members that the class does not have.

    Raises:
        ValueError: a value does not fit its field.
    """
    try:
        return writer(message.DESCRIPTOR)(value or {}, 0)
    except UNWRITABLE as error:
        raise ValueError(f"not a valid {message.DESCRIPTOR.name}: {error}") from None


def parse(data: bytes, message: Any, *, max_keys: int = jsontext.MAX_KEYS) -> Any:
    """The message of the given class in `data`, whose objects may have so many keys together as those of JSON: see `jsontext.loads`.

    Raises:
        InvalidRequestError: `data` is no such message, or holds too many messages, keys or texts, or is large and has groups.
    """
    _check_count(data, message.DESCRIPTOR, max_keys)
    try:
        return message.FromString(data)
    except (ProtobufError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"not a valid {message.DESCRIPTOR.name}") from error


def read_tenant(data: bytes, message: Any) -> str:
    """The tenant in a request of the given class; ``""`` where it has none. Nothing else of `data` is parsed.

    Raises:
        InvalidRequestError: `data` is no message, or one with groups or of very many fields.
    """
    field = message.DESCRIPTOR.fields_by_name.get("tenant")
    tenant = b""
    at = fields = 0
    try:
        while at < len(data):
            tag, begin, at = _field(data, at, len(data))
            fields += 1
            if fields > _MAX_REQUEST_FIELDS:
                raise ValueError("it has very many fields")
            if field is not None and tag == field.number << 3 | _LENGTH:
                tenant = data[begin:at]
        return tenant.decode()
    except (ValueError, IndexError):
        raise _unreadable(message.DESCRIPTOR) from None


def _unreadable(descriptor: Any) -> InvalidRequestError:
    return InvalidRequestError(f"not a valid {descriptor.name}, or one with groups, which A2A does not have")


# -- how many messages there are -----------------------------------------------------------------------------------------
# An empty message has two bytes and becomes an object of a hundred, and then a dictionary of more. A short text of a list has as
# few, and takes eighty. A key of an object has eight with an empty value, and takes two hundred and fifty.


def has_many_fields(data: bytes, message: Any) -> bool:
    """A message of the given class in `data` has so many fields, on all levels, that it takes long to read; or it cannot be read."""
    try:
        return next(islice(_fields(data, message.DESCRIPTOR), _MANY_FIELDS, None), None) is not None
    except (ValueError, IndexError):
        return True


def _check_count(data: bytes, descriptor: Any, max_keys: int) -> None:
    """Check how many messages `data` holds, before any memory is used for them.

    Raises:
        InvalidRequestError: too many, or `data` cannot be counted.
    """
    if len(data) < 2 * jsontext.MAX_CONTAINERS or descriptor.full_name not in _message_fields():
        return
    # The numbers of a list are messages too, of four bytes at least and eleven usually.
    most = jsontext.MAX_CONTAINERS + len(data) // 32
    most_values = jsontext.MAX_CONTAINERS + len(data) // 8
    most_keys = max_keys + len(data) // 64
    if len(data) - len(data.translate(None, _tags())) <= min(most, most_keys):
        return
    containers = values = keys = 0
    try:
        for kind in _fields(data, descriptor):
            if kind == _KEY:
                keys += 1
            elif kind in _VALUES:
                values += 1
            elif kind != _OTHER:
                containers += 1
            if containers > most or values > most_values or keys > most_keys:
                break
    except (ValueError, IndexError):
        # Never left to the parser, which might read it in another way.
        raise _unreadable(descriptor) from None
    if containers > most or values > most_values or keys > most_keys:
        raise InvalidRequestError(
            f"{descriptor.name} holds more than {most} messages, {most_values} values or {most_keys} keys;"
            " send large data as a file"
        )


def _fields(data: bytes, descriptor: Any) -> Iterator[str]:
    """The fields of a message and of the messages in it: for each the name of the message that it is, `_TEXT` or `_OTHER`.

    Raises:
        ValueError, IndexError: `data` is malformed, nested too deeply, or has a group.
    """
    fields = _message_fields()
    ends, kinds = [len(data)], [fields[descriptor.full_name]]
    at = 0
    while ends:
        if at >= ends[-1]:
            ends.pop()
            kinds.pop()
            continue
        tag, begin, at = _field(data, at, ends[-1])
        below = kinds[-1].get(tag >> 3, _OTHER) if tag & 7 == _LENGTH else _OTHER
        yield below
        if below in fields:
            if len(ends) > jsontext.MAX_ANSWER_DEPTH:
                raise ValueError("it is nested too deeply")
            ends.append(at)
            kinds.append(fields[below])
            at = begin


_LENGTH = 2
#: The bytes of values by those wire types that have as many always.
_SIZES = {1: 8, 5: 4}
#: The most fields of a request itself, without those of the messages in it.
_MAX_REQUEST_FIELDS = 1000
#: From so many fields on, a message takes ten milliseconds and more.
_MANY_FIELDS = 16 * 1024
#: In place of the name of a message: a text of a list, and any other field.
_TEXT, _OTHER = "text", "other"
_VALUES = frozenset({"google.protobuf.Value", _TEXT})
_KEY = "google.protobuf.Struct.FieldsEntry"


@cache
def _message_fields() -> dict[str, dict[int, str]]:
    """For each message of the services, the fields that are messages or lists of texts: by their numbers, the names of these."""
    found: dict[str, dict[int, str]] = {}
    left = [one.DESCRIPTOR for version in SERVICES for method in methods(version).values() for one in method[1:]]
    while left:
        kind = left.pop()
        if kind.full_name not in found:
            below = {field.number: field.message_type for field in kind.fields if field.message_type is not None}
            texts = {field.number: _TEXT for field in kind.fields if field.number not in below and is_repeated(field)}
            found[kind.full_name] = {number: one.full_name for number, one in below.items()} | texts
            left += below.values()
    return found


@cache
def _tags() -> bytes:
    """The first bytes of the tags of all fields in `_message_fields`; a tag may be longer than it has to be."""
    tags = {number << 3 | _LENGTH for fields in _message_fields().values() for number in fields}
    return bytes({tag & 0x7F for tag in tags if tag < 0x80} | {tag & 0x7F | 0x80 for tag in tags})


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the place after it. Raises `IndexError`, `ValueError`."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number is too long")
    return value, at + 1


def _field(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """The tag of the field at `at` of a message that ends at `end`, and where its value begins and ends.

    Raises:
        IndexError, ValueError: it is malformed, or a group: proto3 has none, and protobuf skips those that it does not know.
    """
    # A call for each number would take most of the time.
    tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)
    wire_type = tag & 7
    if wire_type == _LENGTH:
        size, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)
        after = at + size
    elif wire_type == 0:
        after = _varint(data, at)[1]
    elif wire_type in _SIZES:
        after = at + _SIZES[wire_type]
    else:
        raise ValueError("a group, or no wire type")
    # Some readers use only the lower 32 bits of a tag.
    if not 8 <= tag < 0x1_0000_0000 or after > end:
        raise ValueError("no field number, or a value beyond the end")
    return tag, at, after


def to_json(message: Any) -> Any:
    """The JSON of a message. Fields that its descriptor does not have are left out.

    Raises:
        InvalidRequestError: a value has no form in JSON.
    """
    try:
        return reader(message.DESCRIPTOR)(message)
    except (JSONFormatError, ProtobufError, ValueError, TypeError, RecursionError) as error:
        raise InvalidRequestError(f"not a valid {message.DESCRIPTOR.name}") from error


# -- requests and results -----------------------------------------------------------------------------------------------


def encode_request(operation: str, value: Any, version: str) -> bytes:
    """The request of an operation, from the JSON of its codec. Raises as `encode`."""
    return encode(_to_names(operation, value) if version == "0.3" else value, methods(version)[operation].request)


def decode_request(operation: str, message: Any, version: str) -> Any:
    """The JSON of the request of an operation. Raises as `to_json`."""
    value = to_json(message)
    return _from_names(operation, value) if version == "0.3" else value


def encode_result(operation: str, value: Any, version: str) -> bytes:
    """The result of an operation, or an event of its stream, from the JSON of its codec. Raises as `encode`."""
    is_old_card = version == "0.3" and operation == "GetExtendedAgentCard"
    return encode(
        _with_requirements(value, _to_message) if is_old_card else value, methods(version)[operation].response
    )


def decode_result(operation: str, message: Any, version: str) -> Any:
    """The JSON of the result of an operation, or of an event of its stream. Raises as `to_json`."""
    value = to_json(message)
    is_old_card = version == "0.3" and operation == "GetExtendedAgentCard"
    return _with_requirements(value, _from_message) if is_old_card else value


# -- names of 0.3 -------------------------------------------------------------------------------------------------------
# Its requests name resources (``tasks/T/pushNotificationConfigs/C``) where its JSON has ids, and its cards write requirements as
# messages.


_CONFIGS = "/pushNotificationConfigs/"


def _to_names(operation: str, value: Any) -> Any:
    """The JSON of a request of 0.3, with the names of its resources."""
    match operation, value:
        case "GetTask" | "CancelTask" | "SubscribeToTask", {"id": task_id}:
            return {**value, "name": f"tasks/{task_id}"}
        case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": own_id}:
            return {"name": f"tasks/{task_id}{_CONFIGS}{own_id}"}
        case "ListTaskPushNotificationConfigs", {"taskId": task_id}:
            return {**value, "parent": f"tasks/{task_id}"}
    return value


def _from_names(operation: str, value: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a request of 0.3, with ids in place of the names of resources."""
    name = str(value.get("name") or value.get("parent") or "").removeprefix("tasks/")
    if operation in ("GetTask", "CancelTask", "SubscribeToTask"):
        return {**value, "id": name}
    if not operation.endswith(("PushNotificationConfig", "PushNotificationConfigs")):
        return value
    task_id, _, own_id = name.partition(_CONFIGS)
    return {**value, "taskId": task_id, **({"id": own_id} if own_id else {})}


def _with_requirements(card: Any, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The JSON of a card of 0.3, in which `convert` has replaced the requirements: of the card and of its skills."""
    if not isinstance(card, dict):
        return card
    if isinstance(card.get("security"), list):
        card = {**card, "security": [convert(requirement) for requirement in card["security"]]}
    if isinstance(card.get("skills"), list):
        card = {**card, "skills": [_with_requirements(skill, convert) for skill in card["skills"]]}
    return card


def _to_message(requirement: dict[str, Any]) -> dict[str, Any]:
    return {"schemes": {name: {"list": scopes} for name, scopes in requirement.items()}}


def _from_message(requirement: dict[str, Any]) -> dict[str, Any]:
    return {name: one.get("list", []) for name, one in requirement.get("schemes", {}).items()}


# -- numbers of events --------------------------------------------------------------------------------------------------


def with_event_number(data: bytes, number: int) -> bytes:
    """A StreamResponse with the number of its event."""
    return data + _NUMBER_TAG + number.to_bytes(8, "little")


def event_number(data: bytes) -> int | None:
    """The number in a StreamResponse, which `parse` has accepted; None if it has none, or after a group or very many other fields."""
    # Not by the set of unknown fields of protobuf: it makes an object of each, and a peer may send millions of them.
    at = 0
    for _ in range(_MAX_EVENT_FIELDS):
        if at >= len(data):
            return None
        if data.startswith(_NUMBER_TAG, at):
            return int.from_bytes(data[at + 2 : at + 10], "little")
        try:
            _, _, at = _field(data, at, len(data))
        except (ValueError, IndexError):
            return None
    return None


# -- errors -------------------------------------------------------------------------------------------------------------

#: The metadata in which gRPC carries a ``google.rpc.Status``.
STATUS_DETAILS = "grpc-status-details-bin"


def encode_status(error: AgentError, codec: Codec) -> bytes:
    """The ``google.rpc.Status`` of an error (spec 10.6). Never fails: details that cannot be written are left out."""
    code = code_pb2.Code.Value(error.grpc_status)
    written = codec.dump_error(error)
    details: Any
    for details in (written["data"], []):
        with suppress(JSONFormatError, EncodeError, OverflowError, ValueError, TypeError):
            return _write_status(code, written["message"], details)
    return _write_status(code, error.default_message, [])


def _write_status(code: int, message: str, details: Any) -> bytes:
    # Details are messages of any type, which `encode` does not write.
    value = {"code": code, "message": message, "details": details}
    data: bytes = ParseDict(value, status_pb2.Status(), ignore_unknown_fields=True).SerializeToString()
    return data


def error_text(error: AgentError, version: str) -> str:
    """The text of a failed call. In 0.3 it begins with the name of the error, by which the official SDK recognises it."""
    name = type(error).__name__
    return f"{name}: {error.message}" if version == "0.3" and name in _BY_NAME else error.message


def decode_status(name: str, message: str, status: bytes | None, codec: Codec) -> AgentError:
    """The error of a failed call: by the reason in its status, else by the name in its text, else by `name`, that of its gRPC code."""
    details: Any = []
    named, _, rest = message.partition(": ")
    kind = _BY_NAME.get(named) if codec.version == "0.3" else None
    if kind is not None:
        message = rest
    elif codec.version == "0.3":
        kind = _BY_TEXT.get(named)
    if status:
        try:
            details = to_json(parse(status, status_pb2.Status)).get("details", [])
        except InvalidRequestError:
            details = []  # of types that are not known here
    error = codec.load_error({"message": message, "data": details})
    if type(error) is AgentError and error.reason == AgentError.reason:
        error = (kind or _BY_CODE.get(name, AgentError))(message, retry_after=error.retry_after)
    return error


#: The errors by the names that texts of 0.3 begin with.
_BY_NAME: dict[str, type[AgentError]] = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, AgentError) and found is not AgentError
}
#: The errors by the beginning of those texts of the JavaScript SDK of 0.3 whose code has several meanings.
_BY_TEXT: dict[str, type[AgentError]] = {"Task not cancelable": errors.TaskNotCancelableError}
#: The error of a gRPC code where the peer gives no reason.
_BY_CODE: dict[str, type[AgentError]] = {
    "INVALID_ARGUMENT": InvalidParamsError,
    "NOT_FOUND": TaskNotFoundError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "RESOURCE_EXHAUSTED": OverloadedError,
    "FAILED_PRECONDITION": UnsupportedOperationError,
    "UNIMPLEMENTED": UnsupportedOperationError,
    "INTERNAL": InternalError,
    "UNAVAILABLE": UnavailableError,
}
