"""The receiver of push notifications: a webhook that authenticates the sender and returns what was posted as events.

A small WSGI application, and a function for views of a web framework. Any agent of protocol 1.0 or 0.3 can post to it; only
agents built on this library sign and number their notifications. It loads nothing of a server.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol
from wsgiref.types import StartResponse, WSGIEnvironment

from a2a_sync import jsontext
from a2a_sync.bindings.headers import NOTIFICATION_ID, NOTIFICATION_SIGNATURE, NOTIFICATION_TOKEN
from a2a_sync.codec import DecodeError, by_version
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.errors import A2AError, JSONParseError, StoreError, UnavailableError
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import JSON, AuthenticationInfo, StreamResponse, Task

__all__ = [
    "NotificationRefusedError",
    "PushNotification",
    "ReplayCache",
    "WebhookReceiver",
]

logger: Final = get_logger(__name__)

#: Names under which agents send the token of a webhook.
_TOKENS = (NOTIFICATION_TOKEN.lower(), "a2a-notification-token")
_MAX_TOKEN_LENGTH = 16 * 1024
#: Parsing a body of this size costs no more than its request. Of larger ones, the sender is known first, or they are parsed one at a
#: time: JSON may take twenty times its size of memory.
_SMALL_BODY = 4 * 1024
#: The id of a task, as most senders write it, and the last one; both in so many bytes at the start and at the end of a body.
_TASK_ID = re.compile(rb'"(?:taskId|task_id|id)"\s*:\s*"([^"\\]{1,256})"')
_LAST_TASK_ID = re.compile(rb"(?s:.*)" + _TASK_ID.pattern)
_SEARCHED_BYTES = 64 * 1024
#: Notifications that wait for `WebhookReceiver.notifications`, and the bytes of their bodies, claims and ids.
_MAX_WAITING = 10_000
_MAX_WAITING_BYTES = 64 * 1024 * 1024
_BUSY = "this notification is being processed; post it again later"
#: How much longer the mark of a notification that is being handled is kept than its key, in seconds.
_MARK_EXTRA = 5.0
#: Python before 3.13 has an older phrase.
_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {413: "Content Too Large"}


class NotificationRefusedError(A2AError):
    """A notification was refused. ``status`` is the HTTP status of the response; the message is for the sender."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class PushNotification:
    """A notification of a task: an event of 1.0, or the task itself (in 0.3, and the first one in 1.0).

    ``id`` is the same when it is posted again; empty where the agent sends none. ``claims`` are those of its signature.
    """

    event: StreamResponse
    task_id: str
    id: str = ""
    version: str = "1.0"
    claims: Mapping[str, JSON] = field(default_factory=dict)


class HeaderItems(Protocol):
    """The headers of a request: a mapping, or the ``Headers`` of Werkzeug, which is not a mapping."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Names, in any case, and values."""


class ReplayCache(Protocol):
    """The keys of accepted notifications, for receivers that refuse them a second time.

    A key is 64 hexadecimal digits. Methods are called from any thread, on the thread of the request; whatever they raise,
    the notification is refused with 503, and the agent posts it again later.
    """

    def add(self, key: str, ttl: float, *, evict: bool) -> bool:
        """Store `key` for `ttl` seconds; False where it is stored already. One atomic step.

        When the cache is full, the oldest keys added with `evict` may be evicted for one that is added with it; a key
        added without it stays for its `ttl`.

        Raises:
            StoreError: the cache is full, or cannot be written.
        """

    def discard(self, key: str) -> None:
        """Delete `key`, whose notification was not processed; an unknown key is ignored."""


class _Waiting(NamedTuple):
    """A notification that waits to be read: as JSON, because an event and claims may take twenty times as much memory."""

    body: bytes
    id: str
    claims: bytes


