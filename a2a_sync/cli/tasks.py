"""``a2a-sync get``, ``list`` and ``cancel``: the tasks of an agent."""

from __future__ import annotations

from pathlib import Path

import click

from a2a_sync import Client, Task, TaskState
from a2a_sync.cli.files import Folder
from a2a_sync.cli.options import auth_option, json_option, task_argument, timeout_option, url_argument
from a2a_sync.cli.show import Transcript
from a2a_sync.cli.text import clean_line, print_json, print_status

_STATES = [str(state) for state in TaskState if state is not TaskState.UNSPECIFIED]


@click.command()
@url_argument
@task_argument
@json_option
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Save artifacts here.")
@auth_option
@timeout_option
def get(url: str, task_id: str, as_json: bool, out: Path | None, auth: str | None, timeout: float | None) -> None:
    """Show the task TASK of the agent at URL: its state and its artifacts."""
    with Client(url, auth=auth) as client:
        task = client.get_task(task_id, timeout=timeout)
    if as_json:
        print_json(task.to_dict())
    else:
        Transcript(data=out is None).finish(task)
    if out is not None:
        for path in Folder(out).save_artifacts(task.artifacts, everything=True):
            print_status(f"saved {path}")


@click.command("list")
@url_argument
@click.option("--context", "context_id", default="", metavar="ID", help="Only tasks of this conversation.")
@click.option("--state", type=click.Choice(_STATES), help="Only tasks in this state.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 100), help="Maximum number of tasks.")
@json_option
@auth_option
@timeout_option
def list_tasks(
    url: str, context_id: str, state: str | None, limit: int, as_json: bool, auth: str | None, timeout: float | None
) -> None:
    """List the tasks of the agent at URL, the newest first."""
    with Client(url, auth=auth) as client:
        page = client.list_tasks(context_id=context_id, status=state, page_size=limit, timeout=timeout)
    if as_json:
        print_json(page.to_dict())
        return
    for task in page.tasks:
        click.echo(_line(task))
    print_status(f"{len(page.tasks)} of {page.total_size} tasks", dim=True)


def _line(task: Task) -> str:
    when = task.status.timestamp
    time = when.astimezone().strftime("%Y-%m-%d %H:%M:%S") if when is not None else "-" * 19
    return f"{clean_line(task.id, 80)}  {task.state:<14}  {time}"


@click.command()
@url_argument
@task_argument
@json_option
@auth_option
@timeout_option
def cancel(url: str, task_id: str, as_json: bool, auth: str | None, timeout: float | None) -> None:
    """Cancel the task TASK of the agent at URL."""
    with Client(url, auth=auth) as client:
        task = client.cancel_task(task_id, timeout=timeout)
    if as_json:
        print_json(task.to_dict())
    else:
        click.echo(f"{clean_line(task.id, 80)}  {task.state}")
