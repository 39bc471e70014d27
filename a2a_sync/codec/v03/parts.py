"""Parts of 0.3 in both dialects: text, files and data, distinguished by ``kind`` or by the member that is present."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from a2a_sync import types as t
from a2a_sync.codec.fields import BASE64, STRUCT, TEXT, Invalid, Kind, Scalar, many, shown
from a2a_sync.codec.members import METADATA
from a2a_sync.codec.records import Member, Record, load_member, optional

#: Marks a data part whose value is not an object. 0.3 has only objects, so the value is sent as ``{"value": …}``.
_WRAPPED = "data_part_compat"
_COMMON_MEMBERS = Record(t.TextPart, METADATA)


class File:
    """The kind of the content of a file part: bytes or a URL, in members with the given names."""

    empty = None

    def __init__(self, raw: str, url: str) -> None:
        self._record = Record(
            t.FilePart,
            optional("raw", BASE64, raw),
            optional("url", TEXT, url),
            Member("media_type", TEXT, "mimeType"),
            Member("filename", TEXT, "name"),
        )
        self._names = raw, url
        self.dump: Final = self._record.dump

    def load(self, value: Any, strict: bool) -> dict[str, Any] | None:
        """The members of a `FilePart`; None if a lenient reader finds no file."""
        value = STRUCT.load(value, strict)
        found = self._record.found(value, strict)
        if "raw" in found and "url" in found:
            if strict:
                raise Invalid("has both {} and {}; a file has one of them".format(*self._names))
            del found["url"]
        if "raw" in found or "url" in found:
            return found
        if strict:
            raise Invalid("needs one of {}, {}".format(*self._names))
        return None


def _load_struct(value: Any, strict: bool) -> Any:
    # The schema allows objects only. The official kit sends an array, so arrays are accepted; written ones are wrapped.
    return STRUCT.load(value, strict) if strict and not isinstance(value, list) else value


#: What a data part holds.
DATA = Scalar(_load_struct)
_LoadContent = Callable[[dict[str, Any], bool, dict[str, Any]], t.Part | None]


class Parts:
    """The kind of all parts.

    `file` and `data` are the kinds of their contents; `named`: parts are written with ``kind``.
    """

    empty = None

    def __init__(self, file: File, data: Kind, *, named: bool) -> None:
        self._file = file
        self._data = data
        self._named = named
        self._contents: dict[str, _LoadContent] = {
            "text": self._load_text,
            "file": self._load_file,
            "data": self._load_data,
        }

    # -- reading --

    def load(self, value: Any, strict: bool) -> t.Part | None:
        """The part; None if it is of an unknown kind, in lenient mode."""
        value = STRUCT.load(value, strict)
        # The member was called ``type`` in 0.1. A request with an unknown kind of part is refused.
        tag_name = "type" if strict and value.get("kind") is None else "kind"
        kind = value.get(tag_name)
        if kind is None or (kind == "" and not strict):
            held = [name for name in self._contents if name in value]
            if strict and len(held) > 1 and not self._named:
                raise Invalid(f"has both {held[0]} and {held[1]}; a part has one content")
            kind = held[0] if held else None
        load = self._contents.get(kind) if isinstance(kind, str) else None
        if load is not None:
            return load(value, strict, _COMMON_MEMBERS.found(value, strict))
        if strict:
            if kind is None:
                raise Invalid("needs one of text, file, data")
            raise Invalid(f"{shown(str(kind))} is none of text, file, data", tag_name)
        return None

    def _load_text(self, value: dict[str, Any], strict: bool, about: dict[str, Any]) -> t.Part:
        return t.TextPart(load_member(value, "text", TEXT, strict) or "", **about)

    def _load_file(self, value: dict[str, Any], strict: bool, about: dict[str, Any]) -> t.Part | None:
        found = load_member(value, "file", self._file, strict)
        return t.FilePart(**found, **about) if found else None

    def _load_data(self, value: dict[str, Any], strict: bool, about: dict[str, Any]) -> t.Part:
        data = load_member(value, "data", self._data, strict)
        metadata = about.get("metadata", {})
        if metadata.get(_WRAPPED) is True and _is_wrapped(data):
            data = data["value"]
            about["metadata"] = {key: item for key, item in metadata.items() if key != _WRAPPED}
        return t.DataPart(data, **about)

    # -- writing --

    def dump(self, part: t.Part) -> dict[str, Any]:
        """The JSON of a part."""
        metadata = part.metadata
        kind: str
        held: Any
        if isinstance(part, t.TextPart):
            kind, held = "text", part.text
        elif isinstance(part, t.FilePart):
            kind, held = "file", self._file.dump(part)
        else:
            kind, held = "data", part.data
            if not isinstance(held, dict):
                held = {"value": held}
                metadata = {**metadata, _WRAPPED: True}
            if self._data.dump is not None:
                held = self._data.dump(held)
        written = {"kind": kind, kind: held} if self._named else {kind: held}
        if metadata:
            written["metadata"] = STRUCT.dump(metadata)  # type: ignore[misc]
        return written


def _is_wrapped(data: Any) -> bool:
    return isinstance(data, dict) and data.keys() == {"value"} and not isinstance(data["value"], dict)


PART = Parts(File("bytes", "uri"), DATA, named=True)
PARTS = many(PART)
