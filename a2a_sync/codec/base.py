"""The common part of all codecs: a version consists mainly of a table of kinds and a table of method names.

Errors, which are nearly the same in all versions, are encoded and decoded here (spec 9.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.codec.fields import DecodeError, Invalid, Kind
from a2a_sync.errors import (
    AgentError,
    FieldViolation,
    InvalidParamsError,
    UnsupportedOperationError,
    error_from_wire,
)
from a2a_sync.jsontext import MAX_EVENT_DEPTH, dumps
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import AnyOperation, StreamItem

_UNIONS: dict[Any, str] = {
    t.Part: "Part",
    t.SendMessageResponse: "SendMessageResponse",
    t.StreamResponse: "StreamResponse",
    c.SecurityScheme: "SecurityScheme",
    c.OAuthFlow: "OAuthFlows",
}


class TableCodec:
    """A codec made of tables; see `Codec` for the contract.

    `kinds` maps each type of the model, unions included, to the kind that reads and writes it; `methods` maps
    operations to names. The second way of writing a version has a `dialect`.
    """

    def __init__(
        self, version: str, kinds: Mapping[Any, Kind], methods: Mapping[AnyOperation, str], *, dialect: str = ""
    ) -> None:
        self.version = version
        self._encoding = version + dialect
        self._kinds = kinds
        self._methods = methods
        self.operations = {method: operation for operation, method in methods.items()}
        self._dump_event = kinds[t.StreamResponse].dump or _identity

    # -- methods --

    def method(self, operation: AnyOperation) -> str:
        try:
            return self._methods[operation]
        except KeyError:
            raise UnsupportedOperationError(f"Protocol {self.version} has no {operation.name}") from None

    # -- objects --

    def load(self, cls: Any, value: Any, strict: bool = True) -> Any:
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
        dump = self._kinds[type(obj)].dump
        return obj if dump is None else dump(obj)

    # -- requests, results and events --

    def load_request(self, operation: AnyOperation, params: Any) -> Any:
        return self.load(operation.request, params)

    def dump_request(self, operation: AnyOperation, request: Any) -> Any:
        return self.dump(request)

    def load_result(self, operation: AnyOperation, value: Any) -> Any:
        return None if operation.response is None else self.load(operation.response, value, strict=False)

    def dump_result(self, operation: AnyOperation, result: Any) -> Any:
        dump = None if operation.response is None else self._kinds[operation.response].dump
        return None if dump is None else dump(result)

    def load_event(self, value: Any) -> Any:
        return self.load(t.StreamResponse, value, strict=False)

    def dump_event(self, event: t.StreamResponse) -> Any:
        return self._dump_event(event)

    def ends_stream(self, value: Any) -> bool:
        return False

    def encode_item(self, item: StreamItem | Entry) -> bytes:
        encoded = item.encoded.get(self._encoding)
        if encoded is None:
            written = dumps(self._dump_event(item.event), max_depth=MAX_EVENT_DEPTH)
            encoded = item.encoded[self._encoding] = written
        return encoded

    def encode_end(self, item: StreamItem) -> bytes | None:
        return None

    # -- errors --

    def dump_error(self, error: AgentError) -> dict[str, Any]:
        return {"code": error.jsonrpc_code, "message": error.message, "data": error_details(error)}

    def load_error(self, value: Any) -> AgentError:
        if not isinstance(value, Mapping):
            return AgentError(_text(value))
        code = value.get("code")
        return error_from_wire(
            code=code if isinstance(code, int) and not isinstance(code, bool) else None,
            message=_text(value.get("message")),
            **load_error_details(value.get("data")),
        )


def _identity(value: Any) -> Any:
    return value


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
