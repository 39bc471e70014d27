"""``a2a-sync send``: one message to an agent, and its answer as it comes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import click

from a2a_sync import (
    A2AError,
    Client,
    FilePart,
    Message,
    Part,
    Task,
    TaskState,
    TextPart,
    TransportError,
)
from a2a_sync.cli.files import Folder
from a2a_sync.cli.options import json_option, timeout_option, url_argument
from a2a_sync.cli.show import Transcript, identity
from a2a_sync.cli.text import clean_json, clean_line, say
from a2a_sync.codec import by_version
from a2a_sync.types import StreamResponse

#: How long a cancel after Ctrl-C may take, in seconds.
CANCEL_PATIENCE = 10.0


@click.command()
@url_argument
@click.argument("text", required=False, default="")
@click.option("--stream/--no-stream", default=None, help="Print the answer as it comes (the default) or at the end.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send this file along; may be given several times.",
)
@click.option("--task", "task_id", default="", metavar="ID", help="Continue this task.")
@click.option("--context", "context_id", default="", metavar="ID", help="Stay in this conversation.")
@json_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save every artifact here. Without it files go into a2a-TASK in the current folder.",
)
@timeout_option
def send(
    url: str,
    text: str,
    stream: bool | None,
    files: tuple[Path, ...],
    task_id: str,
    context_id: str,
    as_json: bool,
    out: Path | None,
    timeout: float | None,
) -> None:
    """Send TEXT to the agent at URL and show its answer.

    TEXT of - is read from standard input. Ctrl-C cancels the task. The result goes to standard output, progress and the
    names of saved files to standard error. With --json one JSON document is printed at the end; with --stream --json one
    line for each event.
    """
    parts = _parts(text, files)
    exchange = _Exchange(url, task_id, context_id, timeout)
    transcript = Transcript(data=out is None)
    if as_json:
        show: Callable[[StreamResponse], None] = _print_line if stream else _nothing
    else:
        show = _nothing if stream is False else transcript.take
    try:
        answer = exchange.run(parts, show)
    except KeyboardInterrupt:
        exchange.cancel()
        sys.exit(130)
    finally:
        _save(exchange.task, out, skip=as_json and out is None)
    if not as_json:
        transcript.finish(answer)
    elif not stream:
        click.echo(clean_json(by_version("1.0").dump_event(answer), indent=2))
    sys.exit(_exit_code(url, answer))


def _parts(text: str, files: tuple[Path, ...]) -> list[Part]:
    if text == "-":
        try:
            text = click.get_binary_stream("stdin").read().decode()
        except UnicodeDecodeError:
            raise click.UsageError("standard input is not UTF-8 text") from None
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise click.UsageError("TEXT is not UTF-8")
    try:
        parts: list[Part] = [FilePart.from_path(path) for path in files]
    except OSError as error:
        raise click.UsageError(f"cannot read {error.filename}: {error.strerror}") from None
    if text:
        parts.insert(0, TextPart(text))
    if not parts:
        raise click.UsageError("nothing to send: give TEXT or --file")
    return parts


class _Exchange:
    """One message and what comes of it."""

    def __init__(self, url: str, task_id: str, context_id: str, timeout: float | None) -> None:
        self._url = url
        self._task_id = task_id
        self._context_id = context_id
        self._timeout = timeout
        self.task: Task | None = None

    def run(self, parts: list[Part], show: Callable[[StreamResponse], None]) -> Task | Message:
        """Send, call `show` with each event, and return the answer."""
        with Client(self._url) as client:
            if client.card().capabilities.streaming:
                return self._stream(client, parts, show)
            return self._poll(client, parts, show)

    def _stream(self, client: Client, parts: list[Part], show: Callable[[StreamResponse], None]) -> Task | Message:
        answer: Task | Message | None = None
        stream = client.stream(
            parts, task_id=self._task_id or None, context_id=self._context_id or None, timeout=self._timeout
        )
        with stream:
            try:
                for event in stream:
                    self._task_id = identity(event) or self._task_id
                    if isinstance(event, Message):
                        answer = event
                    show(event)
            finally:
                self.task = stream.task
        answer = answer or self.task
        if answer is None:
            raise TransportError("the stream ended without an answer", phase="stream", agent=self._url)
        return answer

    def _poll(self, client: Client, parts: list[Part], show: Callable[[StreamResponse], None]) -> Task | Message:
        # Asked to return at once, so that the task is known while it runs and Ctrl-C can cancel it.
        answer = client.send(
            parts,
            task_id=self._task_id or None,
            context_id=self._context_id or None,
            return_immediately=True,
            timeout=self._timeout,
        )
        self._task_id = identity(answer) or self._task_id
        show(answer)
        if isinstance(answer, Task):
            self.task = answer
            if not answer.state.paused:
                answer = self.task = client.wait(answer.id, timeout=self._timeout)
                show(answer)
        return answer

    def cancel(self) -> None:
        """Cancel the task on the server, as far as it is known."""
        if not self._task_id:
            say("interrupted before the agent named a task; it may go on", error=True)
            return
        say(f"cancelling task {self._task_id}")
        try:
            with Client(self._url) as client:
                task = client.cancel_task(self._task_id, timeout=CANCEL_PATIENCE)
            say(f"task {task.id} is {task.state}")
        except (A2AError, TransportError) as error:
            say(f"the task could not be cancelled: {error}", error=True)
        except KeyboardInterrupt:
            say("interrupted again; the task may go on", error=True)


def _nothing(event: StreamResponse) -> None:
    """Show nothing."""


def _print_line(event: StreamResponse) -> None:
    click.echo(clean_json(by_version("1.0").dump_event(event)))
    sys.stdout.flush()


def _save(task: Task | None, out: Path | None, *, skip: bool) -> None:
    """Save what has come, whether the exchange ended well or not."""
    if task is None or skip:
        return
    folder = Folder(out or Path(f"a2a-{''.join(char for char in task.id if char.isalnum())[:12] or 'task'}"))
    try:
        for path in folder.save_artifacts(task.artifacts, everything=out is not None):
            say(f"saved {path}")
    except OSError as error:
        say(f"cannot save into {folder.path}: {error}", error=True)


def _exit_code(url: str, answer: Task | Message) -> int:
    if isinstance(answer, Message) or answer.state is TaskState.COMPLETED:
        return 0
    if answer.state.interrupted:
        task_id = shlex.quote(clean_line(answer.id))
        say(f"answer with: a2a-sync send {shlex.quote(url)} --task {task_id} TEXT")
        return 4
    return 1 if answer.state.terminal else 3
