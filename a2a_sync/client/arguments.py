"""Arguments of calls: the content of a message, and the options that all calls take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from a2a_sync.client.deadlines import check_seconds
from a2a_sync.types import (
    Content,
    Message,
    Metadata,
    Part,
    Role,
    SendMessageConfiguration,
    TaskPushNotificationConfig,
    to_parts,
)


def as_message(content: Content, *, task_id: str | None = None, context_id: str | None = None) -> Message:
    """A message of the user with this content; `task_id` and `context_id` replace those of a `Message`.

    Raises:
        TypeError: no message can be made of `content`.
        ValueError: there is no part.
    """
    message = content if isinstance(content, Message) else Message(role=Role.USER, parts=to_parts(content))
    _check_parts(message.parts)
    task_id = message.task_id if task_id is None else task_id
    context_id = message.context_id if context_id is None else context_id
    if (task_id, context_id) == (message.task_id, message.context_id):
        return message
    return replace(message, task_id=task_id, context_id=context_id)


def _check_parts(parts: Sequence[object]) -> None:
    if not parts:
        raise ValueError("a message needs at least one part")
    for part in parts:
        if not isinstance(part, Part):
            raise TypeError(f"the parts of a Message are TextPart, FilePart and DataPart; not {type(part).__name__}")


class CallOptions(TypedDict, total=False):
    """The options of every method that calls an agent.

    Parameters:
        timeout: seconds for the whole call, in place of the client's total limit.
        headers: HTTP headers that replace or extend those of the client; sent only to the same origin as `auth`.
        extensions: URIs of extensions to activate besides those of the client.
        tenant: the tenant to call, in place of the one that the card names. Protocol 0.3 has none.
    """

    timeout: float | None
    headers: Mapping[str, str]
    extensions: Sequence[str]
    tenant: str


class StreamOptions(CallOptions, total=False):
    """The options of `Client.stream`."""

    history_length: int | None
    metadata: Metadata | None
    accepted_output_modes: Sequence[str]
    push_config: str | TaskPushNotificationConfig | None
    idempotency_key: str | None


class SendOptions(StreamOptions, total=False):
    """The options of `Client.send`."""

    return_immediately: bool
    stream: bool


def check_options(options: CallOptions, task_id: str | None = None) -> None:
    """Check the options of a call, and the id of its task.

    Raises:
        TypeError: a key is none of those of `CallOptions`, ``timeout`` is no number, or `task_id` is no text.
        ValueError: ``timeout`` is negative.
    """
    if unknown := options.keys() - CallOptions.__optional_keys__:
        raise TypeError(
            f"unexpected argument {min(unknown)!r}; besides its own arguments (see its docstring) every call takes"
            f" {', '.join(CallOptions.__annotations__)}"
        )
    if task_id is not None and not isinstance(task_id, str):
        raise TypeError(f"task_id takes the id of a task, such as task.id; not {type(task_id).__name__}")
    check_seconds(options.get("timeout"))


def check_extensions(extensions: Sequence[str]) -> tuple[str, ...]:
    """`extensions` as a tuple. Raises `TypeError` for a single string."""
    if isinstance(extensions, str):
        raise TypeError("extensions takes a list of URIs, not one string")
    return tuple(extensions)


def as_push_config(webhook: str | TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    """`webhook` as a configuration; a string is the URL."""
    return TaskPushNotificationConfig(url=webhook) if isinstance(webhook, str) else webhook


def send_configuration(
    return_immediately: bool,
    history_length: int | None,
    accepted_output_modes: Sequence[str],
    push_config: str | TaskPushNotificationConfig | None,
) -> SendMessageConfiguration | None:
    """The configuration of a message with these options; None where all of them are defaults."""
    if isinstance(accepted_output_modes, str):
        raise TypeError("accepted_output_modes takes a list of media types, not one string")
    configuration = SendMessageConfiguration(
        accepted_output_modes=tuple(accepted_output_modes),
        task_push_notification_config=as_push_config(push_config) if push_config else None,
        history_length=history_length,
        return_immediately=return_immediately,
    )
    return None if configuration == SendMessageConfiguration() else configuration
