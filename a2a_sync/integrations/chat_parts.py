"""Conversion of pieces of chat messages to parts and back: items of a list of contents, tool calls and their results.

Chat messages are the dictionaries that model APIs accept. Information that a part cannot hold is stored in its metadata
as a *mark*: the difference between the piece and the piece that the part alone would become. The module is independent
of messages and roles.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from a2a_sync.jsontext import dumps
from a2a_sync.types import JSON, DataPart, FilePart, Message, Part, TextPart

#: The key of marks in the metadata of messages and parts.
MARK = "urn:a2a-sync:chat:1"
#: A mark without a difference.
NO_DIFFERENCE: JSON = {"set": {}, "add": {}, "drop": []}
#: The names of audio formats in chat messages, with their media types.
_AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
#: The schemes of images that models are given by URL: others are read with the credentials of the agent, or its files.
_IMAGE_SCHEMES = ("http://", "https://", "data:")
_Marked = TypeVar("_Marked", bound=TextPart | FilePart | DataPart | Message)


# -- contents -----------------------------------------------------------------------------------------------------------


def part_of(piece: Any) -> Part:
    """The part for one piece of a content: text, image, sound or file. Other pieces become data parts."""
    match piece:
        case str(text) | {"type": "text", "text": str(text)}:
            part: Part = TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            part = _file_part(url)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}} if (
            _decoded(data) is not None
        ):
            part = FilePart(raw=_decoded(data), media_type=_AUDIO_TYPES.get(kind, f"audio/{kind}"))
        case {"type": "file", "file": {"file_data": str(url), **about}}:
            name = about.get("filename")
            part = replace(_file_part(url), filename=name if isinstance(name, str) else "")
        case _:
            part = DataPart(piece)
    return marked(part, piece, piece_of(part))


def piece_of(part: Part) -> dict[str, Any]:
    """The item for `part` in a list of contents, without regard to its mark."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, DataPart):
        return {"type": "text", "text": dumps(part.data).decode()}
    kind, _, subtype = part.media_type.partition("/")
    if kind == "image" and (part.raw is not None or (part.url or "").lower().startswith(_IMAGE_SCHEMES)):
        return {"type": "image_url", "image_url": {"url": _file_url(part)}}
    if part.raw is None:
        return {"type": "text", "text": f"{part.filename}: {part.url}" if part.filename else part.url}
    if part.media_type in _AUDIO_TYPES.values():
        sound = {"data": base64.b64encode(part.raw).decode(), "format": "mp3" if subtype == "mpeg" else subtype}
        return {"type": "input_audio", "input_audio": sound}
    return {"type": "file", "file": {"filename": part.filename or "file", "file_data": _file_url(part)}}


def _file_part(url: str) -> FilePart:
    """The file part for a URL; the content of a ``data:`` URL becomes the bytes of the file."""
    head, comma, body = url.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        raw = _decoded(body)
        if raw is not None:
            return FilePart(raw=raw, media_type=head.removeprefix("data:").removesuffix(";base64"))
    return FilePart(url=url)


def _file_url(part: FilePart) -> str:
    if part.url is not None:
        return part.url
    media_type = part.media_type or "application/octet-stream"
    return f"data:{media_type};base64,{base64.b64encode(part.raw or b'').decode()}"


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


# -- tools --------------------------------------------------------------------------------------------------------------


def part_of_call(call: Any) -> Part:
    """The data part for one tool call."""
    match call:
        case {"function": {"name": str(name), **rest}}:
            said = {"id": call.get("id"), "name": name, "arguments": rest.get("arguments")}
        case {"name": str(name)}:
            said = {"id": call.get("id"), "name": name, "arguments": call.get("arguments", call.get("args"))}
        case _:
            said = {"name": ""}
    part = DataPart({"type": "tool_call", "tool_call": said})
    return marked(part, call, call_of(said))


def part_of_result(call_id: Any, content: Any, is_error: bool) -> DataPart:
    """The data part for the result of a tool."""
    result = {"tool_call_id": call_id, "content": content, "is_error": is_error}
    return DataPart({"type": "tool_result", "tool_result": result})


def call_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """The tool call in the form of chat messages."""
    function = {"name": call["name"], "arguments": call.get("arguments")}
    return {"id": call.get("id"), "type": "function", "function": function}


def tool_call(part: Part) -> Mapping[str, Any] | None:
    """The tool call in `part`: ``id``, ``name``, ``arguments``; None if it is another part."""
    match part:
        case DataPart(data={"type": "tool_call", "tool_call": {"name": str()} as call}):
            return call  # type: ignore[no-any-return]
    return None


def tool_result(part: Part) -> Mapping[str, Any] | None:
    """The tool result in `part`: ``tool_call_id``, ``content``, ``is_error``; None if it is another part."""
    match part:
        case DataPart(data={"type": "tool_result", "tool_result": {"tool_call_id": _} as result}):
            return result  # type: ignore[no-any-return]
    return None


# -- marks --------------------------------------------------------------------------------------------------------------


def marked(thing: _Marked, original: Any, plain: dict[str, Any]) -> _Marked:
    """`thing` with a mark for the difference between `original` and `plain`; unchanged if they are equal."""
    mark = _difference(original, plain)
    return thing if mark is None else replace(thing, metadata={**thing.metadata, MARK: mark})


def restored(thing: Part | Message, plain: dict[str, Any]) -> Any:
    """The original for which `thing` was marked, made from `plain` and the mark; `plain` if there is no valid mark."""
    match thing.metadata.get(MARK):
        case {"is": original}:
            return original
        case {"set": dict(members), "add": dict(more), "drop": list(gone)}:
            kept = {key: value for key, value in plain.items() if key not in gone}
            return {**_merged(kept, more), **members}
    return plain


def _difference(original: Any, plain: dict[str, Any]) -> dict[str, Any] | None:
    if same(original, plain):
        return None
    if not isinstance(original, dict):
        return {"is": original}
    members: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for key, value in original.items():
        if key in plain and same(value, plain[key]):
            continue
        extra = _extra_members(value, plain[key]) if key in plain else None
        if extra is None:
            members[key] = value
        else:
            more[key] = extra
    return {"set": members, "add": more, "drop": [key for key in plain if key not in original]}


def _extra_members(whole: Any, part: Any) -> dict[str, Any] | None:
    """The members of `whole` that `part` does not have; None if they differ in anything else."""
    if not (isinstance(whole, dict) and isinstance(part, dict)):
        return None
    if not all(key in whole and same(whole[key], value) for key, value in part.items()):
        return None
    return {key: value for key, value in whole.items() if key not in part}


def _merged(plain: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    together = dict(plain)
    for key, value in more.items():
        inner = together.get(key)
        together[key] = {**inner, **value} if isinstance(inner, dict) and isinstance(value, dict) else value
    return together


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: ``1`` is neither ``1.0`` nor ``True``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)
