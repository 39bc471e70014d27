"""``python -m tests.benchmarks.frameworks [NAME …]``: compare each bridge with its framework's own A2A server.

Prints what works, and what happens where it does not; then the speed of streamed sends. ``--write`` puts the tables into
``docs/explanation/frameworks.md``. The exit code is 1 where ours lacks what theirs has.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from a2a_sync import Client
from tests.benchmarks import servers
from tests.benchmarks.environments import ROOT
from tests.benchmarks.frameworks.checks import FEATURES, results
from tests.benchmarks.frameworks.pairs import AUTHORIZATION, PAIRS, Compared
from tests.benchmarks.frameworks.speed import measure

PAGE = ROOT / "docs/explanation/frameworks.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.frameworks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *PAIRS], help=f"of {', '.join(PAIRS)}")
    parser.add_argument("--only", choices=("features", "speed"), help="half of it")
    parser.add_argument("--json", type=Path, help="read the earlier results of this file, and add the new ones")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    servers.pin_generator()
    for name in options.names or PAIRS:
        kept = found.setdefault(name, {})
        if options.only != "speed":
            for side in ("ours", "theirs"):
                kept[side] = features(name, side)
                print(f"{name} {side}: {json.dumps(kept[side], indent=1)}", flush=True)
        if options.only != "features":
            with folder() as path:
                kept["speed"] = measure(name, path)._asdict()
            print(f"{name} speed: {kept['speed']}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
    if options.write:
        write(found)
    return 1 if list(lacking(found)) else 0


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="a2a-compared-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def features(name: str, side: str) -> dict[str, str]:
    """What works at one server of a pair."""
    with folder() as path:

        @contextmanager
        def serve(kind: str) -> Iterator[Client]:
            with (
                Compared(name, side, kind, path) as server,
                Client(server.url, retry=None, headers=AUTHORIZATION) as client,
            ):
                yield client

        return dict(results(serve, path, PAIRS[name].answer if side == "theirs" else None))


def lacking(found: dict[str, Any]) -> Iterator[str]:
    """The features that theirs has and ours has not."""
    for name, kept in found.items():
        for feature, result in kept.get("theirs", {}).items():
            if result.startswith("yes") and not kept["ours"][feature].startswith("yes"):
                yield f"{name}: {feature}: {kept['ours'][feature]}"


def write(found: dict[str, Any]) -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text()
    text = re.sub(
        r"(<!-- written by make bench-frameworks -->\n).*?(\n<!-- end -->)",
        lambda match: f"{match[1]}\n{tables(found)}\n{match[2]}",
        text,
        flags=re.DOTALL,
    )
    PAGE.write_text(text)


def tables(found: dict[str, Any]) -> str:
    """The results as Markdown: a column for each server, then what happens instead, then the speed."""
    listed = {name: found[name] for name in PAIRS if name in found}
    head = ["feature", *(f"{PAIRS[name].title}: ours, {PAIRS[name].server}" for name in listed)]
    rows = [[feature.__name__, *(_mark(kept, feature.__name__) for kept in listed.values())] for feature in FEATURES]
    notes = [
        f"- {PAIRS[name].title}, {'ours' if side == 'ours' else PAIRS[name].server}, {feature}: {result.removeprefix('no: ')}"
        for name, kept in listed.items()
        for side in ("ours", "theirs")
        for feature, result in kept.get(side, {}).items()
        if result != "yes"
    ]
    speed = [_speed(PAIRS[name].title, kept["speed"]) for name, kept in listed.items() if "speed" in kept]
    titles = ["framework", "ours, a second", "theirs, a second", "ratio", "ours, ms CPU", "theirs, ms CPU", "ratio"]
    return "\n\n".join([_table(head, rows), "\n".join(notes), _table(titles, speed)])


def _mark(kept: dict[str, Any], feature: str) -> str:
    return ", ".join("yes" if kept[side][feature].startswith("yes") else "**no**" for side in ("ours", "theirs"))


def _speed(title: str, found: dict[str, float]) -> list[str]:
    rates = [f"{found[part]:.1f}" for part in ("ours", "theirs", "ratio")]
    return [title, *rates, *(f"{found[part]:.0f}" for part in ("ours_cpu", "theirs_cpu")), f"{found['cpu']:.1f}"]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
