"""Push configurations and notifications, cards, capabilities, extensions and versions, broken."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from a2a_sync import A2AApp, TaskState
from a2a_sync import operations as op
from a2a_sync import types as t
from a2a_sync.bindings.headers import NOTIFICATION_TOKEN
from a2a_sync.errors import (
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_sync.operations import Call, Endpoint
from a2a_sync.push.delivery import Delivery
from a2a_sync.push.notification import Notification, Notifications
from a2a_sync.server.activation import Activation
from a2a_sync.server.handler import RequestHandler
from tests.conformance.breaking import (
    Answer,
    Asked,
    answering,
    asking,
    calling,
    forgiving,
    replaced,
    with_requests,
    with_results,
)
from tests.conformance.ours import Variant
from tests.conformance.variants.operations import ignoring_owner
from tests.push.receiver import LOOPBACK

PUSH = (op.CREATE_PUSH_CONFIG, op.GET_PUSH_CONFIG, op.LIST_PUSH_CONFIGS, op.DELETE_PUSH_CONFIG)
NO_CONFIGS = t.ListTaskPushNotificationConfigsResponse()


def _raising(error: Exception) -> Callable[[Endpoint, Call], Any]:
    def instead(endpoint: Endpoint, call: Call) -> Any:
        raise error

    return instead


# -- webhooks -----------------------------------------------------------------------------------------------------------


def _gone_with_the_task(endpoint: Endpoint, call: Call) -> Any:
    if call.operation is op.GET_PUSH_CONFIG:
        task = endpoint(Call(op.GET_TASK, t.GetTaskRequest(id=call.request.task_id), call.context))
        if task.state.terminal:
            raise TaskNotFoundError("Push notification configuration not found")
    return endpoint(call)


def _once_only(endpoint: Endpoint, call: Call) -> Any:
    if call.operation is op.DELETE_PUSH_CONFIG:
        named = t.GetTaskPushNotificationConfigRequest(task_id=call.request.task_id, id=call.request.id)
        endpoint(Call(op.GET_PUSH_CONFIG, named, call.context))
    return endpoint(call)


def _kept(endpoint: Endpoint, call: Call) -> Any:
    return None if call.operation is op.DELETE_PUSH_CONFIG else endpoint(call)


def _one_webhook(post: Any) -> Any:
    """Only one webhook of a task is called."""
    first: dict[str, str] = {}

    def notification(self: Any, held: Any, number: int, body: bytes) -> Any:
        return post(self, held, number, body) if first.setdefault(held.task_id, held.id) == held.id else None

    return notification


def _bare(method: Any) -> Any:
    """The body is the task without a wrapper."""

    def of_entry(self: Any, webhook: Any, entry: Any) -> Notification:
        notification: Notification = method(self, webhook, entry)
        if notification.body is None:
            return notification
        return Notification(
            notification.number, json.dumps(next(iter(json.loads(notification.body).values()))).encode()
        )

    return of_entry


def notification_headers(change: Callable[[dict[str, str]], dict[str, str]]) -> Any:
    def make(headers: Any) -> Any:
        return lambda webhook, number: change(headers(webhook, number))

    return replaced("a2a_sync.push.delivery", "headers", make)


def _gives_up(method: Any) -> Any:
    return lambda self, held, refusal: method(self, held, replace(refusal, final=True))


def _fails_the_task(method: Any) -> Any:
    """A webhook that cannot be called fails its task."""

    def put_off(self: Any, held: Any, refusal: Any) -> Any:
        try:
            failed = t.TaskStatusUpdateEvent(status=t.TaskStatus(state=TaskState.FAILED))
            self.store.interrupt(held.owner, held.task_id, [failed])
        except Exception:
            pass
        return method(self, held, refusal)

    return put_off


def _unguarded(agent: Any, **options: Any) -> A2AApp:
    return A2AApp(agent, **{**options, "push": LOOPBACK if options.get("push") is True else options.get("push", False)})


def _any_url(asked: Asked) -> None:
    value, params = asked.value, asked.params
    creates = asked.is_for("CreateTaskPushNotificationConfig", "/pushNotificationConfigs")
    if creates and asked.environ["REQUEST_METHOD"] == "POST" and "url" not in params:
        given = {**params, "url": "https://hooks.example.com/"}
        asked.value = {**value, "params": given} if "jsonrpc" in value else given


# -- cards --------------------------------------------------------------------------------------------------------------


def changed_card(change: Callable[[dict[str, Any]], Any]) -> Any:
    """The public card is changed."""

    def whole(answer: Answer) -> None:
        if answer.is_card and answer.status == 200 and answer.value:
            value = answer.value
            change(value)
            answer.value = value

    return answering(whole)


def card_headers(change: Callable[[Answer], Any]) -> Any:
    return answering(lambda answer: change(answer) if answer.is_card else None)


def _interfaces(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Any:
    def within(card: dict[str, Any]) -> None:
        card["supportedInterfaces"] = change(card["supportedInterfaces"])

    return changed_card(within)


def _only_first_tag(asked: Asked) -> None:
    """Of a list of validators the first counts."""
    if "HTTP_IF_NONE_MATCH" in asked.environ:
        asked.environ["HTTP_IF_NONE_MATCH"] = asked.environ["HTTP_IF_NONE_MATCH"].partition(",")[0]


def _strong_tags(asked: Asked) -> None:
    given = asked.environ.get("HTTP_IF_NONE_MATCH", "")
    if given.startswith("W/"):
        del asked.environ["HTTP_IF_NONE_MATCH"]


def _unconditional(asked: Asked) -> None:
    asked.environ.pop("HTTP_IF_NONE_MATCH", None)


def _let_in(asked: Asked) -> None:
    if asked.is_for("GetExtendedAgentCard", "/extendedAgentCard"):
        asked.environ.setdefault("HTTP_AUTHORIZATION", "Bearer token-of-ada")


def _public_cache(answer: Answer) -> None:
    if answer.headers.get("Cache-Control", "").startswith(("private", "no-store")):
        answer.headers["Cache-Control"] = "public, max-age=300"


def _incomplete(card: Any) -> Any:
    return replace(card, skills=(), description="")


def _without_false(canonical: Any) -> Any:
    """What is false is left out of the canonical form."""

    def pruned(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: pruned(item) for name, item in value.items() if item is not False}
        return [pruned(item) for item in value] if isinstance(value, list) else value

    return lambda value: canonical(pruned(value))


def _unsorted(_: Any) -> Any:
    return lambda value: json.dumps(value, separators=(",", ":")).encode()


def _escaped(_: Any) -> Any:
    return lambda value: json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _tampered(card: dict[str, Any]) -> None:
    if "signatures" in card:
        card["description"] += "!"


def _without_kid(card: dict[str, Any]) -> None:
    for signature in card.get("signatures", []):
        text = signature["protected"]
        header = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        header.pop("kid", None)
        signature["protected"] = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")


# -- capabilities, extensions, versions ---------------------------------------------------------------------------------


def _refusing_unknown(endpoint: Endpoint, call: Call) -> Any:
    if any("suite" not in uri and "needed" not in uri for uri in call.context.extensions):
        raise ExtensionSupportRequiredError("No such extension")
    return endpoint(call)


def _echoing(endpoint: Endpoint, call: Call) -> Any:
    try:
        return endpoint(call)
    finally:
        if call.context.answer_headers is not None and call.context.extensions:
            call.context.answer_headers["A2A-Extensions"] = ", ".join(call.context.extensions)


def _no_echo(answer: Answer) -> None:
    answer.headers.pop("A2A-Extensions", None)


def _older(asked: Asked) -> None:
    given = asked.environ.get("HTTP_A2A_EXTENSIONS", "")
    if given:
        asked.environ["HTTP_A2A_EXTENSIONS"] = given.replace("/v2", "/v1").replace("/v9", "/v1")


def _version(change: Callable[[str], str]) -> Any:
    def whole(asked: Asked) -> None:
        asked.environ["HTTP_A2A_VERSION"] = change(asked.environ.get("HTTP_A2A_VERSION", ""))

    return asking(whole)


def _header_only(asked: Asked) -> None:
    asked.query = {name: value for name, value in asked.query.items() if name != "A2A-Version"}


def _without_versions(answer: Answer) -> None:
    value = answer.value
    if answer.error is not None and "VERSION_NOT_SUPPORTED" in json.dumps(value):
        value["error"]["message"] = "Version not supported"
        for name in ("data", "details"):
            for one in value["error"].get(name, ()):
                one.pop("metadata", None)
        answer.value = value


_etags = count()

BROKEN: dict[str, Variant] = {
    "configs without id": Variant(
        "V1-PUSHC-01",
        "a configuration has no id",
        app=with_results(lambda one: replace(one, id=""), op.CREATE_PUSH_CONFIG),
    ),
    "configs end with the task": Variant(
        "V1-PUSHC-02", "the configurations of a terminal task are deleted", app=calling(_gone_with_the_task)
    ),
    "no task no configs": Variant(
        "V1-PUSHC-03",
        "an unknown task has an empty list of configurations",
        app=forgiving(TaskNotFoundError, lambda endpoint, call: NO_CONFIGS, op.LIST_PUSH_CONFIGS),
    ),
    "configs of nothing": Variant(
        "V1-PUSHC-03",
        "a configuration for an unknown task is accepted",
        app=forgiving(TaskNotFoundError, lambda endpoint, call: replace(call.request, id="p-1"), op.CREATE_PUSH_CONFIG),
    ),
    "deleted from nothing": Variant(
        "V1-PUSHC-03",
        "a configuration of an unknown task can be deleted",
        app=forgiving(TaskNotFoundError, lambda endpoint, call: None, op.DELETE_PUSH_CONFIG),
    ),
    "configs without secrets": Variant(
        "V1-PUSHC-04",
        "a configuration is returned without its authentication",
        app=with_results(lambda one: replace(one, authentication=None), op.GET_PUSH_CONFIG),
    ),
    "any config": Variant(
        "V1-PUSHC-05",
        "an unknown id returns the first configuration",
        app=with_requests(lambda request: replace(request, id=""), op.GET_PUSH_CONFIG),
    ),
    "one config": Variant(
        "V1-PUSHC-06",
        "the list of configurations has one",
        app=with_results(lambda one: replace(one, configs=one.configs[-1:]), op.LIST_PUSH_CONFIGS),
    ),
    "configs stay": Variant("V1-PUSHC-07", "a deleted configuration remains", app=calling(_kept)),
    "deleted once": Variant("V1-PUSHC-08", "a second delete fails", app=calling(_once_only)),
    "no webhooks no list": Variant(
        "V1-PUSHC-09",
        "without push notifications the list of configurations is empty",
        app=forgiving(PushNotificationNotSupportedError, lambda endpoint, call: NO_CONFIGS, op.LIST_PUSH_CONFIGS),
    ),
    "unsupported webhooks": Variant(
        "V1-PUSHC-09",
        "without push notifications another error is returned",
        app=forgiving(PushNotificationNotSupportedError, _raising(UnsupportedOperationError()), *PUSH),
    ),
    "webhooks nowhere": Variant("V1-PUSHC-10", "a configuration needs no URL", wsgi=asking(_any_url)),
    "unguarded": Variant("V1-PUSHC-11", "webhooks in private networks are accepted", app=_unguarded),
    "one page of configs": Variant(
        "V1-PUSHC-12",
        "the list of configurations has no pages",
        app=with_requests(lambda request: replace(request, page_size=0), op.LIST_PUSH_CONFIGS),
    ),
    "one webhook": Variant(
        "V1-PUSHD-01", "of several webhooks one is called", inside=replaced(Delivery, "_post", _one_webhook)
    ),
    "bare credentials": Variant(
        "V1-PUSHD-02",
        "the scheme is missing from `Authorization`",
        inside=notification_headers(
            lambda notification: {
                n: v.rpartition(" ")[2] if n == "Authorization" else v for n, v in notification.items()
            }
        ),
    ),
    "bare notifications": Variant(
        "V1-PUSHD-03", "notifications are not wrapped", inside=replaced(Notifications, "of_entry", _bare)
    ),
    "plain notifications": Variant(
        "V1-PUSHD-04",
        "notifications have the media type `application/json`",
        inside=notification_headers(lambda notification: {**notification, "Content-Type": "application/json"}),
    ),
    "no retry": Variant(
        "V1-PUSHD-05", "a notification is not retried", inside=replaced(Delivery, "_retry_later", _gives_up)
    ),
    "no token": Variant(
        "V1-PUSHD-08",
        "notifications have no token",
        inside=notification_headers(
            lambda notification: {n: v for n, v in notification.items() if n != NOTIFICATION_TOKEN}
        ),
    ),
    "fatal webhooks": Variant(
        "V1-PUSHD-10",
        "a webhook that cannot be called fails its task",
        inside=replaced(Delivery, "_retry_later", _fails_the_task),
    ),
    "configs of others": Variant(
        "V1-PUSHD-11", "any caller with the id of a task reads its webhooks", app=ignoring_owner(op.LIST_PUSH_CONFIGS)
    ),
    "card elsewhere": Variant(
        "V1-CARD-01", "the card is at the path of 0.2", wsgi=card_headers(lambda answer: setattr(answer, "status", 404))
    ),
    "no output modes": Variant(
        "V1-CARD-02",
        "the card lacks `defaultOutputModes`",
        wsgi=changed_card(lambda card: card.pop("defaultOutputModes")),
    ),
    "no interfaces": Variant("V1-CARD-03", "the card lists no interface", wsgi=_interfaces(lambda _: [])),
    "wrong address": Variant(
        "V1-CARD-04",
        "the URL of HTTP+JSON is wrong",
        wsgi=_interfaces(
            lambda all: [
                {**one, "url": one["url"] + "/api/rest"} if one["protocolBinding"] == "HTTP+JSON" else one
                for one in all
            ]
        ),
    ),
    "undeclared": Variant(
        "V1-CARD-04",
        "a served binding is not declared",
        wsgi=_interfaces(lambda all: [one for one in all if one["protocolBinding"] != "HTTP+JSON"]),
    ),
    "patched": Variant(
        "V1-CARD-05",
        "the version has a patch number",
        wsgi=_interfaces(lambda all: [{**one, "protocolVersion": one["protocolVersion"] + ".0"} for one in all]),
    ),
    "superset": Variant(
        "V1-CARD-06",
        "a card of 1.0 has members of 0.3",
        wsgi=changed_card(lambda card: card.update(preferredTransport="JSONRPC")),
    ),
    "order lost": Variant("V1-CARD-07", "interfaces are in another order", wsgi=_interfaces(lambda all: all[::-1])),
    "uncached": Variant(
        "V1-CACHE-01",
        "the card has no `Cache-Control`",
        wsgi=card_headers(lambda answer: answer.headers.pop("Cache-Control", None)),
    ),
    "unstable": Variant(
        "V1-CACHE-02",
        "the ETag of a card changes with every request",
        wsgi=card_headers(lambda answer: answer.headers.set("ETag", f'"{next(_etags)}"')),
    ),
    "always whole": Variant("V1-CACHE-04", "a cached card is sent again", wsgi=asking(_unconditional)),
    "first validator": Variant(
        "V1-CACHE-04", "only the first of a list of ETags is compared", wsgi=asking(_only_first_tag)
    ),
    "strong validators": Variant("V1-CACHE-04", "a weak ETag does not match", wsgi=asking(_strong_tags)),
    "one validator": Variant(
        "V1-CACHE-05",
        "all cards have the same ETag",
        wsgi=card_headers(lambda answer: answer.headers.set("ETag", '"card"')),
    ),
    "card not there": Variant(
        "V1-XCARD-01",
        "an undeclared extended card is reported as not configured",
        app=forgiving(UnsupportedOperationError, _raising(ExtendedAgentCardNotConfiguredError()), op.GET_EXTENDED_CARD),
    ),
    "card not offered": Variant(
        "V1-XCARD-02",
        "a declared but missing extended card is reported as unsupported",
        app=forgiving(ExtendedAgentCardNotConfiguredError, _raising(UnsupportedOperationError()), op.GET_EXTENDED_CARD),
    ),
    "open extended card": Variant("V1-XCARD-03", "the extended card needs no credentials", wsgi=asking(_let_in)),
    "half a card": Variant(
        "V1-XCARD-04",
        "the extended card has only the additions",
        app=with_results(_incomplete, op.GET_EXTENDED_CARD),
    ),
    "card in caches": Variant(
        "V1-XCARD-05", "shared caches may store the extended card", wsgi=answering(_public_cache)
    ),
    "signed something else": Variant(
        "V1-SIGN-01", "a card is changed after it was signed", wsgi=changed_card(_tampered)
    ),
    "unsorted": Variant(
        "V1-SIGN-01",
        "the members of a signed card are not sorted",
        inside=replaced("a2a_sync.signing.canonical", "_jcs", _unsorted),
    ),
    "escaped": Variant(
        "V1-SIGN-01",
        "characters of a signed card are escaped",
        inside=replaced("a2a_sync.signing.canonical", "_jcs", _escaped),
    ),
    "false left out": Variant(
        "V1-SIGN-02",
        "members with the value false are not signed",
        inside=replaced("a2a_sync.signing.canonical", "_jcs", _without_false),
    ),
    "key not named": Variant("V1-SIGN-03", "the header of a signature has no key id", wsgi=changed_card(_without_kid)),
    "streams anyway": Variant(
        "V1-CAP-01",
        "an agent without streaming streams",
        inside=replaced(RequestHandler, "_check_streaming", lambda _: lambda self: None),
    ),
    "nothing required": Variant(
        "V1-EXT-01",
        "a required extension may be omitted",
        inside=replaced(Activation, "_check_required", lambda _: lambda *a: None),
    ),
    "unknown extensions refused": Variant(
        "V1-EXT-02", "an unknown extension is refused", app=calling(_refusing_unknown)
    ),
    "all activated": Variant("V1-EXT-03", "all requested extensions are reported as active", app=calling(_echoing)),
    "activated in silence": Variant("V1-EXT-03", "the active extensions are not returned", wsgi=answering(_no_echo)),
    "any version of it": Variant("V1-EXT-04", "another version of an extension is accepted", wsgi=asking(_older)),
    "any version": Variant(
        "V1-VER-02",
        "an unknown version selects the newest",
        wsgi=_version(lambda text: "1.0" if text == "99.0" else text),
    ),
    "next version": Variant(
        "V1-VER-02",
        "only the major number of a version is compared",
        wsgi=_version(lambda text: "1.0" if text.startswith("1.") else text),
    ),
    "newest by default": Variant(
        "V1-VER-03", "a request without a version gets the newest", wsgi=_version(lambda text: text or "1.0")
    ),
    "patches refused": Variant(
        "V1-VER-04", "a patch number is refused", wsgi=_version(lambda text: text if text.count(".") < 2 else "99.0")
    ),
    "header only": Variant("V1-VER-05", "the version in a query is ignored", wsgi=asking(_header_only)),
    "versions not listed": Variant(
        "V1-VER-06", "the error does not list the versions", wsgi=answering(_without_versions)
    ),
}
