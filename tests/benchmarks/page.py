"""``python -m tests.benchmarks.page``: measure, and write the page docs/explanation/performance.md with its plots.

The results are kept beside the plots, so ``--draw`` makes the page again without measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tests.benchmarks import curves, environments, flames, servers
from tests.benchmarks.rows import SUITES, Row, million

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "performance.md"
FOLDER = PAGE.with_suffix("")
EFFORTS = {"full": curves.FULL, "short": curves.SHORT, "small": curves.SMALL}
_GENERATED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.page", description="Write the page on performance."
    )
    parser.add_argument(
        "--effort",
        choices=EFFORTS,
        default="full",
        help="full: an hour or two; short: twenty minutes; small: to try it",
    )
    parser.add_argument("--resume", action="store_true", help="measure only what the stored results lack")
    parser.add_argument("--draw", action="store_true", help="draw the stored results again, without measuring")
    parser.add_argument("--rows", nargs="*", metavar="SUITE", help="the suites of the table (default: all)")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    results = Results(FOLDER / "results.json", keep=options.resume or options.draw)
    if not options.draw:
        _measure(results, options.effort, options.rows)
    from tests.benchmarks import plots

    plots.draw(results.values, FOLDER)
    page = _GENERATED.sub(lambda found: found[1] + _generate(found[2], results.values) + found[3], PAGE.read_text())
    PAGE.write_text(page)


class Results:
    """The results so far, in a file that is written after each step: a measurement that is interrupted can be resumed."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        self._path = path
        self.values: dict[str, Any] = (
            json.loads(path.read_text()) if keep and path.exists() else {"rows": {}, "loads": []}
        )

    def step(self, name: str, measure: Callable[[], Any], among: dict[str, Any] | None = None) -> None:
        """Store what `measure` returns under `name`, if it is not known; note the load of the machine."""
        known = self.values if among is None else among
        if name in known:
            return
        try:
            known[name] = measure()
        except Exception as error:
            # The other steps are worth their time.
            print(f"  {name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        self.values["loads"].append(round(os.getloadavg()[0], 1))
        self._path.write_text(json.dumps(self.values, indent=1) + "\n")
        print(f"  {time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)


def _measure(results: Results, effort: str, suites: list[str] | None) -> None:
    machine = _machine()
    servers.pin_generator()
    results.step("machine", lambda: machine)
    results.step("flames", lambda: flames.draw(FOLDER, 100 if effort == "small" else 400))
    for curve in (curves.sends, curves.streams, curves.stored, curves.memory):
        results.step(curve.__name__, partial(curve, EFFORTS[effort]))
    for name in SUITES if suites is None else suites:
        if name != million.__name__ or effort == "full":
            results.step(name, lambda name=name: [vars(row) for row in SUITES[name]()], results.values["rows"])


def _machine() -> dict[str, str]:
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{models[0] if models else platform.machine()}, {len(servers.CORES)} cores",
        "system": f"{platform.system()} {platform.release()}",
        "versions": environments.versions(),
    }


# -- the generated parts of the page ------------------------------------------------------------------------------------


def _generate(part: str, results: dict[str, Any]) -> str:
    lines: Iterable[str] = {"machine": _machine_lines, "rows": _row_lines, "flames": _flame_lines}[part](results)
    return "\n".join([*lines, ""])


def _machine_lines(results: dict[str, Any]) -> Iterable[str]:
    machine, loads = results["machine"], results["loads"]
    yield f"Measured on {machine['date']}: {machine['processor']}; {machine['system']}; {machine['versions']}."
    yield f"The load average of the machine was {min(loads)} to {max(loads)} meanwhile."
    if min(loads) > 2 * len(servers.CORES):
        yield "That is a busy machine: rates and latencies mean little, and processor times and ratios scatter."


def _row_lines(results: dict[str, Any]) -> Iterable[str]:
    yield "| row | measured | by processor time | must | goal |"
    yield "| --- | --- | --- | --- | --- |"
    for values in chain.from_iterable(results["rows"].values()):
        row = Row(**values)
        sign = "≥" if row.least else "≤"
        bounds = " | ".join(f"{sign} {bound:g}" if bound else "-" for bound in (row.must, row.goal))
        yield f"| {row.name} | {_short(row.ratio)} | {_short(row.by_cpu) if row.by_cpu else '-'} | {bounds} |"


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.02 else f"{value:.4f}"


def _flame_lines(results: dict[str, Any]) -> Iterable[str]:
    spent = results["flames"]
    yield "| | before | now |"
    yield "| --- | --- | --- |"
    for operation, title in (("send", "send"), ("stream", "stream of ten chunks")):
        before, after = (spent[f"{operation}-{when}"] for when in ("before", "after"))
        yield f"| {title}, in memory, without a server | {before:.0f} µs | {after:.0f} µs |"


if __name__ == "__main__":
    main()
