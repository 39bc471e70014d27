"""The prose of the documentation: ``python .ci/prose.py`` (``make prose``): spelling, reading level, and links between pages.

- codespell but for the words of `.ci/words.txt`.
- The reading level of each page: the Flesch reading ease of its paragraphs is at least `EASE`, and no sentence has more than
  `MAX_WORDS` words. Both are the usual limits for plain English, and no page has others.
- Each link to a file, and to a heading of a page, leads somewhere. `--online` also requests the addresses of other sites.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
]
#: The least Flesch reading ease of a page: from 60 on, a text is plain English. Names of code count as words of one syllable.
EASE = 60.0
#: The words of the longest sentence.
MAX_WORDS = 40
#: Paragraphs are judged together, and fewer words than these say little.
_FEW_WORDS = 80


def spelling() -> list[str]:
    """What codespell finds in the texts, docstrings and comments of the repository."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [
        name
        for name in listed
        if name.endswith((".py", ".md", ".html", ".cfg", ".toml", ".dot")) and "spec/" not in name
    ]
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words", ".ci/words.txt", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return [line for line in done.stdout.splitlines() if line.strip()]


def prose(text: str) -> str:
    """The paragraphs of a page, without code, tables, headings, lists of links and marks."""
    text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\n\n(?: {4,}.*\n)+", "\n\n", text)
    lines = [line for line in text.splitlines() if not re.match(r" *(\||#|<|!\[)", line)]
    text = "\n".join(lines)
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)
    # A name of code is one word of one syllable.
    text = re.sub(r"`[^`]+`", "name", text)
    # Each item of a list is a paragraph of its own.
    text = re.sub(r"^ *([-*]|\d+\.) +", "\n", text, flags=re.MULTILINE)
    return re.sub(r"[*_]", "", text)


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence. A colon ends one where a list or code follows."""
    parts = re.split(r"[.!?](?:\s|$)|:?\n\s*\n", text)
    return [words for one in parts if (words := re.findall(r"[A-Za-z'][A-Za-z'-]*", one))]


def syllables(word: str) -> int:
    """The syllables of a word: its groups of vowels but for silent endings."""
    plain = re.sub(r"(?:[^laeiouy]es|[^td]ed|[^aeiouyl]e)$", lambda found: found[0][0], word.lower().strip("'"))
    return max(1, len(re.findall(r"[aeiouy]{1,2}", re.sub(r"^y", "", plain))))


def reading_ease(found: list[list[str]]) -> float:
    """The Flesch reading ease of sentences: 206.8, less a share for long sentences and one for long words."""
    words = [word for sentence in found for word in sentence]
    return 206.835 - 1.015 * len(words) / len(found) - 84.6 * sum(map(syllables, words)) / len(words)


def reading_levels() -> Iterator[tuple[float, str]]:
    """The reading ease of each page with enough words, by its path."""
    for path in PAGES:
        found = sentences(prose(path.read_text()))
        if sum(map(len, found)) >= _FEW_WORDS:
            yield reading_ease(found), str(path.relative_to(ROOT))


def long_sentences() -> list[str]:
    """The sentences with too many words."""
    return [
        f"{path.relative_to(ROOT)}: a sentence of {len(words)} words, more than {MAX_WORDS}: {' '.join(words)[:200]} …"
        for path in PAGES
        for words in sentences(prose(path.read_text()))
        if len(words) > MAX_WORDS
    ]


def hard_to_read() -> list[str]:
    """The pages below their least ease."""
    return [
        f"{path}: reading ease {ease:.0f}, less than {EASE:.0f}: shorter sentences and words are needed"
        for ease, path in reading_levels()
        if ease < EASE
    ]


def anchors(path: Path) -> set[str]:
    """The anchors of the headings of a page, as MyST and GitHub make them."""
    text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", one)).lower().strip() for one in headings]
    return {one.replace(" ", "-") for one in plain}


def links(path: Path) -> Iterator[str]:
    """The targets of the links of a page."""
    text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from (target.split()[0] for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"`[^`\n]*`", "", text)))


def broken_links() -> list[str]:
    """The links of all pages that lead nowhere in the repository."""
    broken = []
    for path in PAGES:
        for target in links(path):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            if not file.exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}: there is no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                broken.append(f"{path.relative_to(ROOT)}: {target}: the page has no such heading")
    return broken


def dead_addresses() -> list[str]:
    """The addresses of other sites that do not answer, or with an error."""
    import requests

    found = {target for path in PAGES for target in links(path) if target.startswith("http")}
    dead = []
    for address in sorted(found - {one for one in found if "127.0.0.1" in one or "example.com" in one}):
        try:
            status = requests.get(address, timeout=20, stream=True, headers={"User-Agent": "a2a-sync-docs"}).status_code
        except requests.RequestException as error:
            dead.append(f"{address}: {type(error).__name__}")
        else:
            if status in (404, 410):
                dead.append(f"{address}: HTTP {status}")
    return dead


def main() -> None:
    failures = [*spelling(), *hard_to_read(), *long_sentences(), *broken_links()]
    if "--online" in sys.argv:
        failures += dead_addresses()
    if "--levels" in sys.argv:
        for ease, path in sorted(reading_levels()):
            print(f"{ease:5.0f}  {path}")
    if failures:
        sys.exit("\n".join(failures))
    print(f"{len(PAGES)} pages: spelling, reading level and links are in order")


if __name__ == "__main__":
    main()
