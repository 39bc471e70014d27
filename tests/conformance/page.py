"""The page of the documentation that tells how the suite ended: written by ``make conformance`` from a run."""

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

The specification of A2A, taken apart into numbered lines that can be tested: `V1` is protocol 1.0, `V03` protocol 0.3, `DUAL` both
at one address. The levels are the specification's; SDK is what the official SDKs do where it is silent, CHOICE what this
library decided there. Each line that says *met* or *differs* has a check in `tests/conformance`, which speaks to the agent in
bytes of its own making: over JSON-RPC (rpc), over HTTP+JSON (rest), or as the agent that a client calls.

`make conformance` runs them and writes this page; they are part of `make check`. Where one sentence does not say why this library
differs, [departures](reference/departures.md) do.
"""
_PROOF = """\
## What the checks find

Each of these is this library with one thing broken on purpose. The checks of that line must find it.

| number | variant | what is wrong |
| --- | --- | --- |
"""
_OTHER = """\
## Another server

The same checks against a server on the official `a2a-sdk` (1.3.0; `make interop`). It does not meet these lines; all others that it
offers something for, it does.

| number | in short | what it does |
| --- | --- | --- |
"""
_SHOWN = {Way.RPC_03: "rpc", Way.REST_03: "rest"}


def render() -> str:
    """The page, as it is when every check passes."""
    sections = [_section(f"{one.letter}. {one.title}", one.ordered()) for one in SECTIONS]
    variants = "".join(f"| {one.number} | {name} | {one.says} |\n" for name, one in VARIANTS.items())
    lines = [line for one in SECTIONS for line in one.lines]
    said = {line.number: line.says for line in lines}
    departures = "".join(f"| {number} | {said[number]} | {what} |\n" for number, what in DEPARTURES.items())
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
    return "\n".join([f"## {title}\n", "| number | level | in short | seen | result |", "| --- " * 5 + "|", *rows, ""])


def _ways(line: Line) -> str:
    return ", ".join(_SHOWN.get(way, way.value) for way in line.ways)


def _result(line: Line) -> str:
    return f"{line.verdict}: {line.why}" if line.why else str(line.verdict)
