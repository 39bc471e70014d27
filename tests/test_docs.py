"""Every page of the documentation does what it says (see `tests.pages`), and says what is in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.pages import Page, needs_server, read

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)]


#: Pages whose programs take many seconds of processor time.
LONG = {DOCS / "howto" / "testing.md"}


def as_parameter(path: Path) -> object:
    marks = [
        mark for mark, holds in ((pytest.mark.live, needs_server(path)), (pytest.mark.slow, path in LONG)) if holds
    ]
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=marks)


# A page may start many processes, which take their time on a machine with other load.
@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", [as_parameter(path) for path in PAGES if read(path)])
def test_what_a_page_shows_is_what_happens(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Page(path, tmp_path).run()


def page(folder: Path, text: str) -> Page:
    path = folder / "page.md"
    path.write_text(text)
    return Page(path, folder)


WRONG = {
    "value": "```python\n1 + 1  # 3\n```\n",
    "no value": "```python\nname = 1\nname\n```\n",
    "output": "```python\nprint(2)\n```\n\n```text\n3\n```\n",
    "output not shown": "```python\nprint(2)\n```\n",
    "output not made": "```python\nname = 1\n```\n\n```text\n3\n```\n",
    "exit code": "<!-- exit code: 4 -->\n```sh\npython -c 'pass'\n```\n",
    "option": "```sh\na2a-sync card --no-such-option http://127.0.0.1:8000\n```\n",
    "unknown command": "```sh\ncurl http://127.0.0.1:8000\n```\n",
    "no reason": "<!-- not run: why -->\n```python\n1\n```\n",
    "unknown note": "<!-- skip: because I say so -->\n```python\n1\n```\n",
    "unknown language": "```ruby\n1\n```\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_a_page_that_is_wrong_is_found_out(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        page(tmp_path, text).run()


def test_a_page_that_is_right_passes_with_files_values_output_and_anything_where_it_says_so(tmp_path: Path) -> None:
    text = "```python\n# saved.py\nvalue = 2\n```\n\n```python\nfrom saved import value\n\nvalue  # 2\nprint(1, value, 3)\n```\n\n"
    page(tmp_path, text + "```text\n1 … 3\n```\n\n```sh\npython saved.py\n```\n").run()
    assert (tmp_path / "saved.py").read_text() == "# saved.py\nvalue = 2\n"


def test_every_line_of_the_guarantees_names_a_test_that_exists() -> None:
    promised, _, _ = (DOCS / "explanation" / "guarantees.md").read_text().partition("## What is not promised")
    _, _, faults = (DOCS / "explanation" / "scale.md").read_text().partition("## Faults and their tests")
    lines = [*promised.splitlines(), *faults.splitlines()]
    rows = [line for line in lines if line.startswith("|") and not line.startswith(("| ---", "| event", "| fault"))]
    assert len(rows) > 20
    for row in rows:
        path, _, name = row.rstrip("| ").rpartition("| ")[2].strip("`").partition("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text(), row


def test_the_readme_is_short_with_one_screenshot_and_one_recording() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") < 120
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", text)
    assert sorted(Path(name).suffix for name in pictures) == [".png", ".svg"]
    assert all((ROOT / name).is_file() for name in pictures)
