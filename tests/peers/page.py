"""Generates docs/interop.md from the records of a test run: ``python -m tests.peers.page FOLDER [--write]``.

`FOLDER` holds the records of a run of all suites (see `record`). Without ``--write`` the page is compared with the records. The
releases named on the page are those of the run that generated it; they are not compared.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.live import ROOT
from tests.peers.record import OURS, ROWS, THEIRS, Observation

PAGE = ROOT / "docs" / "interop.md"
TESTED_RELEASES = "Tested releases:"


@dataclass(frozen=True)
class Peer:
    """An implementation. `lacks` lists the operations that its client does not implement."""

    key: str
    title: str
    about: str
    roles: tuple[str, ...] = (OURS, THEIRS)
    lacks: frozenset[str] = frozenset()


COMPATIBILITY = "It speaks 0.3 if its compatibility option is set."
PEERS = (
    Peer("python", "Python, newest", f"The official SDK. {COMPATIBILITY}"),
    Peer(
        "python-03",
        "Python, 0.3",
        "The last release of the official SDK that speaks only 0.3.",
        lacks=frozenset({"ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"}),
    ),
    Peer("js", "JavaScript, newest", f"The official SDK on Node. {COMPATIBILITY}"),
    Peer("js-03", "JavaScript, 0.3", "The last release of the official SDK on Node that speaks only 0.3."),
    Peer(
        "fasta2a",
        "fasta2a",
        "A Python library, tested as a server only: its client calls the methods of 0.3 with the objects of 1.0.",
        (OURS,),
    ),
)

#: Operations that no peer supports in 0.3: JSON-RPC has no method, and no other implementation serves the path of HTTP+JSON.
NOT_IN_0_3 = frozenset({"ListTasks"})

HEAD = """# Other implementations

The operations that were verified between this library and other implementations, in both roles, in each protocol version and
binding that the other implementation supports. The page is generated from a run of the tests in `tests/interop`,
`tests/interop03` and `tests/interopjs`: `make interop` fails if the page differs from the results, and `make interop-page`
writes it.

**yes**: the tests pass. A number refers to a note below the table: a departure from the specification, with the section. A test
verifies each departure, so that a note is removed when the other implementation changes. **not implemented**: `GET /v1/tasks`
of 0.3, which this library serves and calls and none of the others does. Filenames are not compared over HTTP+JSON of 0.3, whose
proto does not have them.

Not in the tables: the clients of the official SDKs (the newest one for Python, and both for JavaScript) authenticate with bearer
tokens and API keys, and receive 401 or 403 for calls that are not allowed. `WebhookReceiver` accepts the notifications of their
servers, and the newest SDKs parse the notifications of this library. For a webhook with a token and credentials, servers on the
newest JavaScript SDK send only the credentials, and servers on the last one of 0.3 only the token, so a receiver that requires
both refuses them.

gRPC is not in the tables either; `test_grpc.py` in each of the three folders tests it in both roles with the official SDKs: streams, questions,
cancels, webhooks and errors, with the newest ones in 1.0 and 0.3. Departures: servers on the Python SDK of 0.3 encode files twice,
the JavaScript SDK of 0.3 sends a null in data as 0, and has no error class for a message that is refused.
"""


@dataclass
class Cell:
    """The observations of one operation in one column."""

    passed: bool = False
    failed: bool = False
    notes: list[str] = field(default_factory=list)


class Section:
    """The table of one peer."""

    def __init__(self, peer: Peer, seen: list[Observation]) -> None:
        self.peer = peer
        self._cells: dict[tuple[str, str, str], Cell] = defaultdict(Cell)
        for one in seen:
            cell = self._cells[one.role, one.transport, one.row]
            cell.passed |= one.passed and not one.departure
            cell.failed |= not one.passed
            if one.departure and one.departure not in cell.notes:
                cell.notes.append(one.departure)
        self.releases = {one.release for one in seen}
        transports = {(one.role, one.transport) for one in seen}
        self.columns = sorted(
            transports, key=lambda column: (column[0] != OURS, column[1][:3] != "1.0", "HTTP" in column[1])
        )
        self.notes: list[str] = []

    def problems(self) -> list[str]:
        """Cells without observations, and failed tests."""
        seen = {role for role, _ in self.columns}
        found = [f"{self.peer.key}, {role}: no records" for role in self.peer.roles if role not in seen]
        for role, transport in self.columns:
            for row in ROWS:
                cell = self._cells.get((role, transport, row))
                if cell is None and not self._absent(role, transport, row):
                    found.append(f"{self.peer.key}, {role}, {transport}: no test of {row}")
                elif cell is not None and cell.failed:
                    found.append(f"{self.peer.key}, {role}, {transport}: a test of {row} failed")
        return found

    def _absent(self, role: str, transport: str, row: str) -> str:
        """Why an operation has no observations, or an empty string."""
        if transport.startswith("0.3") and row in NOT_IN_0_3:
            return "not implemented" if "HTTP" in transport else "not in 0.3"
        return "no such method" if role == THEIRS and row in self.peer.lacks else ""

    def _text(self, role: str, transport: str, row: str) -> str:
        if absent := self._absent(role, transport, row):
            return absent
        cell = self._cells[role, transport, row]
        return " ".join(filter(None, ("yes" if cell.passed else "", ", ".join(map(self._number, cell.notes)))))

    def _number(self, note: str) -> str:
        if note not in self.notes:
            self.notes.append(note)
        return f"({self.notes.index(note) + 1})"

    def lines(self) -> list[str]:
        """The section in Markdown."""
        heads = [f"{role}, {transport}" for role, transport in self.columns]
        rows = [[row, *(self._text(role, transport, row) for role, transport in self.columns)] for row in ROWS]
        table = [heads_line(["", *heads]), heads_line(["---"] * (len(heads) + 1)), *map(heads_line, rows)]
        notes = [f"{number}. {note[0].upper()}{note[1:]}." for number, note in enumerate(self.notes, 1)]
        return [f"## {self.peer.title}", "", self.peer.about, "", *table, "", *([*notes, ""] if notes else [])]


def heads_line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def read(folder: Path) -> list[Observation]:
    """The records in a folder."""
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines())
    return [Observation(**json.loads(line)) for line in lines]


def sections(seen: list[Observation]) -> list[Section]:
    return [Section(peer, [one for one in seen if one.peer == peer.key]) for peer in PEERS]


def page(made: list[Section]) -> str:
    """The whole page."""
    named = ", ".join(f"`{release}`" for section in made for release in sorted(section.releases))
    return (
        "\n".join(
            [HEAD, f"{TESTED_RELEASES} {named}.", "", *(line for section in made for line in section.lines())]
        ).rstrip("\n")
        + "\n"
    )


def without_releases(text: str) -> str:
    return re.sub(rf"(?m)^{TESTED_RELEASES}.*$", "", text)


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
        print(f"{PAGE.relative_to(ROOT)} differs from the test results; `make interop-page` generates it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
