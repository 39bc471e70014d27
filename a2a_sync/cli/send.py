"""``a2a-sync send``: send one message and print the answer as it arrives."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from a2a_sync import (
    AgentError,
    Client,
    FilePart,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TextPart,
    TransportError,
)
from a2a_sync.cli.activity import Activity
from a2a_sync.cli.files import Folder
from a2a_sync.cli.interrupts import on_interrupt
from a2a_sync.cli.options import Connection, agent_command, json_option, out_option
from a2a_sync.cli.show import Transcript
from a2a_sync.cli.text import clean_json, clean_line, print_json, print_status
from a2a_sync.codec import by_version
from a2a_sync.errors import StreamInterruptedError
from a2a_sync.types import StreamResponse

#: The timeout of a cancel after Ctrl-C, in seconds.
CANCEL_TIMEOUT = 10.0


@agent_command("send http://127.0.0.1:8000 'Summarise this' --file report.pdf")
@click.argument("text", required=False, default="")
@click.option(
    "--stream/--no-stream",
    default=None,
    help="Print the answer as it arrives (the default), or send without a stream and print it at the end.",
)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send this file; may be repeated.",
)
@click.option("--task", "task_id", default="", metavar="ID", help="Continue this task.")
@click.option("--context", "context_id", default="", metavar="ID", help="Continue this conversation.")
@json_option
@out_option(help="Save every artifact here. Without it files are saved in a new folder a2a-TASK here.")
def send(
    connection: Connection,
    text: str,
    stream: bool | None,
    files: tuple[Path, ...],
    task_id: str,
    context_id: str,
    as_json: bool,
    out: Path | None,
) -> None:
    """Send TEXT to the agent at URL and show its answer.

    TEXT of - is read from standard input. Ctrl-C cancels the task. The result goes to standard output, progress and the
    names of saved files to standard error. With --json one JSON document is printed at the end; with --stream --json one
    line for each event.
    """
    message = Message(role=Role.USER, parts=_parts(text, files), task_id=task_id, context_id=context_id)
    exchange = Exchange(connection, task_id, stream=stream is not False)
    transcript = Transcript(data=out is None)
    show: Callable[[StreamResponse], None] = _show_nothing
    if as_json and stream:
        show = print_event
    elif not as_json and stream is not False:
        show = transcript.show_event
    try:
        with Activity(transcript) as activity:
            answer = exchange.run(message, activity.around(show))
    except KeyboardInterrupt:
        exchange.cancel()
        sys.exit(130)
    finally:
        transcript.end_line()
        save_artifacts(exchange.task, out, skip=as_json and out is None)
    if not as_json:
        transcript.finish(answer)
    elif not stream:
        print_json(by_version("1.0").dump_event(answer))
    sys.exit(exit_code(connection.url, answer))


def _text_argument(text: str) -> str:
    if text == "-":
        try:
            return sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise click.UsageError("standard input is not UTF-8 text") from None
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise click.UsageError("TEXT is not UTF-8")
    return text


def _parts(text: str, files: tuple[Path, ...]) -> tuple[Part, ...]:
    text = _text_argument(text)
    try:
        parts: list[Part] = [FilePart.from_path(path) for path in files]
    except OSError as error:
        raise click.UsageError(f"cannot read {error.filename}: {error.strerror}") from None
    if text:
        parts.insert(0, TextPart(text))
    if not parts:
        raise click.UsageError("nothing to send: give TEXT or --file")
    return tuple(parts)


class Exchange:
    """One message and its answer. `task` is the latest known task, also after a failure."""

    def __init__(self, connection: Connection, task_id: str, *, stream: bool) -> None:
        self._connection = connection
        self._streaming = stream
        #: The id of the task; ``""`` while it is unknown.
        self.task_id: str = task_id
        timeout = connection.timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._interrupted = False
        self.task: Task | None = None

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else max(0.001, self._deadline - time.monotonic())

    def run(self, message: Message, show: Callable[[StreamResponse], None]) -> Task | Message:
        """Send, call `show` with each event, and return the answer."""
        with self._connection.client() as client:
            return self.run_with(client, message, show)

    def run_with(self, client: Client, message: Message, show: Callable[[StreamResponse], None]) -> Task | Message:
        """`run`, with a client that is open already."""
        streaming = self._streaming and client.card(timeout=self._seconds_left()).capabilities.streaming
        with on_interrupt(self._interrupt):
            return self._stream(client, message, show) if streaming else self._poll(client, message, show)

    def _interrupt(self, *_: object) -> None:
        """Handle Ctrl-C. A task can be cancelled once its id is known: wait for the id, or for the next Ctrl-C."""
        if self.task_id or self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        print_status("waiting for the agent to name the task; interrupt again to leave at once")

    def _set_task_id(self, task_id: str) -> None:
        self.task_id = task_id or self.task_id
        if self._interrupted:
            raise KeyboardInterrupt

    def _stream(self, client: Client, message: Message, show: Callable[[StreamResponse], None]) -> Task | Message:
        with client.stream(message, timeout=self._seconds_left()) as stream:
            try:
                for event in stream:
                    self._set_task_id(stream.task_id)
                    show(event)
                    if stream.state is TaskState.INPUT_REQUIRED:
                        # The user answers next: end the stream, even if the server leaves it open.
                        stream.end_within(1.0)
            except StreamInterruptedError as error:
                if not stream.task_id:
                    raise
                print_status(f"{error}; waiting for the task", error=True)
                self.task = client.wait(stream.task_id, timeout=self._seconds_left())
                return self.task
            finally:
                self.task = self.task or stream.task
        if stream.result is None:
            raise TransportError("the stream ended without an answer", phase="stream", agent=self._connection.url)
        return stream.result

    def _poll(self, client: Client, message: Message, show: Callable[[StreamResponse], None]) -> Task | Message:
        # Return immediately, so that the task id is known and Ctrl-C can cancel the task.
        answer = client.send(message, return_immediately=True, stream=False, timeout=self._seconds_left())
        if isinstance(answer, Task):
            self.task = answer
            self._set_task_id(answer.id)
            show(answer)
            if not answer.state.paused:
                answer = self.task = client.wait(answer.id, stream=self._streaming, timeout=self._seconds_left())
                show(answer)
        return answer

    def cancel(self) -> None:
        """Cancel the task on the server, if its id is known."""
        if not self.task_id:
            print_status("interrupted before the agent named a task; it may go on", error=True)
            return
        print_status(f"cancelling task {self.task_id}")
        try:
            with self._connection.client() as client:
                task = client.cancel_task(self.task_id, timeout=CANCEL_TIMEOUT)
            print_status(f"task {task.id} is {task.state}")
        except (AgentError, TransportError) as error:
            print_status(f"the task could not be cancelled: {error}", error=True)
        except KeyboardInterrupt:
            print_status("interrupted again; the task may go on", error=True)


def _show_nothing(event: StreamResponse) -> None:
    """Show nothing."""


def print_event(event: StreamResponse) -> None:
    """Print one event of a stream as a line of JSON."""
    click.echo(clean_json(by_version("1.0").dump_event(event)))
    sys.stdout.flush()


def save_artifacts(task: Task | None, out: Path | None, *, skip: bool) -> None:
    """Save the received artifacts, also after an error."""
    if task is None or skip:
        return
    unfinished = "" if task.state.paused else " (as far as it had come)"
    name = "".join(char for char in task.id if char.isalnum())[:12] or "task"
    folder = Folder(out or Path(f"a2a-{name}"), new=out is None)
    try:
        for path in folder.save_artifacts(task.artifacts, everything=out is not None):
            print_status(f"saved {path}{unfinished}")
    except OSError as error:
        print_status(f"cannot save into {folder.path}: {error}", error=True)


def exit_code(url: str, answer: Task | Message, *, hint: bool = True) -> int:
    """The exit code for an answer; with `hint`, how a question is answered is printed to standard error."""
    if isinstance(answer, Message) or answer.state is TaskState.COMPLETED:
        return 0
    if answer.state.interrupted:
        if hint:
            task_id = shlex.quote(clean_line(answer.id))
            print_status(f"answer with: a2a-sync send {shlex.quote(url)} --task {task_id} TEXT")
        return 4
    return 1 if answer.state.terminal else 3