class WebhookReceiver:
    """Accepts notifications: ``gunicorn hooks:receiver``, or `receive` in a view of yours. Safe from many threads.

    At least one of `token`, `authentication` and `trusted_keys` is required, and all that are given must match.

    Parameters:
        token: the token of the push configuration, or a function of a task id that returns it, or None for unexpected tasks. A
            notification for which the function returns ``""`` is refused too.
        authentication: the credentials of the push configuration. A scheme without credentials is refused.
        trusted_keys: the keys of accepted signatures: the URL of a key set (https), a key set, a JWK, PEM text, keys by their names, or a list
            of these. Unsigned notifications are refused then. Needs the extra ``a2a-sync[signing]``.
        url: the URL of this webhook in the push configuration; a signature for another one is refused. Without it another
            webhook of the same agent could forward its own notifications to this one.
        issuer: the required issuer of signatures; None for any with one of the keys.
        max_age: the maximum age of an accepted signature, in seconds. Repeated notifications are detected for at least
            this time.
        on_notification: called with each notification, on the thread of the request. If it raises, the agent posts the
            notification again later. Without it, notifications are queued for `notifications`.
        max_body_bytes: the size of a notification. Larger ones than `Limits.max_body_bytes` are not buffered by the worker of
            `a2a_sync.gunicorn`: a slow sender then holds a thread.
        replay_cache_size: the number of notifications whose repetition is detected. A signed one is stored as long as
            its signature is valid: when the cache is full of signed ones, further notifications are refused (503) until
            the first one expires. Unsigned ones are evicted, the oldest first. At most this number, and at most 10,000 with
            64 MiB together, are queued for `notifications`; further ones are refused (503).
        replay_cache: a `ReplayCache` with its own size in place of the default one. By default each process has a cache
            in memory, so each process may accept a signed notification once; `a2a_sync.stores.SQLiteReplayCache` is
            shared by the processes of one machine. If the cache fails, notifications are refused (503).
        url_guard: the addresses that a key set may be read from; by default the host of its URL, over https.

    Raises:
        ValueError: there is nothing to check, or a key cannot be used.
        ImportError: `trusted_keys` without the extra.
    """

    def __init__(
        self,
        *,
        token: str | Callable[[str], str | None] | None = None,
        authentication: AuthenticationInfo | None = None,
        trusted_keys: Any = None,
        url: str = "",
        issuer: str | None = None,
        max_age: float = 300.0,
        on_notification: Callable[[PushNotification], object] | None = None,
        max_body_bytes: int = 10 * 1024 * 1024,
        replay_cache_size: int = 100_000,
        replay_cache: ReplayCache | None = None,
        url_guard: URLGuard | None = None,
    ) -> None:
        if not (token or authentication or trusted_keys):
            raise ValueError("a receiver needs something to check: give token=, authentication= or trusted_keys=")
        if authentication is not None and not (authentication.scheme.strip() and authentication.credentials.strip()):
            raise ValueError("authentication= without a scheme or credentials would accept every sender")
        self._token = token or None
        self._authentication = authentication
        self._signatures = None
        if trusted_keys:
            from a2a_sync.signing.jwt import Signatures

            self._signatures = Signatures(trusted_keys, url=url, issuer=issuer, window=max_age, guard=url_guard)
            if not (url or token or authentication):
                logger.warning("this receiver accepts notifications that were signed for other webhooks: set url=")
        self._max_body_bytes = max_body_bytes
        self._handle = on_notification
        self._validity = max_age if self._signatures is None else self._signatures.validity
        self._replay_cache_size = replay_cache_size
        self._shared_cache = replay_cache
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: what waits is the parent's, as are the locks."""
        self._queue: queue.Queue[_Waiting] = queue.Queue(min(self._replay_cache_size, _MAX_WAITING))
        self._queued_bytes = 0
        #: The keys of notifications that are being handled, and its lock.
        self._handling: set[str] = set()
        self._lock = threading.Lock()
        #: Held while a large body of an unknown sender is parsed.
        self._parsing = threading.Lock()
        cache = self._shared_cache
        self._replay_cache: ReplayCache = _MemoryReplayCache(self._replay_cache_size) if cache is None else cache

    # -- taking --

    def receive(self, headers: HeaderItems, body: bytes) -> PushNotification | None:
        """Check a posted notification and return it; None for a duplicate. Respond with success or the error's status.

        `headers` is a mapping or the header object of a web framework, such as ``request.headers`` of Flask and Django.
        Blocks while a key set is read.

        Raises:
            NotificationRefusedError: a check failed. The receiver does not record the notification.
        """
        headers = {name.lower(): value for name, value in headers.items()}
        notification = self._read(headers, self._check_sender(headers), body)
        return notification if self._is_new(notification) else None

    def forget(self, notification: PushNotification) -> None:
        """Discard the record of a notification whose processing failed; `receive` returns it again when it is repeated.

        Respond with an error.
        """
        if key := _key(notification):
            self._discard(key)

    def _discard(self, key: str) -> None:
        try:
            self._replay_cache.discard(key)
        except Exception:
            logger.exception("a notification that could not be processed stays in the replay cache")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI interface: answers a POST, at whatever path."""
        try:
            status, text = self._handle_post(environ)
        except NotificationRefusedError as refused:
            status, text = refused.status, str(refused)
        body = text.encode()
        headers = [("Content-Length", str(len(body)))] if status != 204 else []
        if status == 503:
            headers.append(("Retry-After", "5"))
        if status == 405:
            headers.append(("Allow", "POST"))
        start_response(f"{status} {_PHRASES[status]}", [*headers, ("Content-Type", "text/plain")] if body else headers)
        return [body] if body else []

    def _handle_post(self, environ: WSGIEnvironment) -> tuple[int, str]:
        if environ["REQUEST_METHOD"] != "POST":
            return 405, "notifications are posted"
        headers = {key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key[:5] == "HTTP_"}
        # Strangers do not get so far as to have a body read.
        claims = self._check_sender(headers)
        body = self._body(environ)
        notification = self._read(headers, claims, body)
        with self._marked(notification):
            return self._pass_on(notification, body) if self._is_new(notification) else (204, "")

    @contextmanager
    def _marked(self, notification: PushNotification) -> Iterator[None]:
        """Refuse repetitions meanwhile: a success would end them, and the notification would be lost if handling it fails."""
        key = _key(notification)
        with self._lock:
            if key in self._handling:
                raise NotificationRefusedError(503, _BUSY)
            if key:
                self._handling.add(key)
        try:
            with self._marked_for_all(key, evict=not notification.claims):
                yield
        finally:
            with self._lock:
                self._handling.discard(key)

    @contextmanager
    def _marked_for_all(self, key: str, *, evict: bool) -> Iterator[None]:
        """`_marked` for the processes of a shared cache. The mark of a killed process outlasts the key: then it is new again."""
        if not key or self._shared_cache is None:
            yield
            return
        mark = hashlib.sha256(f"handling {key}".encode()).hexdigest()
        if not self._add(mark, self._validity + _MARK_EXTRA, evict=evict):
            raise NotificationRefusedError(503, _BUSY)
        try:
            yield
        finally:
            self._discard(mark)

    def _pass_on(self, notification: PushNotification, body: bytes) -> tuple[int, str]:
        try:
            if self._handle is None:
                self._enqueue(_Waiting(body, notification.id, json.dumps(notification.claims).encode()))
            else:
                self._handle(notification)
        except queue.Full:
            self.forget(notification)
            return 503, "too much is waiting"
        except Exception:
            # It comes again: by then whatever is wrong may be right.
            self.forget(notification)
            logger.exception("a notification could not be processed", extra={"task_id": notification.task_id})
            return 500, "not taken"
        return 204, ""

    def _enqueue(self, waiting: _Waiting) -> None:
        size = sum(map(len, waiting))
        with self._lock:
            if self._queued_bytes and self._queued_bytes + size > _MAX_WAITING_BYTES:
                raise queue.Full
            self._queue.put_nowait(waiting)
            self._queued_bytes += size

    def _body(self, environ: WSGIEnvironment) -> bytes:
        length = environ.get("CONTENT_LENGTH") or ""
        if length and not (length.isascii() and length.isdigit() and len(length) < 16):
            raise NotificationRefusedError(400, "the length of the body is no number")
        # Without a length only a server that knows the end of the body can be read to it.
        most = int(length) if length else self._max_body_bytes + 1 if environ.get("wsgi.input_terminated") else 0
        if length and most > self._max_body_bytes:
            raise NotificationRefusedError(413, "too large")
        pieces, left = [], most
        while left and (piece := environ["wsgi.input"].read(min(left, 65536))):
            pieces.append(piece)
            left -= len(piece)
        if length and left:
            raise NotificationRefusedError(400, "the body ended early")
        return b"".join(pieces)

    def notifications(self, timeout: float | None = None) -> Iterator[PushNotification]:
        """The notifications that arrive over WSGI; ends if none arrives for `timeout` seconds. Without
        `on_notification`.

        For one thread, in the process that serves the receiver.
        """
        while True:
            try:
                waiting = self._queue.get(timeout=timeout)
            except queue.Empty:
                return
            with self._lock:
                self._queued_bytes -= sum(map(len, waiting))
            event, version = _decode(_parse(waiting.body))
            yield PushNotification(
                event=event, task_id=_task_id(event), id=waiting.id, version=version, claims=json.loads(waiting.claims)
            )

    # -- checks --

    def _check_sender(self, headers: Mapping[str, str]) -> Mapping[str, Any]:
        """Check the sender by the headers; returns the claims of its signature."""
        if self._authentication is not None:
            wanted = f"{self._authentication.scheme} {self._authentication.credentials}"
            if not _equal(_normalize_scheme(headers.get("authorization", "")), _normalize_scheme(wanted)):
                raise NotificationRefusedError(401, "the credentials are not those of this webhook")
        if isinstance(self._token, str):
            self._check_token(headers, self._token)
        return self._claims(headers) if self._signatures is not None else {}

    def _read(self, headers: Mapping[str, str], claims: Mapping[str, Any], body: bytes) -> PushNotification:
        """What the body says, if it is what its sender may say."""
        if self._signatures is not None and not _equal(
            str(claims.get("request_body_sha256", "")), hashlib.sha256(body).hexdigest()
        ):
            raise NotificationRefusedError(401, "the signature is of another body")
        if len(body) > self._max_body_bytes:
            raise NotificationRefusedError(413, "too large")
        with self._turn(headers, body):
            value = _parse(body)
        named = _named_task(value)
        token_of = None if isinstance(self._token, str) else self._token
        if token_of is not None:
            # Before the event is decoded, which takes longer than all of this.
            self._check_token(headers, token_of(named))
        event, version = _decode(value)
        task_id = _task_id(event)
        if token_of is not None and task_id != named:
            self._check_token(headers, token_of(task_id))
        own_id = headers.get(NOTIFICATION_ID.lower(), "")
        return PushNotification(event=event, task_id=task_id, id=own_id, version=version, claims=claims)

    @contextmanager
    def _turn(self, headers: Mapping[str, str], body: bytes) -> Iterator[None]:
        """The time to parse `body`: large bodies of unknown senders are parsed one at a time, and none of them waits on its thread."""
        if len(body) <= _SMALL_BODY or self._is_known(headers, body):
            yield
            return
        if not self._parsing.acquire(blocking=False):
            raise NotificationRefusedError(503, "too many large notifications at once; post again later")
        try:
            yield
        finally:
            self._parsing.release()

    def _is_known(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the sender was checked by its headers, or has the token of a task that `body` seems to be about.

        The token of the task that it is about is checked after parsing.
        """
        if self._signatures or self._authentication or self._token is None or isinstance(self._token, str):
            return True
        for task_id in _seeming_tasks(body):
            # These may be ids of anything else, for which a function of a program may raise.
            with suppress(Exception):
                if _has_token(headers, self._token(task_id)):
                    return True
        return False

    def _is_new(self, notification: PushNotification) -> bool:
        """It did not come before; from now on it did. What has neither an id nor a signature is always new."""
        key = _key(notification)
        return not key or self._add(key, self._validity, evict=not notification.claims)

    def _add(self, key: str, ttl: float, *, evict: bool) -> bool:
        try:
            return self._replay_cache.add(key, ttl, evict=evict)
        except Exception as failed:
            logger.warning("replay cache: %s", failed, exc_info=not isinstance(failed, StoreError))
            raise NotificationRefusedError(503, "the replay cache is full; post again later") from None

    def _check_token(self, headers: Mapping[str, str], wanted: str | None) -> None:
        if not _has_token(headers, wanted):
            raise NotificationRefusedError(401, "the token is not that of this webhook")

    def _claims(self, headers: Mapping[str, str]) -> Mapping[str, Any]:
        assert self._signatures is not None
        try:
            claims: Mapping[str, Any] = self._signatures.claims(_signature(headers))
        except UnavailableError:
            raise NotificationRefusedError(503, "the keys cannot be read now") from None
        except ValueError as wrong:
            raise NotificationRefusedError(401, f"the signature is not valid: {wrong}") from None
        if "jti" in claims and claims["jti"] != headers.get(NOTIFICATION_ID.lower(), ""):
            raise NotificationRefusedError(401, "the signature is of another notification")
        return claims


