"""A client's calls for push notifications: the webhooks that an agent tells of a task (spec 3.1.7-3.1.10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from a2a_sync import operations as op
from a2a_sync.client.caller import Caller
from a2a_sync.client.link import CallOptions
from a2a_sync.concurrency.gevent import at_home
from a2a_sync.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)


class PushCaller(Caller):
    """Part of `Client`. All methods raise `PushNotificationNotSupportedError` where the agent sends no notifications."""

    @at_home
    def create_push_config(
        self,
        task_id: str,
        webhook: str | TaskPushNotificationConfig,
        *,
        id: str = "",
        token: str = "",
        authentication: AuthenticationInfo | None = None,
        **options: Unpack[CallOptions],
    ) -> TaskPushNotificationConfig:
        """Have the agent post what happens to a task to `webhook`; the configuration as the agent has stored it.

        Parameters:
            webhook: the URL to post to, or a whole configuration, over whose members the arguments below stand.
            id: of the configuration; the one of this task that has it is replaced. By default the agent chooses it.
            token: sent with each notification, so that the receiver knows it.
            authentication: how the agent authenticates itself to the receiver.

        Raises:
            TaskNotFoundError: there is no such task that you may see.
            InvalidParamsError: the agent does not post to that URL, or to no more of them for one task.
        """
        config = as_push_config(webhook)
        request = replace(
            config,
            task_id=task_id,
            id=id or config.id,
            token=token or config.token,
            authentication=authentication or config.authentication,
        )
        link, deadline = self._begin(options)
        created: TaskPushNotificationConfig = link.call(op.CREATE_PUSH_CONFIG, request, deadline)
        return created

    @at_home
    def get_push_config(self, task_id: str, id: str, **options: Unpack[CallOptions]) -> TaskPushNotificationConfig:
        """One of the task's configurations.

        Raises:
            TaskNotFoundError: there is no such task that you may see, or no such configuration.
        """
        link, deadline = self._begin(options)
        request = GetTaskPushNotificationConfigRequest(task_id=task_id, id=id)
        found: TaskPushNotificationConfig = link.call(op.GET_PUSH_CONFIG, request, deadline)
        return found

    @at_home
    def list_push_configs(self, task_id: str, **options: Unpack[CallOptions]) -> list[TaskPushNotificationConfig]:
        """All of the task's configurations; a few, for agents bound their number.

        Raises:
            TaskNotFoundError: there is no such task that you may see.
        """
        link, deadline = self._begin(options)
        found: list[TaskPushNotificationConfig] = []
        token, seen = "", {""}
        while True:
            request = ListTaskPushNotificationConfigsRequest(task_id=task_id, page_token=token)
            page: ListTaskPushNotificationConfigsResponse = link.call(op.LIST_PUSH_CONFIGS, request, deadline)
            found += page.configs
            token = page.next_page_token
            if token in seen:
                return found
            seen.add(token)

    @at_home
    def delete_push_config(self, task_id: str, id: str, **options: Unpack[CallOptions]) -> None:
        """Have the agent post no more to a webhook; harmless where it is gone already.

        Raises:
            TaskNotFoundError: there is no such task that you may see.
        """
        link, deadline = self._begin(options)
        link.call(op.DELETE_PUSH_CONFIG, DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=id), deadline)


def as_push_config(webhook: str | TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    """The configuration that a user gave as such, or as a URL."""
    return TaskPushNotificationConfig(url=webhook) if isinstance(webhook, str) else webhook
