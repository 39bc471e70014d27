"""The dialect of `http` as written by the official Python SDK of 0.3, which encodes the bytes of files twice.

It encodes the base64 text of a file once more, as the bytes of a proto. This cannot be detected from the content of a
file alone, so the caller selects the codec: by an option, or by a known user agent and `encoded_twice`. Only the bytes
of files differ.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from a2a_sync import types as t
from a2a_sync.codec.fields import BASE64, Invalid, Kind
from a2a_sync.codec.v03.http import KINDS, METHODS, ProtoCodec

#: The types that can contain files, and their members that lead to them.
_MEMBERS_WITH_FILES: dict[type, tuple[str, ...]] = {
    t.Message: ("parts",),
    t.Artifact: ("parts",),
    t.TaskStatus: ("message",),
    t.Task: ("status", "artifacts", "history"),
    t.TaskStatusUpdateEvent: ("status",),
    t.TaskArtifactUpdateEvent: ("artifact",),
    t.SendMessageRequest: ("message",),
    t.ListTasksResponse: ("tasks",),
}


def _with_file_bytes(value: Any, change: Callable[[bytes], bytes]) -> Any:
    """`value` with the bytes of all files in it changed."""
    if isinstance(value, tuple):
        return tuple(_with_file_bytes(item, change) for item in value)
    if isinstance(value, t.FilePart) and value.raw is not None:
        return replace(value, raw=change(value.raw))
    names = _MEMBERS_WITH_FILES.get(type(value), ())
    return (
        replace(value, **{name: _with_file_bytes(getattr(value, name), change) for name in names}) if names else value
    )


def _encoded(raw: bytes) -> bytes:
    return binascii.b2a_base64(raw, newline=False)


def _decoded(raw: bytes) -> bytes:
    try:
        decoded: bytes = BASE64.load(raw.decode("ascii"), True)
    except (UnicodeDecodeError, Invalid):
        raise Invalid("a file is not encoded twice, as expected of this peer") from None
    return decoded


def encoded_twice(request: t.SendMessageRequest) -> bool:
    """Whether the content of every file in a request, read by `http`, is base64 text itself: padded, standard alphabet.

    True for a request without files.
    """
    return all(_is_base64(part.raw) for part in request.message.files if part.raw is not None)


def _is_base64(raw: bytes) -> bool:
    try:
        binascii.a2b_base64(raw, strict_mode=True)
    except ValueError:
        return False
    return len(raw) % 4 == 0


class _DoubleBase64:
    """A kind of `http` whose files are encoded once more."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.empty = kind.empty

    def load(self, value: Any, strict: bool) -> Any:
        return _with_file_bytes(self._kind.load(value, strict), _decoded)

    def dump(self, value: Any) -> Any:
        value = _with_file_bytes(value, _encoded)
        return value if self._kind.dump is None else self._kind.dump(value)


CODEC = ProtoCodec("0.3", {cls: _DoubleBase64(kind) for cls, kind in KINDS.items()}, METHODS, dialect="twice")
