from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from a2a_sync.cli.text import clean_json, clean_line
from a2a_sync.display import clean
from tests.cli.agents import HOSTILE

# Surrogates too: they can be in what a broken peer sent.
ANYTHING = st.text(st.characters())


def test_escape_sequences_lose_what_makes_them_work() -> None:
    assert clean(HOSTILE) == "[31mred[0m 2Jclear bell rightover"


def test_tabs_and_line_feeds_stay() -> None:
    assert clean("a\tb\nc\r\n") == "a\tb\nc\n"


@given(ANYTHING)
def test_cleaned_text_holds_no_control_character_but_tab_and_line_feed(text: str) -> None:
    assert not [char for char in clean(text) if unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n"]


@given(ANYTHING, st.integers(1, 50))
def test_a_clean_line_is_one_line_of_bounded_length(text: str, limit: int) -> None:
    line = clean_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_json_stays_the_same_value_and_is_safe_to_print(value: dict[str, object]) -> None:
    text = clean_json(value)
    assert json.loads(text) == value
    assert clean(text) == text
