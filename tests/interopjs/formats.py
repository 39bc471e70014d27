"""The JSON of the JavaScript SDKs' clients: the generated types of the newest SDK, and the 0.3 JSON of the older one."""

from __future__ import annotations

import itertools
from typing import Any

_numbers = itertools.count(1)


class Format:
    """Arguments and results of the newest SDK's methods, which are the same for all versions on the wire."""

    create_push = "createTaskPushNotificationConfig"

    def message(self, text: str, *, wait: bool = True, history: int | None = None, **ids: str) -> dict[str, Any]:
        """The argument of `sendMessage`. `ids` are ``taskId`` and ``contextId``."""
        message = {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}], **ids}
        return {"message": message, "configuration": self._configuration(wait, history)}

    def _configuration(self, wait: bool, history: int | None) -> dict[str, Any]:
        return {"returnImmediately": not wait} | ({} if history is None else {"historyLength": history})

    def push(self, task_id: str, config_id: str, url: str) -> dict[str, Any]:
        return {"taskId": task_id, "id": config_id, "url": url, "token": "secret"}

    def config(self, task_id: str, config_id: str) -> dict[str, str]:
        return {"taskId": task_id, "id": config_id}

    def configs(self, task_id: str) -> dict[str, str]:
        return {"taskId": task_id}

    def pushed(self, answer: Any) -> tuple[str, str]:
        """The id and the URL of a configuration."""
        return answer["id"], answer["url"]

    def listed(self, answer: Any) -> list[Any]:
        """The configurations of a list response."""
        return answer.get("configs", [])

    def state(self, task: Any) -> str:
        """The state of a task or a status update, in the spelling of 0.3."""
        return task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")

    def kind(self, event: Any) -> str:
        """The kind of a streaming event, in the terms of 0.3."""
        (kind,) = event
        return {"statusUpdate": "status-update", "artifactUpdate": "artifact-update"}.get(kind, kind)

    def body(self, event: Any) -> Any:
        """The content of a streaming event."""
        (body,) = event.values()
        return body

    def text(self, holder: Any) -> str:
        """The text of a message or artifact."""
        return "".join(part.get("text", "") for part in holder["parts"])


class Format03(Format):
    """Arguments and results of the methods of the SDK of 0.3."""

    create_push = "setTaskPushNotificationConfig"

    def message(self, text: str, *, wait: bool = True, history: int | None = None, **ids: str) -> dict[str, Any]:
        parts = [{"kind": "text", "text": text}]
        message = {"kind": "message", "messageId": f"m-{next(_numbers)}", "role": "user", "parts": parts, **ids}
        return {"message": message, "configuration": self._configuration(wait, history)}

    def _configuration(self, wait: bool, history: int | None) -> dict[str, Any]:
        return {"blocking": wait} | ({} if history is None else {"historyLength": history})

    def push(self, task_id: str, config_id: str, url: str) -> dict[str, Any]:
        return {"taskId": task_id, "pushNotificationConfig": {"id": config_id, "url": url, "token": "secret"}}

    def config(self, task_id: str, config_id: str) -> dict[str, str]:
        return {"id": task_id, "pushNotificationConfigId": config_id}

    def configs(self, task_id: str) -> dict[str, str]:
        return {"id": task_id}

    def pushed(self, answer: Any) -> tuple[str, str]:
        return answer["pushNotificationConfig"]["id"], answer["pushNotificationConfig"]["url"]

    def listed(self, answer: Any) -> list[Any]:
        return list(answer)

    def kind(self, event: Any) -> str:
        kind: str = event["kind"]
        return kind

    def body(self, event: Any) -> Any:
        return event
