"""``a2a-sync get``, ``list``, ``watch`` and ``cancel``: the tasks of an agent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from a2a_sync import Client, Message, Task, TaskState
from a2a_sync.cli.activity import Activity
from a2a_sync.cli.files import Folder
from a2a_sync.cli.interrupts import on_interrupt
from a2a_sync.cli.options import Connection, agent_command, json_option, out_option, task_argument
from a2a_sync.cli.send import exit_code, print_event, save_artifacts
from a2a_sync.cli.show import Transcript
from a2a_sync.cli.text import clean_line, print_json, print_status
from a2a_sync.client.stream import SUBSCRIPTION_REFUSALS
from a2a_sync.types import StreamResponse

_STATES = [str(state) for state in TaskState if state is not TaskState.UNSPECIFIED]


@agent_command("get http://127.0.0.1:8000 TASK --out answers")
@task_argument
@json_option
@out_option(help="Save artifacts here.")
def get(connection: Connection, task_id: str, as_json: bool, out: Path | None) -> None:
    """Show the task TASK of the agent at URL: its state and its artifacts."""
    transcript = Transcript(data=out is None)
    with connection.client() as client, Activity(transcript):
        task = client.get_task(task_id, timeout=connection.timeout)
    if as_json:
        print_json(task.to_dict())
    else:
        transcript.finish(task)
    if out is not None:
        for path in Folder(out).save_artifacts(task.artifacts, everything=True):
            print_status(f"saved {path}")


@agent_command("list http://127.0.0.1:8000 --state working", name="list")
@click.option("--context", "context_id", default="", metavar="ID", help="Only tasks of this conversation.")
@click.option("--state", type=click.Choice(_STATES), help="Only tasks in this state.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 100), help="Maximum number of tasks.")
@json_option
def list_tasks(connection: Connection, context_id: str, state: str | None, limit: int, as_json: bool) -> None:
    """List the tasks of the agent at URL, the newest first."""
    with connection.client() as client:
        page = client.list_tasks(context_id=context_id, status=state, page_size=limit, timeout=connection.timeout)
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


@agent_command("cancel http://127.0.0.1:8000 TASK")
@task_argument
@json_option
def cancel(connection: Connection, task_id: str, as_json: bool) -> None:
    """Cancel the task TASK of the agent at URL."""
    with connection.client() as client:
        task = client.cancel_task(task_id, timeout=connection.timeout)
    if as_json:
        print_json(task.to_dict())
    else:
        click.echo(f"{clean_line(task.id, 80)}  {task.state}")


@agent_command("watch http://127.0.0.1:8000 TASK")
@task_argument
@json_option
@out_option(help="Save every artifact here. Without it files are saved in a new folder a2a-TASK here.")
def watch(connection: Connection, task_id: str, as_json: bool, out: Path | None) -> None:
    """Follow the task TASK of the agent at URL until it ends or asks for input.

    Prints the earlier and the new events of the task, with the same exit codes as send. If the connection breaks, the
    command resumes the stream. Ctrl-C ends this command; the task continues. With --json it prints one line for each
    event.
    """
    transcript = Transcript(data=out is None)
    show = print_event if as_json else transcript.show_event
    try:
        with connection.client() as client, Activity(transcript) as activity:
            answer = follow(client, task_id, activity.around(show), connection.timeout)
    finally:
        transcript.end_line()
    save_artifacts(answer if isinstance(answer, Task) else None, out, skip=as_json and out is None)
    if not as_json:
        transcript.finish(answer)
    sys.exit(exit_code(connection.url, answer))


@on_interrupt()
def follow(
    client: Client, task_id: str, show: Callable[[StreamResponse], None], timeout: float | None
) -> Task | Message:
    """Call `show` with the events of a task until it ends or asks, and return it. `timeout` is in seconds."""
    if client.card(timeout=timeout).capabilities.streaming:
        try:
            with client.subscribe(task_id, timeout=timeout) as stream:
                for event in stream:
                    show(event)
                    if stream.state.interrupted:
                        # The user answers next: end the stream, even if the server leaves it open.
                        stream.end_within(1.0)
                if stream.result is not None:
                    return stream.result
        except SUBSCRIPTION_REFUSALS:
            pass  # the task has ended (spec 3.1.6)
    task = client.wait(task_id, stream=False, timeout=timeout)
    show(task)
    return task
