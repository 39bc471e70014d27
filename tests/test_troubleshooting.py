"""Every error text of the library is on the page of troubleshooting, and what the page quotes is in the library."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from a2a_sync import A2AApp, Agent, Client, Limits, Message, URLGuard
from a2a_sync.lifecycle import TRANSITIONS
from tests.live import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
from errortexts import ErrorText, error_texts  # noqa: E402

PAGE = (DOCS / "troubleshooting.md").read_text()
ADVICE, _, INDEX = PAGE.partition("## All error texts")


def listed(areas: str) -> set[str]:
    """The folders that a table of the page names; ``*`` is the rest."""
    return set(re.findall(r"[\w*]+", areas))


def on_the_page() -> list[ErrorText]:
    """What the tables of the page show when it is built."""
    named = [listed(areas) for areas in re.findall(r"^\.\. error-texts:: (.+)$", INDEX, re.MULTILINE)]
    assert {"*"} in named
    assert sum(map(len, named)) == len(set().union(*named)), "an area is listed twice"
    return error_texts()


def agent_without_handler() -> None:
    with Client(Agent("empty")) as client:
        client.send("hi")


ERRORS: dict[str, Callable[[], object]] = {
    "a class in place of an instance": lambda: A2AApp(Agent),
    "no handler": agent_without_handler,
    "a store that does not exist": lambda: A2AApp(Agent("a"), store="mysql://x"),
    "a URL that is none": lambda: Client("agent.example.com"),
    "a limit that is no number": lambda: Limits(max_body_bytes="1"),  # type: ignore[arg-type]
    "a message without parts": lambda: Message.user(),
    "a private address": lambda: URLGuard().check("http://127.0.0.1/"),
    "no host": lambda: URLGuard().check("http://"),
    "an unexpected argument": lambda: Client(Agent("a")).send("hi", wait=True),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("fails", ERRORS.values(), ids=ERRORS.keys())
def test_an_error_that_a_program_sees_is_found_on_the_page(fails: Callable[[], object]) -> None:
    with pytest.raises(Exception) as error:
        fails()
    assert [one for one in on_the_page() if one.matches(str(error.value))], error.value


def test_every_raise_with_a_text_is_found_by_the_page() -> None:
    """Compared with a search by regular expression, which knows nothing of how the page is made."""
    shown = {one.text for one in on_the_page()}
    assert len(shown) > 500
    for path in sorted((ROOT / "a2a_sync").rglob("*.py")):
        for text in re.findall(r'^ *raise \w+(?:Error|Exception)\("([^"\\]+)"\)', path.read_text(), re.MULTILINE):
            assert text in shown, f"{path}: {text}"


def quoted() -> Iterator[str]:
    """The messages in the first column of the tables of causes."""
    for line in ADVICE.splitlines():
        if line.startswith("| `"):
            yield re.findall(r"`([^`]+)`", line)[0]


def strings_of_the_library() -> set[str]:
    """Every text in the sources but docstrings, with ``…`` for what is filled in."""
    found = set()
    for path in (ROOT / "a2a_sync").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [value.value if isinstance(value, ast.Constant) else "…" for value in node.values]
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_a_message_that_the_page_explains_is_in_the_library() -> None:
    strings = {re.sub("…+", "…", text) for text in strings_of_the_library() | {one.text for one in error_texts()}}
    quotes = [re.sub("…+", "…", text) for text in quoted()]
    assert len(quotes) > 40
    for text in quotes:
        pieces = [piece.strip() for piece in text.split("…") if piece.strip(" ().,;:")]
        assert any(all(piece in string for piece in pieces) for string in strings), text


def test_the_diagram_of_states_has_only_allowed_arrows() -> None:
    source = (DOCS / "diagrams" / "states.dot").read_text()
    arrows = set(re.findall(r"^  +(\w+) -> (\w+)", source, re.MULTILINE))
    allowed = {
        (old.value.replace("-", "_"), new.value.replace("-", "_"))
        for old, after in TRANSITIONS.items()
        for new in after
    }
    states = {name for arrow in arrows for name in arrow} - {"start"}
    assert arrows - {("start", "submitted")} <= allowed
    assert states == {state.value.replace("-", "_") for state in TRANSITIONS if state.name != "UNSPECIFIED"}
