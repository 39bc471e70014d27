"""The client, broken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from a2a_sync import Client, WebhookReceiver
from a2a_sync import operations as op
from a2a_sync.bindings.sse import BlockSource
from a2a_sync.client.cards import CacheEntry, CardTrust
from a2a_sync.client.endpoint import WireEndpoint
from a2a_sync.client.http import HttpResponse
from a2a_sync.client.jsonrpc import JsonRpcEndpoint
from a2a_sync.client.link import Link
from a2a_sync.client.stream import TaskStream
from a2a_sync.errors import AgentError, HTTPStatusError, VersionNotSupportedError
from a2a_sync.lifecycle import ArtifactFold
from a2a_sync.operations import Call, Endpoint
from a2a_sync.webhooks import NotificationRefusedError, _MemoryReplayCache
from tests.conformance.breaking import around_calls, deep, posting, replaced
from tests.conformance.ours import Variant
from tests.conformance.variants.encoding import snake


def _headers(change: Callable[[dict[str, str]], Any]) -> Callable[..., Client]:
    """The headers of requests for anything but a card are changed."""

    def asked(request: dict[str, Any]) -> None:
        if "/.well-known/" not in request["url"]:
            change(request["headers"])

    return posting(asked)


def _body(change: Callable[[Any], Any]) -> Callable[..., Client]:
    def asked(request: dict[str, Any]) -> None:
        data = request.get("data")
        if data is not None:
            body = data if isinstance(data, bytes) else b"".join(data)
            request["data"] = json.dumps(change(json.loads(body))).encode()

    return posting(asked)


def _no_version_in_streams(request: dict[str, Any]) -> None:
    if "event-stream" in request["headers"].get("Accept", "") or b"Stream" in _data(request):
        request["headers"].pop("A2A-Version", None)


def _data(request: dict[str, Any]) -> bytes:
    data = request.get("data")
    if data is None:
        return b""
    if not isinstance(data, bytes):
        data = request["data"] = b"".join(data)
    return bytes(data)


def _with_options(**options: Any) -> Callable[..., Client]:
    return lambda target, **given: Client(target, **{**given, **options})


def _without_options(*names: str) -> Callable[..., Client]:
    return lambda target, **given: Client(target, **{n: v for n, v in given.items() if n not in names})


def _falling_back(target: Any, **options: Any) -> Client:
    """Where an agent does not take the version, the older one is tried."""
    older: list[Client] = []

    def fault(endpoint: Endpoint, call: Call) -> Any:
        try:
            return endpoint(call)
        except VersionNotSupportedError:
            if not older:
                older.append(Client(target, **{**options, "protocol_version": "0.3"}))
            link = older[0]._connect(older[0]._deadline(None))
            return link.endpoint(replace(call, context=replace(call.context, version="0.3")))

    return around_calls(fault)(target, **options)


def _last(usable: Any) -> Any:
    return lambda card, wanted: usable(card, wanted)[::-1]


def _first_of_all(usable: Any) -> Any:
    def chosen(card: Any, wanted: Any) -> Any:
        first = card.supported_interfaces[0]
        if first.protocol_binding.upper() not in ("JSONRPC", "HTTP+JSON"):
            raise ValueError(f"unknown binding {first.protocol_binding}")
        return usable(card, wanted)

    return chosen


def _without_tenant(call_of: Any) -> Any:
    return lambda self, *arguments, **options: call_of(replace(self, tenant=""), *arguments, **options)


def _empty_tenant(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("params"), dict):
        return {**value, "params": {"tenant": "", **value["params"]}}
    return value


def _unverified(request: dict[str, Any]) -> None:
    request["verify"] = False


def _strict(load: Any) -> Any:
    def strictly(body: bytes, place: str, check: Any) -> Any:
        value = json.loads(body)
        known = {
            "name description version supportedInterfaces capabilities defaultInputModes defaultOutputModes skills provider"
            " documentationUrl securitySchemes securityRequirements signatures iconUrl"
        }
        names = set(" ".join(known).split())
        return "unknown members" if isinstance(value, dict) and value.keys() - names else load(body, place, check)

    return strictly


def _by_status_alone(error: Any) -> Any:
    """The reason of an error is not read."""

    def load(value: Any, status: int, codec: Any) -> Any:
        return error({"error": {**value["error"], "details": []}}, status, codec)

    return load


def _generic(endpoint: Endpoint, call: Call) -> Any:
    try:
        return endpoint(call)
    except AgentError as error:
        raise AgentError(error.message) from None


def _by_status(read: Any) -> Any:
    """What does not have status 200 is no answer of JSON-RPC."""

    def answer(self: Any, body: bytes, status: int) -> Any:
        if status != 200:
            raise HTTPStatusError(f"HTTP {status}", status_code=status, phase="send", agent="")
        return read(self, body, status)

    return answer


def _in_the_query(request: dict[str, Any]) -> None:
    auth = request.get("auth")
    token = getattr(auth, "_token", None)
    if token is not None:
        request["auth"] = None
        request["url"] += ("&" if "?" in request["url"] else "?") + f"access_token={token()}"


def _no_lone_cr(normalise: Any) -> Any:
    return lambda self, data: data.replace(b"\r\n", b"\n")


def _lines_lost(cut: Any) -> Any:
    """Of an event with several lines of data the last one counts."""

    def blocks(self: Any, data: bytes) -> Any:
        for block in cut(self, data):
            lines = block.split(b"\n")
            data_lines = [line for line in lines if line.startswith(b"data")]
            yield b"\n".join([line for line in lines if line not in data_lines[:-1]])

    return blocks


def _comments_too(cut: Any) -> Any:
    def blocks(self: Any, data: bytes) -> Any:
        for block in cut(self, data):
            yield re.sub(rb"(?m)^:", b"data:", block)

    return blocks


def _bom_kept(iterate: Any) -> Any:
    def blocks(self: Any) -> Any:
        while more := self._read():
            yield from self._cut(more)
        yield from self._finish()

    return blocks


def _decoded_early(init: Any) -> Any:
    """Each piece that comes is text by itself."""

    def with_text(self: Any, read: Any, **options: Any) -> None:
        init(self, lambda: read().decode("utf-8", "replace").encode(), **options)

    return with_text


def _always_new(apply: Any) -> Any:
    return lambda self, event: apply(self, replace(event, append=False))


def _never_new(apply: Any) -> Any:
    return lambda self, event: apply(self, replace(event, append=event.artifact.artifact_id in self))


def _deaf(step: Any) -> Any:
    """An error within a stream is its end."""

    def next_event(self: Any) -> Any:
        try:
            return step(self)
        except AgentError:
            raise StopIteration from None

    return next_event


def _one_page(iterate: Any) -> Any:
    def tasks(self: Any, **filters: Any) -> Any:
        yield from self.list_tasks(**filters).tasks

    return tasks


def _until_empty(iterate: Any) -> Any:
    """Pages are asked for until one has no token at all."""

    def tasks(self: Any, **filters: Any) -> Any:
        for _ in range(20):
            page = self.list_tasks(**filters)
            yield from page.tasks
            filters["page_token"] = page.next_page_token

    return tasks


def _until_no_tasks(iterate: Any) -> Any:
    """A page without tasks is taken for the last one."""

    def tasks(self: Any, **filters: Any) -> Any:
        while True:
            page = self.list_tasks(**filters)
            yield from page.tasks
            if not page.tasks or not page.next_page_token:
                return
            filters["page_token"] = page.next_page_token

    return tasks


def _message(**members: Any) -> Callable[..., Client]:
    def within(found: dict[str, Any]) -> dict[str, Any]:
        return {**members, **found} if "messageId" in found else found

    return _body(deep(within))


def _same_ids(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "messageId": "1"} if "messageId" in found else found


def _nulls(found: dict[str, Any]) -> dict[str, Any]:
    return {"contextId": None, "taskId": None, **found} if "messageId" in found else found


def _two_contents(found: dict[str, Any]) -> dict[str, Any]:
    return {"url": "", **found} if "text" in found else found


def _raw_path(request: dict[str, Any]) -> None:
    from urllib.parse import unquote

    request["url"] = unquote(request["url"]).replace(" ", "%20")


def _snake_query(request: dict[str, Any]) -> None:
    head, mark, query = request["url"].partition("?")
    request["url"] = head + mark + snake(query)


def _only_200(ok: Any) -> Any:
    return property(lambda self: self.status == 200)


def _only_json(read: Any) -> Any:
    """Another media type is no answer."""

    def result(self: Any, answer: Any, body: bytes) -> Any:
        if answer.ok and body and answer.content_type != "application/json":
            raise answer.status_error()
        return read(self, answer, body)

    return result


def _kept_card(method: Any) -> Any:
    """The extended card is returned and not cached."""

    def card(self: Any, **options: Any) -> Any:
        link = self._link
        try:
            return method(self, **options)
        finally:
            self._link = link

    return card


def _unchecked(method: Any) -> Any:
    def card(self: Any, **options: Any) -> Any:
        from a2a_sync.types import GetExtendedAgentCardRequest

        link, deadline = self._begin(options)
        return link.call(op.GET_EXTENDED_CARD, GetExtendedAgentCardRequest(), deadline)

    return card


def _insisting(_: Any) -> Any:
    return property(lambda self: True)


def _half_checked(_: Any) -> Any:
    def sender(self: Any, headers: Any) -> Any:
        if isinstance(self._token, str):
            self._check_token(headers, self._token)
        return {}

    return sender


def _only_new(decode: Any) -> Any:
    def event(value: Any) -> Any:
        if isinstance(value, dict) and "kind" in value:
            raise NotificationRefusedError(400, "no event")
        return decode(value)

    return event


def _unbounded(make: Any) -> Any:
    return lambda self, **options: make(self, **{**options, "max_body_bytes": 10**9, "replay_cache_size": 10**6})


BROKEN: dict[str, Variant] = {
    "no version": Variant(
        "V1-CVER-01", "requests have no version", client=_headers(lambda headers: headers.pop("A2A-Version", None))
    ),
    "streams without version": Variant(
        "V1-CVER-01", "requests for streams have no version", client=posting(_no_version_in_streams)
    ),
    "whole version": Variant(
        "V1-CVER-02",
        "the version has a patch number",
        client=_headers(lambda headers: headers.update({"A2A-Version": headers["A2A-Version"] + ".0"})),
    ),
    "newest version": Variant(
        "V1-CVER-02",
        "the version is that of the client, not that of the interface",
        client=_headers(lambda headers: headers.update({"A2A-Version": "1.0"})),
    ),
    "no choice": Variant(
        "V1-CVER-03", "the user's choice is ignored", client=_without_options("protocol_version", "protocol_binding")
    ),
    "falls back": Variant("V1-CVER-04", "the client falls back to the older version", client=_falling_back),
    "last interface": Variant(
        "V1-CSEL-01",
        "the last interface of the card is used",
        inside=replaced("a2a_sync.client.link", "usable_interfaces", _last),
    ),
    "tenant dropped": Variant(
        "V1-CSEL-02", "the tenant of the card is not sent", inside=replaced(Link, "call", _without_tenant)
    ),
    "empty tenant": Variant("V1-CSEL-02", "an absent tenant is sent as an empty one", client=_body(_empty_tenant)),
    "one interface": Variant(
        "V1-CSEL-03",
        "no other interface is tried after a refused connection",
        inside=replaced("a2a_sync.client.link", "fallback_interfaces", lambda _: lambda first, others: []),
    ),
    "unknown bindings": Variant(
        "V1-CSEL-04",
        "an unknown binding is an error",
        inside=replaced("a2a_sync.client.link", "usable_interfaces", _first_of_all),
    ),
    "any certificate": Variant("V1-CSEL-05", "certificates are not verified", client=posting(_unverified)),
    "never old": Variant(
        "V1-CCARD-01",
        "a card is cached without a limit",
        inside=replaced("a2a_sync.client.cards", "_max_age", lambda _: lambda control: None),
    ),
    "always whole cards": Variant(
        "V1-CCARD-01",
        "an expired card is requested without its ETag",
        client=posting(lambda request: request["headers"].pop("If-None-Match", None)),
    ),
    "never kept": Variant(
        "V1-CCARD-01",
        "a card is requested with every call",
        inside=replaced(
            CacheEntry,
            "from_headers",
            lambda make: classmethod(lambda cls, url, headers: make(url, headers)._replace(expires_at=0.0)),
        ),
    ),
    "public card stays": Variant(
        "V1-CCARD-02",
        "the extended card is returned and not cached",
        inside=replaced(Client, "extended_card", _kept_card),
    ),
    "any signature": Variant("V1-CCARD-03", "signatures are not verified", client=_without_options("card_verifier")),
    "extended cards unchecked": Variant(
        "V1-CCARD-03",
        "the signature of the extended card is not verified",
        inside=replaced(CardTrust, "verify_result", lambda _: lambda *a: None),
    ),
    "capabilities unread": Variant(
        "V1-CCARD-05", "undeclared features are requested", inside=replaced(Client, "extended_card", _unchecked)
    ),
    "always streams": Variant(
        "V1-CCARD-05",
        "streams are requested from agents without streaming",
        inside=replaced(Link, "streaming", _insisting),
    ),
    "strict cards": Variant(
        "V1-CCARD-06",
        "unknown members of a card are errors",
        inside=replaced("a2a_sync.client.cards", "read_card", _strict),
    ),
    "one error": Variant("V1-CERR-01", "all errors have the same class", client=around_calls(_generic)),
    "reasons unread": Variant(
        "V1-CERR-01",
        "errors over HTTP+JSON are mapped by status only",
        inside=replaced("a2a_sync.bindings.http_json", "_error", _by_status_alone),
    ),
    "status counts": Variant(
        "V1-CERR-02",
        "a JSON-RPC error with an HTTP error status is not parsed",
        inside=replaced(JsonRpcEndpoint, "_read_answer", _by_status),
    ),
    "tokens in queries": Variant("V1-CERR-03", "tokens are sent in the URL", client=posting(_in_the_query)),
    "no lone CR": Variant(
        "V1-CSTR-01", "a lone CR does not end a line", inside=replaced(BlockSource, "_normalise", _no_lone_cr)
    ),
    "last line": Variant(
        "V1-CSTR-01", "only the last of several data lines is used", inside=replaced(BlockSource, "_cut", _lines_lost)
    ),
    "comments": Variant(
        "V1-CSTR-01", "comments are parsed as data", inside=replaced(BlockSource, "_cut", _comments_too)
    ),
    "byte order": Variant(
        "V1-CSTR-01", "a byte order mark is kept", inside=replaced(BlockSource, "__iter__", _bom_kept)
    ),
    "split characters": Variant(
        "V1-CSTR-01",
        "characters split over two chunks are dropped",
        inside=replaced(BlockSource, "__init__", _decoded_early),
    ),
    "errors unheard": Variant(
        "V1-CSTR-02",
        "an error within a stream ends it without an exception",
        inside=replaced(TaskStream, "__next__", _deaf),
    ),
    "pieces replace": Variant(
        "V1-CSTR-03", "each chunk replaces the artifact", inside=replaced(ArtifactFold, "apply", _always_new)
    ),
    "pieces add up": Variant(
        "V1-CSTR-03", "a replaced artifact is appended", inside=replaced(ArtifactFold, "apply", _never_new)
    ),
    "gives up": Variant("V1-CSTR-04", "a cut stream is not resumed", client=_with_options(retry=None)),
    "one page": Variant("V1-CLIST-01", "only the first page is read", inside=replaced(Client, "iter_tasks", _one_page)),
    "no last page": Variant(
        "V1-CLIST-01", "an empty token is requested as a page", inside=replaced(Client, "iter_tasks", _until_empty)
    ),
    "empty page": Variant(
        "V1-CLIST-01", "an empty page ends the list", inside=replaced(Client, "iter_tasks", _until_no_tasks)
    ),
    "contexts invented": Variant("V1-CMSG-01", "the client generates context ids", client=_message(contextId="c-1")),
    "one message id": Variant("V1-CMSG-01", "all messages have one id", client=_body(deep(_same_ids))),
    "snake case sent": Variant(
        "V1-CMSG-02",
        "members have snake_case names",
        client=_body(deep(lambda members: {snake(name): value for name, value in members.items()})),
    ),
    "nulls sent": Variant("V1-CMSG-02", "absent members are sent as null", client=_body(deep(_nulls))),
    "two contents sent": Variant("V1-CMSG-02", "parts have every content", client=_body(deep(_two_contents))),
    "extensions kept": Variant(
        "V1-CMSG-03",
        "the requested extensions are not sent",
        client=_headers(lambda headers: headers.pop("A2A-Extensions", None)),
    ),
    "raw paths": Variant("V1-CREST-01", "ids are not encoded in paths", client=posting(_raw_path)),
    "snake queries": Variant("V1-CREST-01", "query names are snake_case", client=posting(_snake_query)),
    "only 200": Variant("V1-CREST-02", "a 201 or 204 is an error", inside=replaced(HttpResponse, "ok", _only_200)),
    "only JSON": Variant(
        "V1-CREST-02",
        "`application/a2a+json` is refused",
        inside=replaced(WireEndpoint, "_result", _only_json),
    ),
    "unauthenticated posts": Variant(
        "V1-HOOK-02",
        "a webhook's token is checked and its credentials are not",
        inside=replaced(WebhookReceiver, "_check_sender", _half_checked),
    ),
    "tasks unexpected": Variant(
        "V1-HOOK-03",
        "a receiver accepts any task",
        inside=replaced(WebhookReceiver, "_check_token", lambda _: lambda *a: None),
    ),
    "repeated, delivered twice": Variant(
        "V1-HOOK-04",
        "a repeated notification is delivered twice",
        inside=replaced(_MemoryReplayCache, "add", lambda _: lambda *a, **options: True),
    ),
    "notifications of 1.0": Variant(
        "V1-HOOK-05",
        "a receiver does not parse tasks of 0.3",
        inside=replaced("a2a_sync.webhooks", "_decode", _only_new),
    ),
    "unbounded webhooks": Variant(
        "V1-HOOK-06",
        "a receiver has no limits",
        inside=replaced(WebhookReceiver, "__init__", _unbounded),
    ),
}
