"""Texts of agents as safe HTML, and HTML as a tree of which the browser builds elements.

Nothing of an agent is ever HTML: Markdown is rendered without raw HTML and without images, and the result is sanitised by nh3.
The browser receives trees, never HTML strings, so its policy can forbid those altogether (``trusted-types 'none'``).
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from a2a_sync.concurrency.keyedlocks import KeyedLocks

#: A text above this size, and the texts of a page after this many characters, are shown as they are: rendering needs as many as
#: ten microseconds for each character.
MAX_MARKDOWN, MAX_PAGE_MARKDOWN = 20_000, 50_000
#: Characters of one text that are shown at all, and of the HTML of one text: each use of a link's name repeats its address.
MAX_SHOWN = 500_000
#: Characters of HTML that count as one of Markdown for the page.
_HTML_SHARE = 10
#: Cells of the tables of a text that is rendered: each line of a table gets as many as its heading.
_MAX_CELLS = 10_000
#: Control characters but tabs and line breaks, characters that change the direction of text, and lone surrogates.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BETWEEN_BLOCKS = re.compile(r"\n[ \t>]*\n")
_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "a"),
    *("ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES: dict[str, set[str]] = {"a": {"href"}, "ol": {"start"}}
#: Elements without an end tag.
_VOID = {"br", "hr", "img", "input", "line", "rect"}


def clean(text: str) -> str:
    """`text` without characters that are invisible or change what is beside them."""
    return _UNFIT.sub("\ufffd", text)


def is_link(url: str) -> bool:
    """A link may lead to `url`: it has a scheme that runs no code, and no character that hides where it leads."""
    return url.lower().startswith(("https://", "http://", "mailto:")) and not re.search(r"[\s\x00-\x1f\x7f]", url)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"])
    # Images would be requests to other sites.
    parser.disable(["image", "html_block", "html_inline"])
    return parser


_MARKDOWN = _parser()
_locks = KeyedLocks()
#: The longest wait for another text, in seconds.
_MAX_WAIT = 5.0


def sanitise(html: str) -> str:
    """`html` with the elements and attributes of Markdown only, links made safe."""
    import nh3

    result: str = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        clean_content_tags={"script", "style"},
    )
    return result


def render_markdown(text: str) -> Markup:
    """Markdown as sanitised HTML; a text that is too long, or becomes too long, as it is."""
    if len(text) > MAX_MARKDOWN or _cells(text) > _MAX_CELLS:
        return _unrendered(text)
    # One thread at a time, with pauses: several would delay all requests of the process.
    release = _locks.acquire("markdown", _MAX_WAIT)
    try:
        html = _MARKDOWN.render(text)
        if len(html) > MAX_SHOWN:
            return _unrendered(text)
        # Cleaned after Markdown, which decodes character references.
        return Markup(clean(sanitise(html)))  # sanitised by nh3  # nosec B704
    finally:
        release()


def _cells(text: str) -> int:
    """The most cells that the tables of a text can have. A table ends at an empty line."""
    blocks = [block.split("\n") for block in _BETWEEN_BLOCKS.split(text)]
    return sum(len(lines) * max(line.count("|") for line in lines) for lines in blocks)


def _unrendered(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(clean(cut(text)))


def cut(text: str, most: int = MAX_SHOWN) -> str:
    """The beginning of a text that is too long for a page."""
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most} characters more"


class PageText:
    """The texts of one page, up to `MAX_SHOWN` characters together."""

    def __init__(self) -> None:
        self._left = MAX_SHOWN

    def __call__(self, text: str) -> str:
        """The text, or what is left for it."""
        shown = cut(text, self._left)
        self._left = max(0, self._left - len(text))
        return shown


class PageMarkdown:
    """`render_markdown` for the texts of one page, up to `MAX_PAGE_MARKDOWN` characters together."""

    def __init__(self) -> None:
        self._left = MAX_PAGE_MARKDOWN

    def __call__(self, text: str) -> Markup:
        """The text as HTML."""
        if len(text) > self._left:
            return _unrendered(text)
        html = render_markdown(text)
        self._left -= max(len(text), len(html) // _HTML_SHARE)
        return html


class _TreeBuilder(HTMLParser):
    """Collects elements as lists: name, attributes, children."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: list[Any] = ["div", {}]
        self._open: list[list[Any]] = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = [tag, {name: value or "" for name, value in attrs}]
        self._open[-1].append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].append([tag, {name: value or "" for name, value in attrs}])

    def handle_endtag(self, tag: str) -> None:
        for place in range(len(self._open) - 1, 0, -1):
            if self._open[place][0] == tag:
                del self._open[place:]
                return

    def handle_data(self, data: str) -> None:
        self._open[-1].append(data)


def as_tree(html: str) -> list[Any]:
    """`html` as nested lists: ``["div", {attributes}, child, …]``."""
    builder = _TreeBuilder()
    builder.feed(html)
    builder.close()
    return builder.root
