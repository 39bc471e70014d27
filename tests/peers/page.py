"""The page about other implementations, made from what their tests saw: ``python -m tests.peers.page FOLDER [--write]``.

`FOLDER` holds the records of a run of all suites (see `record`). Without ``--write`` the page must say just what was seen; the
releases that it names are those of the run it was written from, and are not compared.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.live import ROOT
from tests.peers.record import OURS, ROWS, THEIRS, Seen

PAGE = ROOT / "docs" / "interop.md"
SEEN_WITH = "Releases that this was seen with:"


@dataclass(frozen=True)
class Peer:
    """An implementation; `lacks` are the operations that its client has no method for."""

    key: str
    title: str
    about: str
    roles: tuple[str, ...] = (OURS, THEIRS)
    lacks: frozenset[str] = frozenset()


COMPATIBLE = "It speaks 0.3 where it is told to be compatible."
PEERS = (
    Peer("python", "Python, newest", f"The official SDK. {COMPATIBLE}"),
    Peer(
        "python-03",
        "Python, 0.3",
        "The last release of the official SDK that speaks 0.3 and nothing else.",
        lacks=frozenset({"ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"}),
    ),
    Peer("js", "JavaScript, newest", f"The official SDK on Node. {COMPATIBLE}"),
    Peer("js-03", "JavaScript, 0.3", "The last release of the official SDK on Node that speaks 0.3 and nothing else."),
    Peer(
        "fasta2a",
        "fasta2a",
        "A library for Python, tested as a server: its client speaks the methods of 0.3 with the objects of 1.0.",
        (OURS,),
    ),
)

#: Operations that no peer has in 0.3: JSON-RPC has no name for them, and no other implementation has the path of HTTP+JSON.
NOT_IN_0_3 = frozenset({"ListTasks"})

HEAD = """# Other implementations

What was seen to work between this library and others, as they are released: every operation, in both roles, in each protocol
version and binding that the other one speaks. The page is made from a run of the tests in `tests/interop`, `tests/interop03`
and `tests/interopjs` (`make interop`), which fail where it is wrong; `make interop-page` writes it anew.

**yes**: tests passed. A number: the other one goes its own way there, as the note below the table says, with the section of the
specification. A test holds that too, so the note goes when the other one changes. Names of files are not compared in HTTP+JSON of
0.3, whose proto has none. **not implemented**: `GET /v1/tasks` of 0.3, which this library serves and calls, but no other one here.

Beside the tables: clients of the official SDKs, the newest for Python and both for JavaScript, authenticate with bearer tokens
and API keys, and are told 401 and 403 where they may not call. What their servers post to webhooks is taken by
`WebhookReceiver`, and what ours posts is read by what the newest ones have for it. Of a webhook's token and credentials, servers
on the newest SDK for JavaScript send the credentials, those on the last one of 0.3 the token: a receiver that wants both refuses
them.
"""


@dataclass
class Cell:
    """What was seen of one operation in one column."""

    passed: bool = False
    failed: bool = False
    notes: list[str] = field(default_factory=list)


class Section:
    """The table of one peer."""

    def __init__(self, peer: Peer, seen: list[Seen]) -> None:
        self.peer = peer
        self._cells: dict[tuple[str, str, str], Cell] = defaultdict(Cell)
        for one in seen:
            cell = self._cells[one.role, one.way, one.row]
            cell.passed |= one.passed and not one.departure
            cell.failed |= not one.passed
            if one.departure and one.departure not in cell.notes:
                cell.notes.append(one.departure)
        self.releases = {one.release for one in seen}
        ways = {(one.role, one.way) for one in seen}
        self.columns = sorted(ways, key=lambda column: (column[0] != OURS, column[1][:3] != "1.0", "HTTP" in column[1]))
        self.notes: list[str] = []

    def problems(self) -> list[str]:
        """Cells of which nothing was seen, and tests that failed."""
        seen = {role for role, _ in self.columns}
        told = [f"{self.peer.key}, {role}: nothing was seen" for role in self.peer.roles if role not in seen]
        for role, way in self.columns:
            for row in ROWS:
                cell = self._cells.get((role, way, row))
                if cell is None and not self._absent(role, way, row):
                    told.append(f"{self.peer.key}, {role}, {way}: no test of {row}")
                elif cell is not None and cell.failed:
                    told.append(f"{self.peer.key}, {role}, {way}: a test of {row} failed")
        return told

    def _absent(self, role: str, way: str, row: str) -> str:
        """Why there is nothing to see."""
        if way.startswith("0.3") and row in NOT_IN_0_3:
            return "not implemented" if "HTTP" in way else "not in 0.3"
        return "no such method" if role == THEIRS and row in self.peer.lacks else ""

    def _text(self, role: str, way: str, row: str) -> str:
        if absent := self._absent(role, way, row):
            return absent
        cell = self._cells[role, way, row]
        return " ".join(filter(None, ("yes" if cell.passed else "", ", ".join(map(self._number, cell.notes)))))

    def _number(self, note: str) -> str:
        if note not in self.notes:
            self.notes.append(note)
        return f"({self.notes.index(note) + 1})"

    def lines(self) -> list[str]:
        """The section as Markdown."""
        heads = [f"{role}, {way}" for role, way in self.columns]
        rows = [[row, *(self._text(role, way, row) for role, way in self.columns)] for row in ROWS]
        table = [heads_line(["", *heads]), heads_line(["---"] * (len(heads) + 1)), *map(heads_line, rows)]
        notes = [f"{number}. {note[0].upper()}{note[1:]}." for number, note in enumerate(self.notes, 1)]
        return [f"## {self.peer.title}", "", self.peer.about, "", *table, "", *([*notes, ""] if notes else [])]


def heads_line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def read(folder: Path) -> list[Seen]:
    """What the tests left in a folder."""
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines())
    return [Seen(**json.loads(line)) for line in lines]


def sections(seen: list[Seen]) -> list[Section]:
    return [Section(peer, [one for one in seen if one.peer == peer.key]) for peer in PEERS]


def page(made: list[Section]) -> str:
    """The whole page."""
    named = ", ".join(f"`{release}`" for section in made for release in sorted(section.releases))
    return (
        "\n".join([HEAD, f"{SEEN_WITH} {named}.", "", *(line for section in made for line in section.lines())]).rstrip(
            "\n"
        )
        + "\n"
    )


def without_releases(text: str) -> str:
    return re.sub(rf"(?m)^{SEEN_WITH}.*$", "", text)


def main(arguments: list[str]) -> int:
    folder, write = Path(arguments[0]), "--write" in arguments
    made = sections(read(folder))
    problems = [problem for section in made for problem in section.problems()]
    text = page(made)
    if problems:
        print(*problems, sep="\n")
        return 1
    if write:
        PAGE.write_text(text)
    elif without_releases(PAGE.read_text()) != without_releases(text):
        print(f"{PAGE.relative_to(ROOT)} does not say what was seen: make interop-page writes it anew")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
