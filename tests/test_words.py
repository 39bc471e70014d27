"""The words of this project: a short list of expressions that have a standard term in English or are not needed.

Every text file is searched: code, docstrings, comments, error messages, documentation and tests. Names count too, so that
`is_told` and `who=` are found. ``python -m tests.test_words`` prints each hit with its line.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: What is searched.
TREES = (
    "a2a_sync",
    "docs",
    "examples",
    "tests",
    ".ci",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "setup.cfg",
    "pyproject.toml",
)
SUFFIXES = {".py", ".md", ".toml", ".cfg", ".mjs", ".js", ".html", ".sh", ""}
#: Not searched: this list itself, and texts of the protocol.
EXEMPT = ("tests/test_words.py", "tests/spec/")

#: Expressions, as regular expressions without regard to case, each with what to write in their place.
BANNED = {
    r"whoever|whomever|whom": "name the component: the caller, the client, the reader",
    r"somebody|nobody|everybody|anybody": "name the component: another caller, no reader, all workers",
    r"told|tells?|telling": "report, send, notify, pass, show; `distinguish` for `tell apart`",
    r"tak(?:e|es|en|ing)\s+up|took\s+up": "resume, continue, start",
    r"st(?:and|ands|anding|ood)\s+in": "is, is listed in, is stored in, replaces",
    r"hear(?:s|d|ing)?\s+of": "receive, notice, be notified",
    r"rooms?": "module, folder, space",
    r"heed(?:s|ed|ing)?": "apply, follow, respect",
    r"anew": "again, new",
    r"forgotten": "evicted, deleted, discarded",
    r"surroundings?": "context, run context",
    r"patiently": "with retries",
    r"in\s+vain": "without success, until the time is over",
    r"for\s+good": "permanently",
    r"(?:say|says|saying|said)\s+nothing|nothing\s+to\s+say": "omit, not mention, send nothing",
    r"(?:keep|keeps|kept|keeping) house|at home|way home": "say what is done",
}
#: Words after which "who" speaks of a person. A component is not a "who".
PERSONS = {
    "anyone", "attacker", "attackers", "author", "authors", "contributor", "contributors", "developer", "developers",
    "engineer", "engineers", "everyone", "maintainer", "maintainers", "one", "operator", "operators", "people", "person",
    "persons", "reader", "readers", "someone", "user", "users",
}  # fmt: skip

EXPRESSIONS = {re.compile(words, re.IGNORECASE): advice for words, advice in BANNED.items()}
#: All of them in one search.
ANY = re.compile(rf"(?<![a-z])(?:{'|'.join(BANNED)})(?![a-z])", re.IGNORECASE)
WHO = re.compile(r"(?<![a-z])who(?![a-z])", re.IGNORECASE)
#: The word before, with nothing but white space, a comma and the marks of comments and quotations in between.
BEFORE = re.compile(r"([\w'-]+)[\s#>|*,]*\Z")


def texts() -> list[str]:
    """The paths of all files that are searched, relative to the project."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *TREES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split("\n")
    return sorted(
        {
            path
            for path in listed
            if path and Path(path).suffix in SUFFIXES and not path.startswith(EXEMPT) and (ROOT / path).is_file()
        }
    )


def hits(text: str) -> Iterator[tuple[int, str, str]]:
    """Each banned expression in `text`: its line number, itself, and what to write in its place."""
    found = [
        (
            one.start(),
            one.group(),
            next(advice for words, advice in EXPRESSIONS.items() if words.fullmatch(one.group())),
        )
        for one in ANY.finditer(text)
    ]
    for one in WHO.finditer(text):
        before = BEFORE.search(text, max(0, one.start() - 60), one.start())
        if before is None or before[1].lower() not in PERSONS:
            found.append((one.start(), one.group(), "name the component, or write `that` and `which`"))
    for start, words, advice in sorted(found):
        yield text.count("\n", 0, start) + 1, " ".join(words.split()), advice


def hits_of(path: str) -> list[str]:
    return [
        f"{path}:{line}: {words!r}: {advice}" for line, words, advice in hits((ROOT / path).read_text(errors="replace"))
    ]


@pytest.mark.slow
def test_no_file_uses_a_banned_expression() -> None:
    found = [hit for path in texts() for hit in hits_of(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Whoever asks is told.", ["Whoever", "told"]),
        ("def is_told(who: str) -> None: ...", ["told", "who"]),
        ("the client who calls", ["who"]),
        ("# the users\n# who call", []),
        ("an author, who writes", []),
        ("This room stands\nin for that", ["room", "stands in"]),
        ("It waits in\nvain and says nothing for good.", ["in vain", "says nothing", "for good"]),
        ("the whole of toldo, headroom, whose, steller", []),
    ],
)
def test_hits_are_found_in_prose_and_in_names(text: str, expected: list[str]) -> None:
    assert [words for _, words, _ in hits(text)] == expected


def main() -> None:
    for path in texts():
        print("\n".join(hits_of(path)), end="\n" if hits_of(path) else "")


if __name__ == "__main__":
    main()
