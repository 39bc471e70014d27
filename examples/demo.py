"""Everything once, for real: ``make demo``.

Serves the analyst with gunicorn threads and an SQLite file, sends it the penguins by the command line, shows its progress
as it streams in and where the artifacts are, starts the server again to show that the task is in the file, and stops it.

    python examples/demo.py [FOLDER]

FOLDER (default ``demo-output``) receives the database, the server's log and the artifacts. Needs the package installed.
"""

from __future__ import annotations

import json
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "examples" / "analyst" / "penguins.csv"
CLI = [sys.executable, "-m", "a2a_sync"]

START_TIMEOUT = 60.0
CALL_TIMEOUT = 120.0
STOP_TIMEOUT = 15.0


def main(folder: Path) -> None:
    """Run all steps; the first that fails ends the demo with a message and exit code 1."""
    empty(folder)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with served(folder) as url:
        step("What the agent says about itself")
        a2a("card", url)
        step("Send it the penguins, and watch it work")
        a2a("send", url, "--stream", "--file", str(DATA), "--out", str(folder / "artifacts"), "Summarise the penguins")
        step("The same as JSON, grouped by island; these figures are from its data")
        answer = a2a("send", url, "--json", "--file", str(DATA), "Summarise this by island", quiet=True)
        task = json.loads(answer)["task"]
        for line in figures(task):
            print(line)
    with served(folder) as url:
        step("A new server on the same SQLite file still knows the tasks")
        a2a("list", url)
        kept = json.loads(a2a("get", url, task["id"], "--json", quiet=True))
        if (kept["status"], kept["artifacts"]) != (task["status"], task["artifacts"]):
            fail("the task is not in the database as it was answered")
        print(f"task {kept['id']} is as it was: {kept['status']['state']}, {len(kept['artifacts'])} artifacts")
    step("Stopped cleanly. What is left:")
    for path in sorted(path for path in folder.rglob("[!.]*") if path.is_file()):
        print(f"{path.stat().st_size:>9,} bytes  {here(path)}")


def figures(task: dict[str, Any]) -> Iterator[str]:
    """A few lines out of the JSON summary."""
    data = next(part["data"] for artifact in task["artifacts"] for part in artifact["parts"] if "data" in part)
    for column in data["numeric"]:
        means = ", ".join(f"{group} {found['mean']:.1f}" for group, found in column["groups"].items())
        yield f"mean {column['name']}: {means}"


def step(title: str) -> None:
    """A heading."""
    print(f"\n== {title}", flush=True)


def show_command(*arguments: str) -> None:
    """The command as one would type it in the current folder."""
    print(f"$ a2a-sync {shlex.join(here(argument) for argument in arguments)}")


def here(text: str | Path) -> str:
    """`text` with the paths below the current folder made short."""
    return str(text).replace(f"{Path.cwd()}/", "")


def fail(problem: str) -> NoReturn:
    """End the demo."""
    sys.exit(f"\nThe demo failed: {problem}")


def empty(folder: Path) -> None:
    """Create the folder again; one with anything but an earlier demo in it is not touched."""
    mine = folder / ".demo"
    if folder.exists() and any(folder.iterdir()) and not mine.exists():
        fail(f"{folder} is not empty and not from an earlier demo")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mine.touch()


def a2a(*arguments: str, quiet: bool = False) -> str:
    """Run the command ``a2a-sync``; what it prints goes to the terminal as it comes, or (`quiet`) is returned."""
    show_command(*arguments)
    pipe = subprocess.PIPE if quiet else None
    try:
        done = subprocess.run([*CLI, *arguments], stdout=pipe, timeout=CALL_TIMEOUT, check=False, text=True)
    except subprocess.TimeoutExpired:
        fail(f"a2a-sync {arguments[0]} did not come back within {CALL_TIMEOUT:.0f} s")
    if done.returncode:
        fail(f"a2a-sync {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout or ""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The analyst under gunicorn on a free port; its URL. Stopped by its process id, and waited for, in any case."""
    store = f"sqlite:///{folder / 'tasks.db'}"
    arguments = ["serve", "examples.analyst:agent", "--port", "0", "--threads", "8", "--store", store]
    step("Serve the analyst")
    show_command(*arguments)
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen([*CLI, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            url = wait_for_card(server, folder / "server.log")
            print(url)
            yield url.partition(".well-known")[0]
        finally:
            code = stop(server)
    if code != 0:
        fail(f"the server ended with exit code {code}; see {here(folder / 'server.log')}")


def wait_for_card(server: subprocess.Popen[str], log: Path) -> str:
    """The card's URL, which the server prints when it can be called."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert server.stdout is not None
        for line in server.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, name="server-output", daemon=True).start()
    try:
        while line := lines.get(timeout=START_TIMEOUT):
            if line.startswith("Agent card: "):
                return line.removeprefix("Agent card: ").strip()
    except queue.Empty:
        fail(f"the server was not up within {START_TIMEOUT:.0f} s; see {here(log)}")
    fail(f"the server did not start:\n{log.read_text(errors='replace')}")


def stop(server: subprocess.Popen[str]) -> int:
    """Ask the server to end, by its process id; make it end if it does not. Its exit code."""
    server.send_signal(signal.SIGTERM)
    try:
        return server.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait(STOP_TIMEOUT)
    finally:
        if server.stdout is not None:
            server.stdout.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output").absolute())
