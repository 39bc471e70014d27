"""The common part of all codecs: a version consists mainly of a table of kinds and a table of method names.

Errors, which are nearly the same in all versions, are encoded and decoded here (spec 9.5).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.codec.fields import DecodeError, Invalid, Kind
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.errors import (
    AgentError,
    FieldViolation,
    InvalidParamsError,
    JSONParseError,
    UnsupportedOperationError,
    error_from_wire,
)
from a2a_sync.jsontext import LONG_TEXT, MAX_ANSWER_DEPTH, MAX_ANSWER_KEYS, MAX_EVENT_DEPTH, dumps, loads
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import AnyOperation, StreamItem

_UNIONS: dict[Any, str] = {
    t.Part: "Part",
    t.SendMessageResponse: "SendMessageResponse",
    t.StreamResponse: "StreamResponse",
    c.SecurityScheme: "SecurityScheme",
    c.OAuthFlow: "OAuthFlows",
}
#: Artifacts that are streamed at the same time, for which a codec keeps some hundred bytes each.
_MOST_ARTIFACTS = 1024
#: Stands for the text of an event, and takes more characters in JSON.
_MARK = "\0"


#: The number of locks for events.
LOCKS = 64


class _EncodingLocks:
    """Locks for events, by ``id(encoded) // 16 % LOCKS``: of the streams that encode an event at the same time, one does."""

    def __init__(self) -> None:
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: no lock is held."""
        self.locks: list[threading.Lock] = [threading.Lock() for _ in range(LOCKS)]


#: Held while an event is decoded and encoded for a stream.
ENCODING: Final = _EncodingLocks()


class Codec:
    """The codec of one version, in both directions: clients and servers use the same object. Thread-safe.

    Values are those of `jsontext.loads` and `jsontext.dumps`. Requests are decoded strictly: an error is an
    `InvalidParamsError`, which names the member. Results, events and cards of a peer are decoded leniently: a missing
    member gets its default, an unknown one is ignored. A value that cannot be decoded raises `DecodeError`, a
    ValueError, which the caller converts to an error of the transport.

    Parameters:
        version: ``"1.0"``: the value of the A2A-Version header.
        kinds: the kind that reads and writes each type of the model, unions included.
        methods: the names of the operations. No name is used in two versions.
        dialect: the name of a second way of writing a version.
    """

    def __init__(
        self, version: str, kinds: Mapping[Any, Kind], methods: Mapping[AnyOperation, str], *, dialect: str = ""
    ) -> None:
        self.version = version
        self._encoding = version + dialect
        self._kinds = kinds
        self._methods = methods
        #: The operations of this version by the names of their methods.
        self.operations: dict[str, AnyOperation] = {method: operation for operation, method in methods.items()}
        #: The JSON of an event of a stream.
        self.dump_event: Callable[[t.StreamResponse], Any] = kinds[t.StreamResponse].dump or (lambda event: event)
        #: The pieces of one artifact differ in their texts only, and encoding the rest takes four times as long as the text.
        self._around_text = lru_cache(_MOST_ARTIFACTS)(self._encode_around_text)

    # -- methods --

    def method(self, operation: AnyOperation) -> str:
        """The name of `operation` in this version; raises `UnsupportedOperationError` if there is none."""
        try:
            return self._methods[operation]
        except KeyError:
            raise UnsupportedOperationError(f"Protocol {self.version} has no {operation.name}") from None

    # -- objects --

    def load(self, cls: Any, value: Any, strict: bool = True) -> Any:
        """An object of any type of the model (`AgentCard`, `Message`, the union `Part` …).

        Raises:
            InvalidParamsError: `strict`, and the value does not fit.
            DecodeError: not `strict`, and the value does not fit.
        """
        try:
            loaded = self._kinds[cls].load(value, strict)
            if loaded is None:
                raise Invalid(f"holds nothing that protocol {self.version} knows")
        except Invalid as invalid:
            where = invalid.where or _UNIONS.get(cls) or cls.__name__
            if strict:
                raise InvalidParamsError.at(where, invalid.description) from None
            raise DecodeError(f"{where}: {invalid.description}") from None
        return loaded

    def dump(self, obj: Any) -> Any:
        """The JSON of any object of the model.

        Raises:
            ValueError: it holds a timestamp without a time zone.
        """
        dump = self._kinds[type(obj)].dump
        return obj if dump is None else dump(obj)

    # -- requests, results and events --

    def load_request(self, operation: AnyOperation, params: Any) -> Any:
        """The request of `operation`; raises `InvalidParamsError`. Ranges (page sizes …) are not checked here."""
        return self.load(operation.request, params)

    def dump_request(self, operation: AnyOperation, request: Any) -> Any:
        """The params of `request`."""
        return self.dump(request)

    def load_result(self, operation: AnyOperation, value: Any) -> Any:
        """The result of `operation`, None where it has none; raises `DecodeError`."""
        return None if operation.response is None else self.load(operation.response, value, strict=False)

    def dump_result(self, operation: AnyOperation, result: Any) -> Any:
        """The JSON of a result; for ListTasks, without members that the given tasks do not have."""
        dump = None if operation.response is None else self._kinds[operation.response].dump
        return None if dump is None else dump(result)

    def load_event(self, value: Any) -> Any:
        """One element of a stream: a Task, a Message or an update event; raises `DecodeError`."""
        return self.load(t.StreamResponse, value, strict=False)

    def ends_stream(self, value: Any) -> bool:
        """Whether the JSON of an element of a stream marks it as the last one. Not all versions have such a mark."""
        return False

    def encode_item(self, item: StreamItem | Entry) -> bytes:
        """The bytes of an element of a stream, encoded once per version and stored in ``item.encoded``.

        Raises:
            ValueError: it holds a value that JSON does not have.
        """
        encoded = item.encoded.get(self._encoding)
        if encoded is None:
            with ENCODING.locks[id(item.encoded) // 16 % LOCKS]:
                encoded = item.encoded.get(self._encoding)
                if encoded is None:
                    encoded = item.encoded[self._encoding] = self._encode_event(item.event)
        return encoded

    def _encode_event(self, event: Any) -> bytes:
        # Further pieces only: there may be no second one to which the bytes around the first apply.
        if isinstance(event, t.TaskArtifactUpdateEvent) and event.append and (text := _only_text(event)) is not None:
            artifact_id = event.artifact.artifact_id
            around = self._around_text(event.task_id, event.context_id, artifact_id, event.append, event.last_chunk)
            if around is not None:
                return dumps(text).join(around)
        return dumps(self.dump_event(event), max_depth=MAX_EVENT_DEPTH)

    def _encode_around_text(
        self, task_id: str, context_id: str, artifact_id: str, append: bool, last_chunk: bool
    ) -> tuple[bytes, bytes] | None:
        """The bytes before and after the text of an event that adds text to an artifact; None if it is not in one place."""
        event = t.TaskArtifactUpdateEvent(
            task_id=task_id,
            context_id=context_id,
            artifact=t.Artifact(artifact_id=artifact_id, parts=(t.TextPart(_MARK),)),
            append=append,
            last_chunk=last_chunk,
        )
        around = dumps(self.dump_event(event), max_depth=MAX_EVENT_DEPTH).split(dumps(_MARK))
        return (around[0], around[1]) if len(around) == 2 else None

    def encode_end(self, item: StreamItem) -> bytes | None:
        """The bytes that repeat an element and mark it as the last one; None if the version has no such mark."""
        return None

    # -- errors --

    def dump_error(self, error: AgentError) -> dict[str, Any]:
        """The error object of JSON-RPC: code, message, and an array of details that begins with an ErrorInfo."""
        return {"code": error.jsonrpc_code, "message": error.message, "data": error_details(error)}

    def load_error(self, value: Any) -> AgentError:
        """The error for an error object. Never raises: malformed values result in an `AgentError`."""
        if not isinstance(value, Mapping):
            return error_from_wire(message=_text(value))
        code = value.get("code")
        return error_from_wire(
            code=code if isinstance(code, int) and not isinstance(code, bool) else None,
            message=_text(value.get("message")),
            **load_error_details(value.get("data")),
        )


def _only_text(event: t.TaskArtifactUpdateEvent) -> str | None:
    """The text of an event that holds one text and ids; None if it holds anything else."""
    artifact = event.artifact
    if (
        len(artifact.parts) == 1
        and isinstance(part := artifact.parts[0], t.TextPart)
        and isinstance(part.text, str)
        and not (part.metadata or part.filename or part.media_type)
        and not (artifact.name or artifact.description or artifact.metadata or artifact.extensions or event.metadata)
    ):
        return part.text
    return None


# -- errors (spec 9.5) --------------------------------------------------------------------------------------------------

_TYPE = "type.googleapis.com/google.rpc."
_DOMAIN = "a2a-protocol.org"


def error_details(error: AgentError) -> list[dict[str, Any]]:
    """The ``google.rpc`` details of an error, the same in every binding. An ErrorInfo is always the first."""
    info = {"@type": _TYPE + "ErrorInfo", "reason": error.reason, "domain": _DOMAIN}
    details: list[dict[str, Any]] = [{**info, "metadata": error.metadata} if error.metadata else info]
    if error.violations:
        violations = [violation._asdict() for violation in error.violations]
        details.append({"@type": _TYPE + "BadRequest", "fieldViolations": violations})
    if error.retry_after is not None:
        details.append({"@type": _TYPE + "RetryInfo", "retryDelay": f"{error.retry_after:g}s"})
    return details


def load_error_details(details: Any) -> dict[str, Any]:
    """The arguments of `error_from_wire` in the details of a peer; malformed details are ignored."""
    known: dict[str, Any] = {}
    for detail in details if isinstance(details, list) else [details]:
        if not isinstance(detail, dict):
            continue
        match str(detail.get("@type", "")).rpartition(".")[2]:
            case "ErrorInfo":
                known["reason"] = _text(detail.get("reason"))
                known["metadata"] = _texts(detail.get("metadata"))
            case "BadRequest":
                known["violations"] = _violations(detail.get("fieldViolations"))
            case "RetryInfo":
                known["retry_after"] = _seconds(detail.get("retryDelay"))
    return known


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: item if isinstance(item, str) else dumps(item).decode() for key, item in value.items()}


def _violations(value: Any) -> tuple[FieldViolation, ...]:
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return tuple(FieldViolation(_text(row.get("field")), _text(row.get("description"))) for row in rows)


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(_text(value).removesuffix("s"))
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None


def load_answer(body: bytes | str) -> Any:
    """The JSON that a server sent.

    Raises:
        DecodeError: it is not JSON.
    """
    try:
        return loads(body, max_depth=MAX_ANSWER_DEPTH, max_keys=MAX_ANSWER_KEYS, max_values=None)
    except JSONParseError as error:
        raise DecodeError(error.message) from None


def has_long_texts(result: Any) -> bool:
    """Whether an artifact in the JSON of a result has a long text."""
    if not isinstance(result, dict):
        return False
    artifacts = (result.get("task") or result).get("artifacts", ())
    for artifact in artifacts:
        for part in artifact.get("parts", ()):
            if len(part.get("text") or "") >= LONG_TEXT:
                return True
    return False
