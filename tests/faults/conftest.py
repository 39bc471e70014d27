"""Where the servers of the fault tests keep their tasks; `tests.services` puts other stores in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest


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
    #: Of each worker of a server; a blocking send that waits in a queue holds one for longer.
    threads: int = 8

    @property
    def environment(self) -> dict[str, str]:
        return {"FAULT_STORE": self.store, "FAULT_RUNS": str(self.runs), **self.variables}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path / 'tasks.db'}", tmp_path / "runs")
