"""The requirements as a table: number, level, a short description, and a check.

The modules of a section add lines to its `Section`. A line has a check, or the reason why it has none. A check calls a `System`
over one `Way` and asserts on the bytes of the wire, independent of the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest


class Level(StrEnum):
    """The level of a requirement. The last two are not of the specification: behaviour of the SDKs, and decisions of this library."""

    MUST = "MUST"
    MUST_NOT = "MUST NOT"
    SHOULD = "SHOULD"
    SHOULD_NOT = "SHOULD NOT"
    MAY = "MAY"
    SDK = "SDK"
    CHOICE = "CHOICE"


class Verdict(StrEnum):
    """The result of a line for this library."""

    MET = "met"
    DIFFERS = "differs"
    UNMET = "not met"
    ABSENT = "not offered"
    UNTESTED = "not tested"


class Way(StrEnum):
    """How a check reaches the agent: over a binding of a version, or (CLIENT) as the agent that a client calls."""

    RPC = "rpc"
    REST = "rest"
    RPC_03 = "rpc-0.3"
    REST_03 = "rest-0.3"
    GRPC = "grpc"
    GRPC_03 = "grpc-0.3"
    CLIENT = "client"

    @property
    def version(self) -> str:
        return "0.3" if self.endswith("0.3") else "1.0"

    @property
    def rest(self) -> bool:
        return self.startswith("rest")


BOTH = (Way.RPC, Way.REST)
#: For checks of what no binding adds anything to.
ALL = (*BOTH, Way.GRPC)
BOTH_03 = (Way.RPC_03, Way.REST_03)

#: The number of requirements of each area, in order.
AREAS = {
    "V1-ENC": 18,
    "V1-VAL": 13,
    "V1-SEND": 12,
    "V1-MODE": 6,
    "V1-GET": 3,
    "V1-HIST": 7,
    "V1-LIST": 14,
    "V1-CANC": 6,
    "V1-STRM": 12,
    "V1-ORD": 5,
    "V1-SUB": 6,
    "V1-CTX": 8,
    "V1-PUSHC": 12,
    "V1-PUSHD": 11,
    "V1-CARD": 7,
    "V1-CACHE": 5,
    "V1-XCARD": 5,
    "V1-SIGN": 3,
    "V1-CAP": 2,
    "V1-EXT": 5,
    "V1-VER": 6,
    "V1-RPC": 18,
    "V1-REST": 13,
    "V1-GRPC": 12,
    "V1-QRY": 4,
    "V1-BIND": 4,
    "V1-ERR": 5,
    "V1-AUTH": 6,
    "V1-INTASK": 4,
    "V1-SEC": 5,
    "V1-CVER": 4,
    "V1-CSEL": 5,
    "V1-CCARD": 6,
    "V1-CERR": 3,
    "V1-CSTR": 5,
    "V1-CLIST": 1,
    "V1-CMSG": 3,
    "V1-CREST": 2,
    "V1-HOOK": 6,
    "V03-CARD": 7,
    "V03-RPC": 6,
    "V03-SEND": 11,
    "V03-TASK": 4,
    "V03-STRM": 7,
    "V03-PUSH": 8,
    "V03-ERR": 2,
    "V03-XCARD": 3,
    "V03-REST": 5,
    "V03-GRPC": 5,
    "V03-AUTH": 2,
    "V03-EXT": 1,
    "V03-C": 5,
    "DUAL": 11,
}


def place(number: str) -> tuple[int, str]:
    """The position of a number in the requirements."""
    area = number.rpartition("-")[0]
    return [*AREAS].index(area), number


Check = Callable[[Any], None]


#: The exceptions of a failed check; that of pytest is not an `Exception`.
FAILURES = (Exception, pytest.fail.Exception)


@dataclass(frozen=True)
class Line:
    """A requirement. `check` is called with `System.subject(way)`; `why` is the reason of a verdict other than MET."""

    number: str
    level: Level
    says: str
    verdict: Verdict
    why: str = ""
    ways: tuple[Way, ...] = ()
    check: Check | None = None


@dataclass
class Section:
    """A section of the requirements: a letter, a title, and its lines."""

    letter: str
    title: str
    ways: tuple[Way, ...]
    lines: list[Line] = field(default_factory=list)

    def line(
        self, number: str, level: Level, says: str, *, ways: tuple[Way, ...] | None = None, differs: str = ""
    ) -> Callable[[Check], Check]:
        """Decorator: the function checks that the line is met, or, with the reason `differs`, what the library does instead."""
        verdict = Verdict.DIFFERS if differs else Verdict.MET

        def add(check: Check) -> Check:
            self.lines.append(Line(number, level, says, verdict, differs, ways or self.ways, check))
            return check

        return add

    def without_check(self, number: str, level: Level, says: str, verdict: Verdict, why: str) -> None:
        """Add a line that is not met, not offered or not tested, with the reason."""
        assert verdict not in (Verdict.MET, Verdict.DIFFERS)
        self.lines.append(Line(number, level, says, verdict, why))

    def ordered(self) -> list[Line]:
        """The lines in the order of the requirements."""
        return sorted(self.lines, key=lambda line: place(line.number))

    def cases(self) -> Iterator[tuple[Line, Way]]:
        """All checks with their ways, in order."""
        return ((line, way) for line in self.ordered() if line.check is not None for way in line.ways)


A = Section("A", "Version 1.0: encoding and validation", ALL)
B = Section("B", "Version 1.0: operations", ALL)
C = Section("C", "Version 1.0: push, card, capabilities, extensions, versions", ALL)
D = Section("D", "Version 1.0: bindings and errors", ALL)
E = Section("E", "Version 1.0: authentication, authorization, security", ALL)
F = Section("F", "Version 1.0: the client", (Way.CLIENT,))
G = Section("G", "Version 0.3", (Way.RPC_03,))
H = Section("H", "Both versions at one endpoint", (Way.RPC,))
