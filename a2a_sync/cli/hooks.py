"""``a2a-sync hooks``: the webhooks of a task."""

from __future__ import annotations

import click

from a2a_sync import TaskPushNotificationConfig
from a2a_sync.cli.options import Connection, agent_command, json_option, task_argument
from a2a_sync.cli.text import clean_line, print_json
from a2a_sync.types import ListTaskPushNotificationConfigsResponse


@agent_command("hooks http://127.0.0.1:8000 TASK --add https://example.com/a2a")
@task_argument
@click.option("--add", metavar="WEBHOOK", help="Add a webhook with this URL.")
@click.option("--id", "own_id", default="", metavar="ID", help="Id of the added webhook; an existing one is replaced.")
@click.option(
    "--token",
    default="",
    envvar="A2A_SYNC_HOOK_TOKEN",
    metavar="TOKEN",
    help="Token that is sent with each post to the added webhook.",
)
@click.option("--remove", metavar="ID", help="Remove the webhook with this id.")
@json_option
def hooks(
    connection: Connection,
    task_id: str,
    add: str | None,
    own_id: str,
    token: str,
    remove: str | None,
    as_json: bool,
) -> None:
    """Show, add and remove the webhooks of the task TASK."""
    if own_id and not add:
        raise click.UsageError("--id goes with --add")
    with connection.client(timeout=connection.timeout) as client:
        if add:
            client.create_push_config(task_id, add, id=own_id, token=token)
        if remove:
            client.delete_push_config(task_id, remove)
        found = client.list_push_configs(task_id)
    if as_json:
        listed = ListTaskPushNotificationConfigsResponse(configs=tuple(found))
        print_json(listed.to_dict())
        return
    for config in found:
        click.echo(_line(config))


def _line(config: TaskPushNotificationConfig) -> str:
    trouble = f"  disabled: {clean_line(config.disabled, 200)}" if config.disabled else ""
    return f"{clean_line(config.id, 80)}  {clean_line(config.url, 200)}{trouble}"
