"""The four operations on push configurations, and the one that comes with a send: checks, then the store (spec 3.1.7-3.1.10).

Delivery is the business of `delivery` and `outbox`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from a2a_sync import operations as op
from a2a_sync.errors import (
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsafeURLError,
)
from a2a_sync.operations import CallContext, Webhook
from a2a_sync.push.options import PushOptions
from a2a_sync.stores.base import Owner, StoredWebhook, TooManyWebhooks, Webhooks
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import (
    WEBHOOK_DISABLED,
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
    new_id,
)

logger: Final = get_logger(__name__)

#: The longest id, token and credentials, in characters.
_MAX_ID_LENGTH = 255
_MAX_SECRET_LENGTH = 8192
_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_MAX_SCHEMES = 10


class PushConfigs:
    """The operations on push configurations. Each takes the owner of the task first.

    `on_set` is called with owner and task id after `create`; a configuration that comes with a send is set when its run begins.

    Raises (from every operation):
        TaskNotFoundError: there is no such task, or no such configuration of it, or it is of another owner.
        InvalidParamsError: the request is invalid.
    """

    def __init__(self, webhooks: Webhooks, options: PushOptions, *, on_set: Callable[[Owner, str], None]) -> None:
        self._webhooks = webhooks
        self._guard = options.url_guard
        self._on_set = on_set
        self._max_configs = options.max_configs
        self.methods: Mapping[op.AnyOperation, Callable[[Owner, Any, CallContext], Any]] = {
            op.CREATE_PUSH_CONFIG: self.create,
            op.GET_PUSH_CONFIG: self.get,
            op.LIST_PUSH_CONFIGS: self.list,
            op.DELETE_PUSH_CONFIG: self.delete,
        }

    def create(
        self, owner: Owner, request: TaskPushNotificationConfig, context: CallContext
    ) -> TaskPushNotificationConfig:
        """CreateTaskPushNotificationConfig (spec 3.1.7): added to the task, or replaces the one with its id."""
        if not request.task_id:
            raise InvalidParamsError.at("taskId", "is required")
        self.check(request)
        config = replace(request, id=request.id or new_id(), metadata={})
        try:
            self._webhooks.put(owner, Webhook(config, context.version), most=self._max_configs)
        except TooManyWebhooks:
            raise self._too_many() from None
        self._on_set(owner, config.task_id)
        return config

    def get(
        self, owner: Owner, request: GetTaskPushNotificationConfigRequest, context: CallContext
    ) -> TaskPushNotificationConfig:
        """GetTaskPushNotificationConfig (spec 3.1.8); without an id the first one of the task."""
        for webhook in self._webhooks.of_task(owner, request.task_id):
            if request.id in ("", webhook.id):
                return _as_config(webhook)
        raise TaskNotFoundError("Push notification configuration not found")

    def list(
        self, owner: Owner, request: ListTaskPushNotificationConfigsRequest, context: CallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """ListTaskPushNotificationConfigs (spec 3.1.9): in the order of their creation; all of them without a page size."""
        if request.page_size < 0:
            raise InvalidParamsError.at("pageSize", "must not be negative")
        after = _read_page_token(request.page_token)
        found = [known for known in self._webhooks.of_task(owner, request.task_id) if known.number > after]
        page = found[: request.page_size or None]
        return ListTaskPushNotificationConfigsResponse(
            configs=tuple(map(_as_config, page)),
            next_page_token=str(page[-1].number) if len(page) < len(found) else "",
        )

    def delete(self, owner: Owner, request: DeleteTaskPushNotificationConfigRequest, context: CallContext) -> None:
        """DeleteTaskPushNotificationConfig (spec 3.1.10). Idempotent."""
        self._webhooks.delete(owner, request.task_id, request.id)

    # -- with a send --

    def of_send(
        self, owner: Owner, config: TaskPushNotificationConfig, context: CallContext, task_id: str, *, create: bool
    ) -> Webhook:
        """The webhook in a send on `task_id`, after `check`. Without an id it gets that of the task.

        So a client that names its webhook in each message of a conversation gets each notification once.
        """
        config = replace(config, id=config.id or task_id, task_id=task_id, tenant=owner.tenant, metadata={})
        if not create:
            self.check_number(owner, config)
        return Webhook(config, context.version)

    def check_number(self, owner: Owner, config: TaskPushNotificationConfig) -> None:
        """Check that the task of `config` may have it: it replaces another one, or is not one too many."""
        known = {stored.id for stored in self._webhooks.of_task(owner, config.task_id)}
        if config.id not in known and len(known) >= self._max_configs:
            raise self._too_many()

    # -- checks --

    def check(self, config: TaskPushNotificationConfig, at: str = "") -> None:
        """Check that a configuration can be stored and used; `at` is the path of the configuration in the request."""
        try:
            self._guard.check(config.url)
        except UnsafeURLError as refused:
            logger.warning("refused a webhook: its URL %s%s", refused, refused.hint and f" ({refused.hint})")
            raise InvalidParamsError.at(f"{at}url", str(refused)) from None
        if len(config.id) > _MAX_ID_LENGTH or not config.id.isprintable():
            raise InvalidParamsError.at(f"{at}id", f"must be at most {_MAX_ID_LENGTH} printable characters")
        _check_secret(config.token, f"{at}token")
        if config.authentication is not None:
            _check_authentication(config.authentication, f"{at}authentication")

    def _too_many(self) -> InvalidParamsError:
        return InvalidParamsError(
            f"A task has at most {self._max_configs} push notification configurations: delete one first"
        )


class NoPushConfigs:
    """The operations of an agent without push notifications: all are refused (spec 3.3.4)."""

    def __init__(self) -> None:
        operations = (op.CREATE_PUSH_CONFIG, op.GET_PUSH_CONFIG, op.LIST_PUSH_CONFIGS, op.DELETE_PUSH_CONFIG)
        self.methods: Mapping[op.AnyOperation, Callable[[Owner, Any, CallContext], Any]] = dict.fromkeys(
            operations, self.refuse
        )

    def refuse(self, *_: object, **__: object) -> Any:
        """Every operation.

        Raises:
            PushNotificationNotSupportedError: always.
        """
        raise PushNotificationNotSupportedError()

    check: Callable[..., Any] = refuse
    of_send: Callable[..., Any] = refuse
    check_number: Callable[..., Any] = refuse


def _as_config(webhook: StoredWebhook) -> TaskPushNotificationConfig:
    if not webhook.disabled:
        return webhook.config
    return replace(webhook.config, metadata={WEBHOOK_DISABLED: webhook.disabled})


def _check_authentication(authentication: AuthenticationInfo, at: str) -> None:
    schemes = (authentication.scheme, *authentication.other_schemes)
    if len(schemes) > _MAX_SCHEMES or not all(map(_SCHEME.fullmatch, schemes)):
        raise InvalidParamsError.at(f"{at}.scheme", "must be the name of an HTTP scheme, or at most ten in 0.3")
    _check_secret(authentication.credentials, f"{at}.credentials")


def _check_secret(text: str, member: str) -> None:
    """Check that a text can be sent in a header."""
    if len(text) > _MAX_SECRET_LENGTH or not (text.isascii() and text.isprintable()) or text != text.strip():
        raise InvalidParamsError.at(member, f"must be at most {_MAX_SECRET_LENGTH} printable ASCII characters")


def _read_page_token(token: str) -> int:
    """The number of the last configuration on the page before."""
    if token and not (token.isascii() and token.isdigit() and len(token) < 10):
        raise InvalidParamsError.at("pageToken", "is not a token of this server")
    return int(token or 0)
