"""Two versions at one endpoint, broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from a2a_sync import TaskArtifactUpdateEvent
from a2a_sync.operations import Call, Endpoint, StreamItem
from tests.conformance.breaking import (
    Answer,
    Asked,
    Stream,
    answering,
    asking,
    calling,
    changing_json,
    deep,
    replaced,
    result_of,
)
from tests.conformance.ours import Variant
from tests.conformance.variants.offers import card_headers, changed_card
from tests.conformance.variants.streams import Swapping


def _apart(endpoint: Endpoint, call: Call) -> Any:
    """Each version has tasks of its own."""
    if call.context.version == "0.3":
        call = replace(call, context=replace(call.context, owner="0.3"))
    return endpoint(call)


def _jumbled(endpoint: Endpoint, call: Call) -> Any:
    result = endpoint(call)
    return Swapping(result) if call.operation.streaming and call.context.version == "0.3" else result


class _Thin(Stream):
    """Chunks get lost."""

    def items(self, item: StreamItem) -> list[StreamItem]:
        lost = isinstance(item.event, TaskArtifactUpdateEvent) and item.event.append
        return [] if lost else [item]


def _thin(endpoint: Endpoint, call: Call) -> Any:
    result = endpoint(call)
    return _Thin(result) if call.operation.streaming and call.context.version == "0.3" else result


def _by_grammar(asked: Asked) -> None:
    """What a header says of the version does not count."""
    value = asked.value
    method = str(value.get("method", "")) if isinstance(value, dict) else ""
    if method:
        asked.environ["HTTP_A2A_VERSION"] = "0.3" if "/" in method else "1.0"


def only(version: str) -> Any:
    """Everything is written in one version."""
    return lambda by_version: lambda _: by_version(version)


def _unvaried(answer: Answer) -> None:
    answer.headers.pop("Vary", None)


def _one_card(asked: Asked) -> None:
    if "/.well-known/" in asked.environ["PATH_INFO"]:
        asked.environ.pop("HTTP_A2A_VERSION", None)


def _new_header(answer: Answer) -> None:
    if "X-A2A-Extensions" in answer.headers:
        answer.headers["A2A-Extensions"] = answer.headers.pop("X-A2A-Extensions")


def _old_names(members: dict[str, Any]) -> dict[str, Any]:
    """A file loses its name on the way."""
    return {n: v for n, v in members.items() if n not in ("name", "filename")}


def _unwrapped(members: dict[str, Any]) -> dict[str, Any]:
    data = members.get("data")
    if isinstance(data, dict) and set(data) == {"value"}:
        metadata = {n: v for n, v in members.get("metadata", {}).items() if n != "data_part_compat"}
        return {**members, "data": data["value"], "metadata": metadata}
    return members


def _compat_left(members: dict[str, Any]) -> dict[str, Any]:
    """Wrapped data is not recognised coming in."""
    metadata = members.get("metadata")
    if isinstance(metadata, dict) and "data_part_compat" in metadata:
        return {**members, "metadata": {n: v for n, v in metadata.items() if n != "data_part_compat"}}
    return members


BROKEN: dict[str, Variant] = {
    "no version no answer": Variant(
        "DUAL-01",
        "a request without a version is refused",
        wsgi=asking(lambda asked: asked.environ.setdefault("HTTP_A2A_VERSION", "1.0")),
    ),
    "answered as 1.0": Variant(
        "DUAL-01",
        "requests of 0.3 are answered as in 1.0",
        wsgi=changing_json(
            result_of(lambda one: {"task": {n: v for n, v in one.items() if n != "kind"}} if one.get("kind") else one)
        ),
    ),
    "kinds for all": Variant(
        "DUAL-02",
        "answers of 1.0 have a `kind`",
        wsgi=changing_json(deep(lambda members: {"kind": "task", **members} if "status" in members else members)),
    ),
    "final for all": Variant(
        "DUAL-02",
        "events of 1.0 have `final`",
        wsgi=changing_json(
            deep(lambda members: {"final": True, **members} if {"status", "taskId"} <= members.keys() else members)
        ),
    ),
    "tasks apart": Variant("DUAL-03", "each version has separate tasks", app=calling(_apart)),
    "other order": Variant("DUAL-04", "0.3 gets the events in another order", app=calling(_jumbled)),
    "fewer events": Variant("DUAL-04", "0.3 gets fewer events", app=calling(_thin)),
    "header unread": Variant("DUAL-05", "a version that contradicts the method is ignored", wsgi=asking(_by_grammar)),
    "old webhooks": Variant(
        "DUAL-06",
        "all notifications are in 0.3",
        inside=replaced("a2a_sync.push.notification", "by_version", only("0.3")),
    ),
    "new webhooks": Variant(
        "DUAL-06",
        "all notifications are in 1.0",
        inside=replaced("a2a_sync.push.notification", "by_version", only("1.0")),
    ),
    "new card only": Variant(
        "DUAL-07",
        "the card has no members of 0.3",
        wsgi=changed_card(
            lambda card: [card.pop(name, None) for name in ("url", "preferredTransport", "protocolVersion")]
        ),
    ),
    "unvaried": Variant("DUAL-07", "the card has no Vary header for the version", wsgi=card_headers(_unvaried)),
    "one card": Variant("DUAL-07", "a request with a version gets the combined card", wsgi=asking(_one_card)),
    "any data": Variant(
        "DUAL-08", "data that is not an object is sent to 0.3 unwrapped", wsgi=changing_json(deep(_unwrapped))
    ),
    "wrapped permanently": Variant(
        "DUAL-08",
        "wrapped data from 0.3 is not unwrapped",
        wsgi=asking(
            lambda asked: setattr(asked, "value", deep(_compat_left)(asked.value)) if asked.value is not None else None
        ),
    ),
    "one header": Variant("DUAL-09", "responses of 0.3 have the header name of 1.0", wsgi=answering(_new_header)),
    "names lost": Variant(
        "DUAL-11", "files lose their names between the versions", wsgi=changing_json(deep(_old_names))
    ),
}
