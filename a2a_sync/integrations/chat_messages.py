"""Chat messages, the role/content/tool_calls dictionaries of model APIs, as messages of the protocol and back.

Tool calls and their results become data parts; images, sounds and files become file parts. Information without an
equivalent is stored in the metadata of a message, and in the member ``a2a`` of a chat message, so that nothing is lost
in either direction. The module only converts; it calls no models and is independent of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from a2a_sync.codec import DecodeError, by_version
from a2a_sync.integrations.chat_parts import (
    MARK,
    NO_DIFFERENCE,
    call_of,
    marked,
    part_of,
    part_of_call,
    part_of_result,
    piece_of,
    restored,
    same,
    tool_call,
    tool_result,
)
from a2a_sync.types import Message, Part, Role, TextPart

__all__ = [
    "from_chat_messages",
    "to_chat_messages",
]

#: The member of a chat message for the information that its other members cannot hold.
MEMBER = "a2a"
#: Roles of chat messages that become messages of the agent. All other roles become the user.
_AGENT_ROLES = frozenset({"assistant", "system", "developer", "tool", "function"})
_RESULT_ROLES = frozenset({"tool", "function"})


# -- to chat messages ---------------------------------------------------------------------------------------------------


def to_chat_messages(messages: Message | Iterable[Message], *, lossless: bool = False) -> list[dict[str, Any]]:
    """Convert messages of the protocol to chat messages, in order; each tool result becomes a chat message of its own.

    By default the result is a prompt with only what model APIs accept: the roles ``user``, ``assistant`` and ``tool``,
    text, images, sounds, files, tool calls. Other data becomes JSON text, other files become their URLs, also in a list that
    is the content of a tool result. Metadata is ignored, so that no client can present its message as a system message.

    With `lossless`, `from_chat_messages` restores the same messages: information without a member of its own is stored
    in the member ``a2a``, as JSON. Messages made by `from_chat_messages` become the original chat messages, roles
    included. Use it only for messages that no client has written.
    """
    listed = [messages] if isinstance(messages, Message) else messages
    converted = (_lossless(message) if lossless else _chats(message, marks=False) for message in listed)
    return [chat for chats in converted for chat in chats]


def _lossless(message: Message) -> list[dict[str, Any]]:
    chats = _chats(message, marks=True)
    about = by_version("1.0").dump(message)
    parts = about.pop("parts", [])
    if len(chats) > 1:
        about.update(parts=parts, turns=len(chats))
    elif _parts(chats[0], "") != message.parts:
        about.update(parts=parts)
    return [{**chats[0], MEMBER: about}, *chats[1:]]


def _chats(message: Message, *, marks: bool) -> list[dict[str, Any]]:
    ours = message.role is Role.AGENT
    calls, contents, results = _group_parts(message.parts, ours)
    chats: list[dict[str, Any]] = []
    if contents or calls or not results:
        chat: dict[str, Any] = {"role": "assistant" if ours else "user", "content": _content(contents, marks)}
        if calls:
            chat["tool_calls"] = [_restored(part, call_of(call), marks) for part, call in calls]
            chat["content"] = chat["content"] or None
        chats.append(chat)
    chats += [_result(result, marks) for result in results]
    # Only a message made from a single dictionary is marked, and a mark may come from any client.
    whole = restored(message, chats[0]) if marks and len(chats) == 1 else None
    return [whole] if isinstance(whole, dict) and _is_chat(whole) else chats


def _is_chat(chat: Mapping[str, Any]) -> bool:
    return isinstance(chat.get("role"), str) and (
        chat["role"] in _RESULT_ROLES or isinstance(chat.get("content"), (str, list, NoneType))
    )


def _group_parts(
    parts: Iterable[Part], ours: bool
) -> tuple[list[tuple[Part, Mapping[str, Any]]], list[Part], list[Mapping[str, Any]]]:
    """Tool calls (which only agents make), other parts, and tool results."""
    calls, contents, results = [], [], []
    for part in parts:
        call = tool_call(part) if ours else None
        result = tool_result(part)
        if call is not None:
            calls.append((part, call))
        elif result is not None:
            results.append(result)
        else:
            contents.append(part)
    return calls, contents, results


def _content(parts: Sequence[Part], marks: bool) -> Any:
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextPart) and not (marks and MARK in parts[0].metadata):
        return parts[0].text
    return [_restored(part, piece_of(part), marks) for part in parts]


def _restored(part: Part, plain: dict[str, Any], marks: bool) -> Any:
    return restored(part, plain) if marks else plain


def _result(result: Mapping[str, Any], marks: bool) -> dict[str, Any]:
    content = result.get("content", "")
    if isinstance(content, list) and not marks:
        # A client may have written it: its URLs are treated as those of other parts.
        content = [piece_of(part_of(piece)) for piece in content]
    chat = {"role": "tool", "tool_call_id": result["tool_call_id"], "content": content}
    return {**chat, "is_error": True} if result.get("is_error") is True else chat


# -- from chat messages -------------------------------------------------------------------------------------------------


def from_chat_messages(
    chats: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, context_id: str = "", task_id: str = ""
) -> list[Message]:
    """Convert chat messages to messages of the protocol, in order.

    Chat messages of ``assistant``, ``system``, ``developer``, ``tool`` and ``function`` become messages of the agent,
    all others those of the user. The id is that of the member ``id``, or a new one. Results of `to_chat_messages` with
    ``lossless`` become the original messages, with changed content if it was changed.

    Parameters:
        chats: one or several chat messages.
        context_id, task_id: the ids to set in all messages.

    Raises:
        TypeError, ValueError: an item is not a chat message; the text names the member.
    """
    listed = [chats] if isinstance(chats, Mapping) else list(chats)
    messages = list(_messages(listed))
    if not (context_id or task_id):
        return messages
    return [
        replace(message, context_id=context_id or message.context_id, task_id=task_id or message.task_id)
        for message in messages
    ]


def _messages(chats: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    position = 0
    while position < len(chats):
        about = chats[position].get(MEMBER) if isinstance(chats[position], Mapping) else None
        turns = about.get("turns", 1) if isinstance(about, Mapping) else 0
        where = f"messages[{position}]"
        if isinstance(about, Mapping) and isinstance(turns, int) and turns > 0:
            message, used = _restored_message(chats[position : position + turns], about, where)
        else:
            message, used = _message(chats[position], where), 1
        yield message
        position += used


def _restored_message(chats: Sequence[Mapping[str, Any]], about: Mapping[str, Any], where: str) -> tuple[Message, int]:
    """The message that `chats` begin with, restored with `about`, and the number of chat messages that it covers."""
    first = {key: value for key, value in chats[0].items() if key != MEMBER}
    now = _message(first, where)
    try:
        message: Message = by_version("1.0").load(Message, dict(about), strict=False)
    except DecodeError as error:
        raise ValueError(f"{where}.{MEMBER}: {error}") from None
    if "parts" not in about:
        return replace(message, parts=now.parts), 1
    if same(_chats(message, marks=True), [first, *chats[1:]]):
        return message, len(chats)
    return replace(now, message_id=message.message_id, context_id=message.context_id, task_id=message.task_id), 1


def _message(chat: Mapping[str, Any], where: str) -> Message:
    if not isinstance(chat, Mapping):
        raise TypeError(f"{where}: expected a dictionary, not {type(chat).__name__}")
    role = chat.get("role")
    if not isinstance(role, str):
        raise TypeError(f"{where}.role: expected text, not {type(role).__name__}")
    message = Message(role=Role.AGENT if role in _AGENT_ROLES else Role.USER, parts=_parts(chat, where))
    message_id = chat.get("id")
    if isinstance(message_id, str) and message_id:
        message = replace(message, message_id=message_id)
    # The message has no mark yet, but its parts may.
    return marked(message, dict(chat), _chats(message, marks=True)[0])


def _parts(chat: Mapping[str, Any], where: str) -> tuple[Part, ...]:
    """The parts of one chat message: at least one, as messages need (spec 4.1.4)."""
    content = chat.get("content")
    if chat["role"] in _RESULT_ROLES:
        return (part_of_result(chat.get("tool_call_id", ""), content, chat.get("is_error") is True),)
    if not isinstance(content, (str, list, NoneType)):
        raise TypeError(f"{where}.content: expected text, a list or None, not {type(content).__name__}")
    pieces = [part_of(piece) for piece in content] if isinstance(content, list) else []
    parts = [_marked_as_list(pieces[0])] if len(pieces) == 1 else pieces
    if isinstance(content, str) and content:
        parts = [TextPart(content)]
    calls = chat.get("tool_calls") if chat["role"] in _AGENT_ROLES else None
    if isinstance(calls, list):
        parts += [part_of_call(call) for call in calls]
    return tuple(parts) or (TextPart(""),)


def _marked_as_list(part: Part) -> Part:
    """`part` with a mark, which records that its content was a list with one item."""
    return replace(part, metadata={MARK: NO_DIFFERENCE, **part.metadata}) if isinstance(part, TextPart) else part
