"""The lines of the requirements as a table: number, level, what is asked in few words, and how it is seen.

Each section is a module that fills a `Section`. A line has a check, or the reason why it has none. Checks speak to a
`System` in one `Way` and assert what is seen on the wire; they know nothing of what is behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest


class Level(StrEnum):
    """How much a line asks for. The last two are not the specification's: what official SDKs do, and what we chose."""

    MUST = "MUST"
    MUST_NOT = "MUST NOT"
    SHOULD = "SHOULD"
    SHOULD_NOT = "SHOULD NOT"
    MAY = "MAY"
    SDK = "SDK"
    CHOICE = "CHOICE"


class Verdict(StrEnum):
    """What becomes of a line here."""

    MET = "met"
    DIFFERS = "differs"
    UNMET = "not met"
    ABSENT = "not offered"
    UNTESTED = "not tested"


class Way(StrEnum):
    """How a check reaches the agent: a binding of a version, or (CLIENT) as the agent that a client calls."""

    RPC = "rpc"
    REST = "rest"
    RPC_03 = "rpc-0.3"
    REST_03 = "rest-0.3"
    CLIENT = "client"

    @property
    def version(self) -> str:
        return "0.3" if self.endswith("0.3") else "1.0"

    @property
    def rest(self) -> bool:
        return self.startswith("rest")


BOTH = (Way.RPC, Way.REST)
BOTH_03 = (Way.RPC_03, Way.REST_03)

#: How many numbers each area has, from 01 on, in the order of the requirements.
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
    "V03-AUTH": 2,
    "V03-EXT": 1,
    "V03-C": 5,
    "DUAL": 11,
}


def place(number: str) -> tuple[int, str]:
    """Where a number stands in the requirements."""
    area = number.rpartition("-")[0]
    return [*AREAS].index(area), number


Check = Callable[[Any], None]


#: What a check raises that fails; pytest's own is no `Exception`.
FAILURES = (Exception, pytest.fail.Exception)


@dataclass(frozen=True)
class Line:
    """One line. `check` takes what `System.subject` gives for a way; `why` is the reason of any verdict but MET."""

    number: str
    level: Level
    says: str
    verdict: Verdict
    why: str = ""
    ways: tuple[Way, ...] = ()
    check: Check | None = None


@dataclass
class Section:
    """One section of the requirements: a letter, a title, and the lines in their order."""

    letter: str
    title: str
    ways: tuple[Way, ...]
    lines: list[Line] = field(default_factory=list)

    def line(
        self, number: str, level: Level, says: str, *, ways: tuple[Way, ...] | None = None, differs: str = ""
    ) -> Callable[[Check], Check]:
        """Decorator: the function sees that the line is kept, or (`differs`: why) what is done in its place."""
        verdict = Verdict.DIFFERS if differs else Verdict.MET

        def add(check: Check) -> Check:
            self.lines.append(Line(number, level, says, verdict, differs, ways or self.ways, check))
            return check

        return add

    def without_check(self, number: str, level: Level, says: str, verdict: Verdict, why: str) -> None:
        """A line that is not met, not offered or not tested, and why."""
        assert verdict not in (Verdict.MET, Verdict.DIFFERS)
        self.lines.append(Line(number, level, says, verdict, why))

    def ordered(self) -> list[Line]:
        """The lines in the order of the requirements."""
        return sorted(self.lines, key=lambda line: place(line.number))

    def cases(self) -> Iterator[tuple[Line, Way]]:
        """Everything that can be run, in order."""
        return ((line, way) for line in self.ordered() if line.check is not None for way in line.ways)


A = Section("A", "Version 1.0: encoding and validation", BOTH)
B = Section("B", "Version 1.0: operations", BOTH)
C = Section("C", "Version 1.0: push, card, capabilities, extensions, versions", BOTH)
D = Section("D", "Version 1.0: bindings and errors", BOTH)
E = Section("E", "Version 1.0: authentication, authorization, security", BOTH)
F = Section("F", "Version 1.0: the client", (Way.CLIENT,))
G = Section("G", "Version 0.3", (Way.RPC_03,))
H = Section("H", "Both versions at one endpoint", (Way.RPC,))
