"""``a2a-sync chat``: a conversation with an agent, line by line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from a2a_sync import AgentError, Client, FilePart, Message, Part, Role, Task, TextPart, TransportError
from a2a_sync.agent.dialogue import MARK
from a2a_sync.cli import debug
from a2a_sync.cli.activity import Activity
from a2a_sync.cli.options import Connection, agent_command, out_option
from a2a_sync.cli.profiles import default_path
from a2a_sync.cli.send import Exchange, exit_code, save_artifacts
from a2a_sync.cli.show import Transcript
from a2a_sync.cli.tasks import follow
from a2a_sync.cli.text import clean_line, print_status

_COMMANDS = {
    "/file": "PATH: send this file with the next message",
    "/task": "[ID]: show the current task, or continue another one",
    "/cancel": "[ID]: cancel the current task, or another one",
    "/resume": "[ID]: follow the current task, or another one, until it ends or asks for input",
    "/new": "begin another conversation",
    "/help": "show this list",
    "/quit": "leave; so does Ctrl-D",
}
_PATIENCE = 10.0


@agent_command("chat http://127.0.0.1:8000")
@click.option("--context", "context_id", default="", metavar="ID", help="Continue this conversation.")
@click.option("--task", "task_id", default="", metavar="ID", help="Continue this task.")
@out_option(help="Save every artifact here. Without it files are saved in a new folder a2a-TASK here.")
@click.option("--no-history", is_flag=True, help="Do not store the typed lines in the history file.")
def chat(connection: Connection, context_id: str, task_id: str, out: Path | None, no_history: bool) -> None:
    """Talk to the agent at URL.

    Each line is a message; a line that ends with a backslash continues on the next one, as does Alt-Enter. Ctrl-C stops
    watching the answer (the task continues), Ctrl-D ends the conversation. Lines that begin with a slash are commands:
    /file PATH, /task [ID], /cancel [ID], /resume [ID], /new, /help, /quit. If standard input is not a terminal, the
    lines are read from it, and the exit code is that of the last answer, as for send.
    """
    read = _reader(history=not no_history)
    with connection.client() as client:
        conversation = _Conversation(connection, client, out, context_id)
        print_status(f"{client.card(timeout=connection.timeout).name}: /help lists commands, Ctrl-D ends", dim=True)
        if task_id:
            conversation.handle(f"/task {task_id}")
        while not conversation.ended:
            text = read(conversation.prompt)
            if text is None:
                break
            conversation.handle(text)
    sys.exit(0 if _interactive() else conversation.exit_code)


class _Conversation:
    """The state of one conversation: its context, the task that waits, its options, and files for the next message."""

    def __init__(self, connection: Connection, client: Client, out: Path | None, context_id: str) -> None:
        self._connection = connection
        self._client = client
        self._out = out
        self._context_id = context_id
        #: The last task, and whether the next message continues it.
        self._task_id = ""
        self._waiting = False
        self._options: list[str] = []
        self._files: list[Part] = []
        self.ended = False
        self.exit_code = 0

    @property
    def prompt(self) -> str:
        """What is shown before the next line."""
        attached = f" (+{len(self._files)})" if self._files else ""
        return f"{'answer' if self._waiting else 'you'}{attached}> "

    def handle(self, text: str) -> None:
        """Run a command, or send `text`. Errors of the agent are printed."""
        text = text.strip()
        if not text and not self._files:
            return
        try:
            if text.startswith("/") and not text.startswith("//"):
                self._run_command(text)
            else:
                self._send(text.removeprefix("/") if text.startswith("//") else text)
        except (AgentError, TransportError, OSError) as error:
            debug.print_traceback()
            print_status(f"Error: {error}", error=True)
            self.exit_code = 1 if isinstance(error, AgentError) else 3
        except KeyboardInterrupt:
            hint = (
                f"the task {self._task_id} continues: /resume follows it, /cancel cancels it" if self._task_id else ""
            )
            print_status(hint or "interrupted; the agent may go on", error=True)
            self.exit_code = 130

    # -- messages --

    def _send(self, text: str) -> None:
        if self._options and text.isdecimal() and 0 < int(text) <= len(self._options):
            text = self._options[int(text) - 1]
        files, self._files = self._files, []
        parts: list[Part] = [*([TextPart(text)] if text else []), *files]
        task_id = self._task_id if self._waiting else ""
        message = Message(role=Role.USER, parts=tuple(parts), task_id=task_id, context_id=self._context_id)
        exchange = Exchange(self._connection, task_id, stream=True)

        def act(show: Callable[[Any], None]) -> Task | Message:
            try:
                return exchange.run_with(self._client, message, show)
            except (AgentError, TransportError):
                self._files = files
                raise
            finally:
                # Known also after Ctrl-C.
                self._task_id = exchange.task_id

        self._show(act)

    def _show(self, act: Callable[[Callable[[Any], None]], Task | Message]) -> None:
        """Print what `act` shows and returns, and remember where the conversation is."""
        transcript = Transcript(data=self._out is None)
        try:
            with Activity(transcript) as activity:
                answer = act(activity.around(transcript.show_event))
        finally:
            transcript.end_line()
        if isinstance(answer, Task):
            save_artifacts(answer, self._out, skip=False)
        transcript.finish(answer)
        self._remember(answer)
        self.exit_code = exit_code(self._connection.url, answer, hint=False)

    def _remember(self, answer: Task | Message) -> None:
        self._context_id = answer.context_id or self._context_id
        self._waiting = isinstance(answer, Task) and answer.state.interrupted
        self._task_id = answer.id if isinstance(answer, Task) else ""
        question = answer.status.message if isinstance(answer, Task) and self._waiting else None
        self._options = _options_of(question)
        for number, option in enumerate(self._options, 1):
            click.echo(f"  {number}) {clean_line(option)}")

    # -- commands --

    def _run_command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        argument = rest.strip()
        match name:
            case "/file":
                self._attach(argument)
            case "/task" | "/cancel" | "/resume":
                if task_id := argument or self._task_id:
                    {"/task": self._continue, "/cancel": self._cancel, "/resume": self._resume}[name](task_id)
                else:
                    print_status(f"there is no task yet; name one: {name} ID", error=True)
            case "/new":
                self._context_id, self._task_id, self._waiting, self._options = "", "", False, []
            case "/quit" | "/exit":
                self.ended = True
            case "/help":
                for command, what in _COMMANDS.items():
                    click.echo(f"{command:<8} {what}")
            case _:
                print_status(
                    f"there is no command {name}; /help lists them, and // begins a message with /", error=True
                )
                self.exit_code = 2

    def _attach(self, argument: str) -> None:
        if not argument:
            print_status("name a file: /file PATH", error=True)
            return
        path = Path(os.path.expanduser(argument.strip("'\"")))
        part = FilePart.from_path(path)
        self._files.append(part)
        print_status(
            f"{path.name} ({part.media_type}, {len(part.raw or b'')} bytes) goes with the next message", dim=True
        )

    def _continue(self, task_id: str) -> None:
        task = self._client.get_task(task_id, timeout=self._connection.timeout)
        Transcript(data=self._out is None).finish(task)
        self._remember(task)

    def _cancel(self, task_id: str) -> None:
        task = self._client.cancel_task(task_id, timeout=self._connection.timeout or _PATIENCE)
        print_status(f"task {task.id} is {task.state}")
        if task.id == self._task_id:
            self._remember(task)

    def _resume(self, task_id: str) -> None:
        self._task_id = task_id
        self._show(lambda show: follow(self._client, task_id, show, self._connection.timeout))


def _options_of(question: Message | None) -> list[str]:
    """The options that a question of this library names."""
    mark = question.metadata.get(MARK) if question is not None else None
    options = mark.get("options") if isinstance(mark, dict) else None
    return [option for option in options if isinstance(option, str)] if isinstance(options, list | tuple) else []


# -- reading lines ------------------------------------------------------------------------------------------------------


def _interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _reader(*, history: bool) -> Callable[[str], str | None]:
    """A function that shows a prompt and returns the next message, None at the end."""
    if not _interactive():
        return lambda prompt: _read_lines("")
    try:
        return _prompt_reader(history=history)
    except ImportError:
        print_status("without history and completion: pip install 'a2a-sync[cli]'", dim=True)
        return _read_lines


def _read_lines(prompt: str) -> str | None:
    lines: list[str] = []
    while True:
        if prompt:
            click.echo(prompt if not lines else "... ", nl=False, err=True)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            click.echo(err=True)
            return ""
        if not line:
            return "\n".join(lines) if lines else None
        line = line.rstrip("\r\n")
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _prompt_reader(*, history: bool) -> Callable[[str], str | None]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import NestedCompleter, PathCompleter
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter")
    def accept(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    completers: dict[str, Any] = {**dict.fromkeys(_COMMANDS), "/file": PathCompleter(expanduser=True)}
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history_file())) if history else InMemoryHistory(),
        completer=NestedCompleter.from_nested_dict(completers),
        complete_while_typing=False,
        key_bindings=keys,
        multiline=True,
        prompt_continuation=lambda width, number, wrapped: "... ".rjust(width),
    )

    def read(prompt: str) -> str | None:
        try:
            return session.prompt(prompt)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    return read


def _history_file() -> Path:
    """The file of the history, which only its user can read."""
    path = default_path().with_name("history")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    return path
