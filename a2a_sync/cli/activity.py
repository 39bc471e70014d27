"""What a terminal shows while a call runs: a bar for an upload or a download, the time of a task that works."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from a2a_sync.cli.show import Transcript
from a2a_sync.cli.text import without_color
from a2a_sync.types import StreamResponse

if TYPE_CHECKING:
    from a2a_sync.client.connections import TransferObserver


class Activity:
    """A line on standard error, gone at the end of the block. Nothing where that is no terminal, or without rich.

    It is not shown while `transcript` has an open line of text.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._progress = _progress()
        self._line = None if self._progress is None else self._progress.add_task("waiting", total=None)
        self._transfer = ""
        self._token: Token[TransferObserver | None] | None = None

    def __enter__(self) -> Self:
        if self._progress is not None:
            # It imports requests, which is too early before gevent patches the process that serves.
            from a2a_sync.client.connections import TRANSFER_OBSERVER

            self._token = TRANSFER_OBSERVER.set(self._show_transfer)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._token is not None:
            from a2a_sync.client.connections import TRANSFER_OBSERVER

            TRANSFER_OBSERVER.reset(self._token)

    def around(self, show: Callable[[StreamResponse], None]) -> Callable[[StreamResponse], None]:
        """`show`, with the line out of its way."""
        progress = self._progress
        if progress is None:
            return show

        def show_event(event: StreamResponse) -> None:
            progress.stop()
            show(event)
            if not self._transcript.mid_line:
                status = getattr(event, "status", None)
                if status is not None:
                    progress.update(self._line, description=str(status.state), completed=0, total=None)
                progress.start()

        return show_event

    def _show_transfer(self, what: str, done: int, total: int | None) -> None:
        if self._progress is not None:
            text = f"{what} {done / 1e6:.1f} " + (f"of {total / 1e6:.1f} MB" if total else "MB")
            # Both ends are shown at once: a short transfer may be over before the next regular refresh.
            is_end = what != self._transfer or done == total
            self._transfer = what
            self._progress.update(self._line, description=text, completed=done, total=total, refresh=is_end)


def _progress() -> Any:
    """A `rich.progress.Progress` on standard error, or None."""
    if not (sys.stderr.isatty() and sys.stdout.isatty()):
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    console = Console(stderr=True, markup=False, emoji=False, no_color=without_color())
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(20), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
