"""Costs of clients: import times, and processor time per call, each in a separate process on the generator's core."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import environments
from tests.benchmarks.servers import GENERATOR_CORE

CALLERS = Path(__file__).parent / "callers"


def _seconds(environment: str, *arguments: str) -> float:
    # Installed packages have byte code; a variable of the shell must not make this library compile its own at each start.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.run(
        [environments.python(environment), *arguments],
        env=variables,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        preexec_fn=lambda: os.sched_setaffinity(0, {GENERATOR_CORE}),
    )
    return float(process.stdout)


def import_seconds(environment: str, modules: str) -> Callable[[], float]:
    """A function that measures the import of `modules` in a new interpreter."""
    code = f"import time; begun = time.perf_counter()\nimport {modules}\nprint(time.perf_counter() - begun)"
    return lambda: _seconds(environment, "-c", code)


def cpu_per_call(environment: str, url: str, operation: str, text: str, calls: int = 60) -> float:
    """Seconds of processor time per call of a library's client (see `callers/`)."""
    return _seconds(environment, str(CALLERS / f"{environment}.py"), url, operation, text, str(calls))
