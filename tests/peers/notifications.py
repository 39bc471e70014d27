"""Push notifications that an agent of another implementation posts to a `WebhookReceiver`."""

from __future__ import annotations

from a2a_sync import Client, PushNotification, Task, TaskPushNotificationConfig, TaskState, WebhookReceiver
from tests.engine import TIMEOUT
from tests.peers.record import Transport


def notifications_of_a_task(
    url: str, transport: Transport, receiver: WebhookReceiver, config: TaskPushNotificationConfig
) -> list[PushNotification]:
    """Send ``count 3`` with a webhook; return the accepted notifications up to the completed state."""
    with Client(url, protocol_version=transport.version, protocol_binding=transport.binding, timeout=30) as client:
        task = client.send("count 3", push_config=config)
    assert isinstance(task, Task)
    accepted = []
    for notification in receiver.notifications(timeout=TIMEOUT):
        assert notification.task_id == task.id
        accepted.append(notification)
        status = getattr(notification.event, "status", None)
        if status is not None and status.state is TaskState.COMPLETED:
            return accepted
    raise AssertionError(f"no notification of the completed state among {accepted}")