def _signature(headers: Mapping[str, str]) -> str:
    token = headers.get(NOTIFICATION_SIGNATURE.lower(), "")
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if not token and scheme.lower() == "bearer":
        token = bearer.strip()
    if not token or len(token) > _MAX_TOKEN_LENGTH:
        raise NotificationRefusedError(401, "the notification is not signed")
    return token


class _MemoryReplayCache:
    """A `ReplayCache` of one process. All keys of it have the same `ttl`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._expiry: OrderedDict[str, float] = OrderedDict()

    def add(self, key: str, ttl: float, *, evict: bool) -> bool:
        """See `ReplayCache.add`."""
        now = time.monotonic()
        with self._lock:
            while self._expiry and next(iter(self._expiry.values())) <= now:
                self._expiry.popitem(last=False)
            if key in self._expiry:
                return False
            if len(self._expiry) >= self._size:
                if not evict:
                    raise StoreError(f"replay_cache_size={self._size} notifications are still valid")
                self._expiry.popitem(last=False)
            self._expiry[key] = now + ttl
            return True

    def discard(self, key: str) -> None:
        """See `ReplayCache.discard`."""
        with self._lock:
            self._expiry.pop(key, None)


def _key(notification: PushNotification) -> str:
    """The key of a notification in the replay cache; empty without an id and a signature.

    Senders choose their ids, so the key contains the issuer and the task as well.
    """
    claims, own = notification.claims, notification.id
    if claims and not claims.get("jti"):
        # An unsigned id can be changed by a sender that repeats the notification.
        own = json.dumps(claims, sort_keys=True)
    if not own:
        return ""
    return hashlib.sha256(json.dumps([claims.get("iss", ""), notification.task_id, own]).encode()).hexdigest()


def _parse(body: bytes) -> Any:
    """The JSON in a body."""
    try:
        return jsontext.loads(
            body, max_depth=jsontext.MAX_EVENT_DEPTH, max_keys=jsontext.MAX_ANSWER_KEYS, max_values=None
        )
    except JSONParseError as error:
        raise NotificationRefusedError(400, f"the body is not JSON: {error.message}") from None


def _seeming_tasks(body: bytes) -> Iterator[str]:
    """The ids, two at most, of which one is probably that of the task, without parsing `body`.

    Most senders write it first. Where the members are sorted, it is the last id of a task: that of its status.
    """
    first = _TASK_ID.search(body, 0, _SEARCHED_BYTES)
    last = _LAST_TASK_ID.match(body, max(0, len(body) - _SEARCHED_BYTES))
    for task_id in dict.fromkeys(found[1] for found in (first, last) if found):
        yield task_id.decode(errors="replace")


def _named_task(value: Any) -> str:
    """The id of the task that an event seems to be about; ``""`` where it names none."""
    # Tasks of 0.3 have a kind; events of 1.0 have one member.
    event = next(iter(value.values()), None) if isinstance(value, dict) and "kind" not in value else value
    members = [event.get(name) for name in ("taskId", "task_id", "id")] if isinstance(event, dict) else []
    return next((member for member in members if isinstance(member, str)), "")


def _decode(value: Any) -> tuple[Any, str]:
    """The event of the JSON in a body, and the version that it is written in."""
    version = "0.3" if isinstance(value, dict) and "kind" in value else "1.0"
    try:
        event = by_version(version).load_event(value)
    except DecodeError as error:
        raise NotificationRefusedError(400, f"the body is no event: {error}") from None
    return event, version


def _task_id(event: Any) -> str:
    return str(event.id if isinstance(event, Task) else event.task_id)


def _has_token(headers: Mapping[str, str], wanted: str | None) -> bool:
    given = next((headers[name] for name in _TOKENS if name in headers), "")
    return wanted is not None and wanted != "" and _equal(given, wanted)


def _normalize_scheme(credentials: str) -> str:
    """`credentials` with the scheme in lower case."""
    scheme, _, rest = credentials.partition(" ")
    return f"{scheme.lower()} {rest.strip()}"


def _equal(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode(errors="surrogatepass"))
