"""Every page of the documentation does what it says (see `tests.pages`), and says what is in the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live import ROOT
from tests.pages import Page, needs_server, read

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)]


def as_parameter(path: Path) -> object:
    marks = [pytest.mark.live] if needs_server(path) else []
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("path", [as_parameter(path) for path in PAGES if read(path)])
def test_what_a_page_shows_is_what_happens(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Page(path, tmp_path).run()
