"""Where the servers of the fault tests keep their tasks and execute their runs; `tests.services` replaces both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live import LiveServer, gunicorn


@dataclass
class Place:
    """The URL of a store, the agent that servers serve (``module:attribute``), and their environment beside these."""

    store: str
    #: A file with a line for each run.
    runs: Path
    target: str = "tests.faults.agent:app"
    variables: Mapping[str, str] = field(default_factory=dict)
    #: The events that a stream has because its run waits in a queue first.
    queued: int = 0
    #: Of each worker of a server. On a busy machine one worker may get the connections of all clients of a test.
    threads: int = 16

    @property
    def environment(self) -> dict[str, str]:
        return {"FAULT_STORE": self.store, "FAULT_RUNS": str(self.runs), **self.variables}

    @contextmanager
    def server(self, target: str, *, workers: int, environment: Mapping[str, str]) -> Iterator[LiveServer]:
        """A server of `target`, with whatever else executes its runs."""
        options = ("-c", "python:a2a_sync.gunicorn")
        with gunicorn(
            target, *options, threads=self.threads, workers=workers, environment={**environment, **self.variables}
        ) as server:
            yield server

    def parents(self, server: LiveServer) -> list[int]:
        """The processes whose children serve requests and execute runs."""
        return [server.pid]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path / 'tasks.db'}", tmp_path / "runs")
