"""Generates docs/conformance.md from the suite: ``make conformance``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.sdk import DEPARTURES
from tests.conformance.sections import SECTIONS
from tests.conformance.suite import Level, Line, Verdict, Way
from tests.conformance.variants import VARIANTS
from tests.live import ROOT

PAGE: Path = ROOT / "docs" / "conformance.md"

_HEAD = """\
# Conformance

<!-- Written by `make conformance`; a test compares it with the suite. -->

The specification of A2A as numbered requirements that can be tested: `V1` is protocol 1.0, `V03` protocol 0.3, `DUAL` both at
one URL. The levels are those of the specification; SDK is the behaviour of the official SDKs and CHOICE a decision of this
library where the specification is silent. Each requirement that is *met* or *differs* has a check in `tests/conformance`, which
exchanges its own bytes with the agent over JSON-RPC (rpc), HTTP+JSON (rest) or gRPC (grpc), or is the agent that a client calls.

`make conformance` runs the checks and writes this page; `make check` includes them. [Departures](reference/departures.md)
explains the differences in more detail.
"""
_PROOF = """\
## Verification of the checks

Each variant is this library with one defect. The checks of the requirement must detect it.

| number | variant | defect |
| --- | --- | --- |
"""
_OTHER = """\
## The official SDK

The same checks, without those over gRPC, against a server on the official `a2a-sdk` (1.3.0; `make interop`). It does not meet these requirements; it meets
all others whose feature it offers.

| number | requirement | behaviour |
| --- | --- | --- |
"""
_SHOWN = {Way.RPC_03: "rpc", Way.REST_03: "rest", Way.GRPC_03: "grpc"}


def render() -> str:
    """The page if all checks pass."""
    sections = [_section(f"{one.letter}. {one.title}", one.ordered()) for one in SECTIONS]
    variants = "".join(f"| {one.number} | {name} | {one.says} |\n" for name, one in VARIANTS.items())
    lines = [line for one in SECTIONS for line in one.lines]
    requirements = {line.number: line.says for line in lines}
    departures = "".join(f"| {number} | {requirements[number]} | {what} |\n" for number, what in DEPARTURES.items())
    return "\n".join([_HEAD, _counts(lines), *sections, _PROOF + variants, _OTHER + departures])


def _counts(lines: Sequence[Line]) -> str:
    counted = Counter((line.level, line.verdict) for line in lines)
    head = ["| level | lines | " + " | ".join(Verdict) + " |", "| --- " * (len(Verdict) + 2) + "|"]
    rows = [
        f"| {level} | {sum(counted[level, one] for one in Verdict)} | "
        + " | ".join(str(counted[level, one] or "") for one in Verdict)
        + " |"
        for level in Level
    ]
    return "\n".join([*head, *rows, ""])


def _section(title: str, lines: Sequence[Line]) -> str:
    rows = [f"| {line.number} | {line.level} | {line.says} | {_ways(line)} | {_result(line)} |" for line in lines]
    return "\n".join(
        [f"## {title}\n", "| number | level | requirement | checked over | result |", "| --- " * 5 + "|", *rows, ""]
    )


def _ways(line: Line) -> str:
    return ", ".join(_SHOWN.get(way, way.value) for way in line.ways)


def _result(line: Line) -> str:
    return f"{line.verdict}: {line.why}" if line.why else str(line.verdict)
