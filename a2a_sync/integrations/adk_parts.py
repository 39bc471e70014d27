"""Conversion of parts and messages between the Google ADK and the protocol; for ``a2a_sync.integrations.adk``."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any, Final

from a2a_sync.integrations.bridge import is_web_file
from a2a_sync.jsontext import dumps
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import DataPart, FilePart, Message, Part, Role, TaskState, TextPart, new_id

try:
    from google.genai import types
except ImportError as _error:
    raise ImportError("the bridge to the Google ADK needs it: pip install 'a2a-sync[adk]'") from _error

logger: Final = get_logger(__name__)

#: Members of ADK's parts that become data parts, with the classes that read them.
_DATA = {
    "function_call": types.FunctionCall,
    "function_response": types.FunctionResponse,
    "executable_code": types.ExecutableCode,
    "code_execution_result": types.CodeExecutionResult,
}
TYPE, LONG_RUNNING, _THOUGHT, _SIGNATURE = (
    "adk_type",
    "adk_is_long_running",
    "adk_thought",
    "adk_thought_signature",
)
#: How the ADK wraps other data parts.
_BEGIN, _END = b"<a2a_datapart_json>", b"</a2a_datapart_json>"


def to_a2a_part(part: types.Part) -> Part | None:
    """The part of the protocol for one of the ADK; None, which is logged, if there is none."""
    if part.text is not None:
        return TextPart(part.text, metadata={_THOUGHT: True} if part.thought else {})
    if (file := part.file_data) is not None:
        return FilePart(url=file.file_uri or "", media_type=file.mime_type or "", filename=file.display_name or "")
    if (blob := part.inline_data) is not None and blob.data is not None:
        if blob.mime_type == "text/plain" and blob.data.startswith(_BEGIN) and blob.data.endswith(_END):
            wrapped = json.loads(blob.data[len(_BEGIN) : -len(_END)])
            return DataPart(wrapped["data"] if isinstance(wrapped, dict) and "data" in wrapped else wrapped)
        return FilePart(raw=blob.data, media_type=blob.mime_type or "", filename=blob.display_name or "")
    for kind in _DATA:
        if (value := getattr(part, kind)) is not None:
            metadata = {TYPE: kind}
            if part.thought_signature is not None:
                metadata[_SIGNATURE] = base64.b64encode(part.thought_signature).decode()
            return DataPart(value.model_dump(mode="json", by_alias=True, exclude_none=True), metadata=metadata)
    logger.warning("a part of the ADK has no equivalent and is omitted: %s", sorted(part.model_fields_set))
    return None


def to_adk_part(part: Part) -> types.Part | None:
    """The part of the ADK for one of the protocol; None, which is logged, if it is not valid."""
    if isinstance(part, TextPart):
        return types.Part(text=part.text, thought=part.metadata.get(_THOUGHT) is True or None)
    if isinstance(part, FilePart):
        about = {"mime_type": part.media_type or "application/octet-stream", "display_name": part.filename or None}
        if not is_web_file(part):
            return types.Part(text=part.url or "")
        if part.raw is None:
            return types.Part(file_data=types.FileData(file_uri=part.url or "", **about))
        return types.Part(inline_data=types.Blob(data=part.raw, **about))
    kind = part.metadata.get(TYPE)
    if kind not in _DATA:
        return types.Part(
            inline_data=types.Blob(data=_BEGIN + dumps({"data": part.data}) + _END, mime_type="text/plain")
        )
    try:
        signature = part.metadata.get(_SIGNATURE)
        raw = base64.b64decode(signature, validate=True) if isinstance(signature, str) else None
        return types.Part.model_validate({kind: _DATA[kind].model_validate(part.data), "thought_signature": raw})
    except (ValueError, binascii.Error):
        logger.warning("a data part is no valid %s of the ADK and is omitted", kind)
        return None


def to_a2a_parts(parts: Iterable[types.Part] | None) -> list[Part]:
    """Those of the parts that have an equivalent."""
    return [part for part in map(to_a2a_part, parts or ()) if part is not None]


def to_adk_parts(parts: Iterable[Part]) -> list[types.Part]:
    """Those of the parts that are valid."""
    return [part for part in map(to_adk_part, parts) if part is not None]


def to_a2a_message(content: types.Content, context_id: str = "", task_id: str = "") -> Message:
    """A message with the parts of `content`; the role ``model`` becomes that of the agent."""
    role = Role.AGENT if content.role == "model" else Role.USER
    parts = tuple(to_a2a_parts(content.parts))
    return Message(role=role, parts=parts, message_id=new_id(), context_id=context_id, task_id=task_id)


def to_adk_content(message: Message) -> types.Content:
    """The content with the parts of a message; the role of the agent becomes ``model``."""
    return types.Content(role="model" if message.role is Role.AGENT else "user", parts=to_adk_parts(message.parts))


def terminal_state(event: Any) -> TaskState:
    """The state of a task whose run has `event` of the ADK as its last one."""
    if event.error_code or event.error_message:
        return TaskState.FAILED
    if event.long_running_tool_ids or event.actions.escalate:
        return TaskState.INPUT_REQUIRED
    return TaskState.COMPLETED
