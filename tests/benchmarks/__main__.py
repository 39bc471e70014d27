"""``python -m tests.benchmarks [SUITE …]``: measure, print the table, exit with 1 if a row misses its "must" by a fifth."""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.benchmarks import environments, servers
from tests.benchmarks.delivery import delivery
from tests.benchmarks.grpccalls import grpc_binding
from tests.benchmarks.rows import SUITES as RATIOS
from tests.benchmarks.rows import Row, million
from tests.benchmarks.services import idle_streams, many_tasks, services
from tests.benchmarks.webhooks import webhooks

SUITES = {
    **RATIOS,
    delivery.__name__: delivery,
    webhooks.__name__: webhooks,
    "grpc": grpc_binding,
    services.__name__: services,
    idle_streams.__name__: idle_streams,
    many_tasks.__name__: many_tasks,
}
#: Suites that run only where they are named: they take long, or need more than Python packages.
_NAMED = {suite.__name__ for suite in (million, services, idle_streams, many_tasks)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=_description())
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="what to measure (default: everything)")
    parser.add_argument("--json", metavar="FILE", help="add the rows to FILE, one JSON object a line")
    options = parser.parse_args()
    unknown = sorted(set(options.suites) - SUITES.keys())
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    print(f"{environments.versions()}; servers on core {servers.SERVER_CORE}, load on core {servers.GENERATOR_CORE}")
    servers.pin_generator()
    print(_line("row", "ratio", "must", "goal", "", "medians"))
    rows = []
    for name in options.suites or [name for name in SUITES if name not in _NAMED]:
        begun = time.monotonic()
        for row in SUITES[name]():
            rows.append(row)
            print(_format(row), flush=True)
        print(f"  ({name}: {time.monotonic() - begun:.0f} s)", file=sys.stderr, flush=True)
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(vars(row)) + "\n" for row in rows)
    return 1 if any(_far_off(row) for row in rows) else 0


def _description() -> str:
    suites = "; ".join(f"{name}: {(suite.__doc__ or '').strip().rstrip('.')}" for name, suite in SUITES.items())
    return f"Compare this library with its peers and a bare server, on one core each. Suites: {suites}."


def _format(row: Row) -> str:
    sign = "≥" if row.least else "≤"
    verdict = "goal" if row.meets(row.goal) else "must" if row.meets(row.must) else "BELOW" if row.must else "-"
    bounds = [f"{sign} {bound:g}" if bound else "-" for bound in (row.must, row.goal)]
    return _line(row.name, f"{row.ratio:.2f}" if row.ratio >= 0.02 else f"{row.ratio:.4f}", *bounds, verdict, row.shown)


def _line(name: str, ratio: str, must: str, goal: str, verdict: str, shown: str) -> str:
    return f"{name:<66}{ratio:>8}{must:>8}{goal:>8}  {verdict:<6} {shown}"


def _far_off(row: Row) -> bool:
    """Whether a row is below four fifths of its "must", which noise does not explain."""
    if row.must is None:
        return False
    return row.ratio < 0.8 * row.must if row.least else row.ratio > row.must / 0.8


if __name__ == "__main__":
    raise SystemExit(main())
