"""An app without a console costs what it did before there was one. ``python -m tests.console.test_off`` prints the ratios.

What is compared is this tree, and a copy of it without the package `a2a_sync.console` and the lines that load it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
_APP = """
import json, os, sys, threading, time
from a2a_sync import A2AApp, Agent
from a2a_sync.testing import wsgi_session
agent = Agent("x", description="x")
agent.message(lambda message, context: message.text)
app = A2AApp(agent, console=os.environ.get("CONSOLE") == "1")
"""
_MADE = """
pages = int(open("/proc/self/statm").read().split()[1])
made = {"import": time.process_time(), "memory": pages * os.sysconf("SC_PAGE_SIZE")}
modules = sorted(name for name in sys.modules if name.startswith("a2a_sync"))
foreign = sorted({name.partition(".")[0] for name in sys.modules})
"""
_CALLS = """
session = wsgi_session(app)
def send():
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    answer = session.post("http://localhost/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}, timeout=60)
    assert answer.status_code == 200, answer.text
def card():
    assert session.get("http://localhost/.well-known/agent-card.json", timeout=60).status_code == 200
def console():
    return session.get("http://localhost/console/", timeout=60, allow_redirects=False).status_code
"""
_STRUCTURE = (
    _APP
    + _MADE
    + _CALLS
    + """
send(), card()
functions = []
def listen(frame, event, arg):
    if event == "call" and "a2a_sync" in frame.f_code.co_filename:
        functions.append(f"{frame.f_code.co_filename.rpartition('a2a_sync')[2]} {frame.f_code.co_name}")
for one in (send, card):
    sys.setprofile(listen); one(); sys.setprofile(None)
# Run threads count once: a second one starts when the first one has not become idle in time.
names = [one.name for one in threading.enumerate()]
threads = sorted(name for name in names if not name.startswith("a2a-run-")) + sorted({name[:8] for name in names if name.startswith("a2a-run-")})
print(json.dumps([modules, foreign, functions, threads, console()]))
"""
)
_TIMES = (
    _APP
    + _MADE
    + _CALLS
    + """
for name, call, count in (("send", send, 300), ("card", card, 1000)):
    for _ in range(50): call()
    began = time.process_time()
    for _ in range(count): call()
    made[name] = (time.process_time() - began) / count
print(json.dumps(made))
"""
)


def without_console(folder: Path) -> Path:
    """A copy of the library without the console."""
    shutil.copytree(ROOT / "a2a_sync", folder / "a2a_sync", ignore=shutil.ignore_patterns("console", "__pycache__"))
    app = folder / "a2a_sync" / "wsgi" / "app.py"
    text, count = re.subn(r"^( +)if console:\n(?:\1    .*\n|\n)+", "", app.read_text(), flags=re.MULTILINE)
    assert count == 1
    assert "ConsoleSite" not in text
    app.write_text(text)
    return folder


def run(folder: Path, code: str, console: bool = False) -> list[list[str]]:
    """What a fresh process with the library in `folder` prints."""
    variables = {**os.environ, "PYTHONPATH": str(folder), "CONSOLE": str(int(console))}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    printed: list[list[str]] = json.loads(done.stdout)
    return printed


@pytest.mark.slow
def test_without_console_the_same_modules_functions_and_threads_are_used_as_without_its_code(tmp_path: Path) -> None:
    ours, bare = run(ROOT, _STRUCTURE), run(without_console(tmp_path), _STRUCTURE)
    names = ("modules", "packages", "functions of a send and of the card", "threads", "status of /console/")
    for name, one, other in zip(names, ours, bare, strict=True):
        assert one == other, name


def write_entries(folder: Path, pairs: int) -> tuple[float, float]:
    """What the time of each entry, which only the console reads, adds to a write: the ratios of processor time and of size."""
    statements = ("(place, kind, body) VALUES (?, ?, ?)", "(place, kind, body, at_ms) VALUES (?, ?, ?, 1795555555555)")
    ratios, sizes = [], [1, 1]
    databases = [sqlite3.connect(folder / f"{name}.db", isolation_level=None) for name in ("old", "new")]
    for database in databases:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE entries (place INTEGER PRIMARY KEY, kind INTEGER, previous INTEGER, body BLOB)")
    databases[1].execute("ALTER TABLE entries ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0")
    for pair in range(pairs):
        spent = [0.0, 0.0]
        for which in (0, 1) if pair % 2 else (1, 0):
            began = time.process_time()
            for number in range(1000):
                databases[which].execute(
                    f"INSERT INTO entries {statements[which]}", (pair << 20 | number, 1, b"x" * 300)
                )
            spent[which] = time.process_time() - began
            sizes[which] = databases[which].execute("SELECT page_count FROM pragma_page_count").fetchone()[0]
        ratios.append(spent[1] / spent[0])
    for database in databases:
        database.close()
    return median(ratios), sizes[1] / sizes[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.test_off")
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as temporary:
        trees = {"without": (without_console(Path(temporary)), False), "off": (ROOT, False), "on": (ROOT, True)}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        entries = write_entries(Path(temporary), pairs)
        for number in range(pairs):
            for name in list(trees) if number % 2 else reversed(list(trees)):
                found[name].append(run(trees[name][0], _TIMES, trees[name][1]))  # type: ignore[arg-type]
    for value in found["off"][0]:
        medians = [f"{median(one[value] for one in runs):.6g}" for runs in found.values()]
        off, on = (
            median(one[value] / other[value] for one, other in zip(found[name], found["without"], strict=True))
            for name in ("off", "on")
        )
        print(f"{value:8} {' '.join(medians)}  off {off:.3f}, on {on:.3f} of without")
    print(f"an entry with its time: {entries[0]:.3f} of the processor time and {entries[1]:.3f} of the size without it")


if __name__ == "__main__":
    main()
