"""Texts of agents: what is left of them, each wall alone."""

from __future__ import annotations

import json
import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.console.payloads import ATTACKS

pytest.importorskip("nh3", reason="the extra 'console' is not installed")
pytest.importorskip("markdown_it", reason="the extra 'console' is not installed")

from a2a_sync.console.markup import (
    _MARKDOWN,
    MAX_MARKDOWN,
    MAX_SHOWN,
    PageMarkdown,
    as_tree,
    clean,
    is_link,
    render_markdown,
    sanitise,
)

TAG = re.compile(r"<\s*/?\s*(\w+)")
ALLOWED = {
    "p",
    "br",
    "hr",
    "em",
    "strong",
    "s",
    "code",
    "pre",
    "blockquote",
    "a",
    "ul",
    "ol",
    "li",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}


def check(html: str) -> None:
    assert {tag.lower() for tag in TAG.findall(html)} <= ALLOWED
    for element in re.findall(r"<[^>]*>", html):
        names = set(re.findall(r'\s([\w-]+)="', element))
        assert names <= {"href", "rel", "start"}
        assert not re.search(r'href="(?!https?:|mailto:)', element, re.IGNORECASE)


@pytest.mark.parametrize("attack", ATTACKS)
def test_markdown_renders_nothing_but_its_own_elements(attack: str) -> None:
    check(render_markdown(attack))


@pytest.mark.parametrize("attack", ATTACKS)
def test_markdown_alone_renders_no_raw_html(attack: str) -> None:
    html = _MARKDOWN.render(attack)
    assert not re.search(r"<(script|img|meta|svg|iframe|style|form)", html)
    assert "javascript:" not in "".join(re.findall(r'href="[^"]*"', html))


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_sanitiser_alone_leaves_no_other_element(attack: str) -> None:
    check(sanitise(attack))


@given(st.text(alphabet=st.sampled_from("<>\"'&;:/[]()!`*_#|-=\n javascriptimgonerror\u202e\x00")))
def test_no_text_becomes_another_element(text: str) -> None:
    check(render_markdown(text))


@given(st.text())
def test_the_tree_has_the_text_of_the_html(text: str) -> None:
    html = render_markdown(text)

    def texts(node: object) -> str:
        return node if isinstance(node, str) else "".join(map(texts, node[2:]))  # type: ignore[index]

    tree = as_tree(html)
    json.dumps(tree)
    assert set(re.findall(r'"(\w+)", \{', json.dumps(tree))) <= ALLOWED | {"div"}
    assert texts(tree).replace("\n", "") == texts(as_tree(str(html))).replace("\n", "")


def test_markdown_of_the_usual_kind_is_rendered() -> None:
    html = render_markdown("# T\n\n*a* **b** ~~c~~ `d` [e](https://x.test)\n\n| f |\n|---|\n| g |")
    for part in ("<h1>T</h1>", "<em>a</em>", "<strong>b</strong>", "<s>c</s>", "<code>d</code>", "<td>g</td>"):
        assert part in html
    assert '<a href="https://x.test" rel="noopener noreferrer nofollow">e</a>' in html


def test_control_and_direction_characters_are_replaced_also_where_markdown_decodes_them() -> None:
    assert clean("a\x00\x1b\u202e\u2066\ud800\tb\n") == "a\ufffd\ufffd\ufffd\ufffd\ufffd\tb\n"
    assert "\u202e" not in render_markdown("&#x202E;")


def test_a_very_long_text_is_shown_as_it_is() -> None:
    html = render_markdown("*" * (MAX_MARKDOWN + 1))
    assert html.startswith("<pre>*")


def test_of_a_page_only_so_many_characters_are_rendered() -> None:
    """An agent, or a caller whose text it repeats, could fill a page with what takes long."""
    render = PageMarkdown()
    rendered = [render("*" * MAX_MARKDOWN).startswith("<pre>") for _ in range(4)]
    assert rendered == [False, False, True, True]
    assert render("**a**") == "<p><strong>a</strong></p>\n"


def test_a_text_that_becomes_much_larger_is_shown_as_it_is() -> None:
    """Each use of a link's name repeats its address: 20 KB became 16 MB for the browser, and 200 MB in the server."""
    address = f"[x]: /{'y' * 9_000}\n\n"
    text = address + "[x] " * ((MAX_MARKDOWN - len(address)) // 4)
    assert render_markdown(text).startswith("<pre>[x]: ")


def test_a_table_with_very_many_cells_is_shown_as_it_is() -> None:
    wide = "|a" * 2000 + "|\n" + "|-" * 2000 + "|\n" + "|\n" * 5000
    began = process_time()
    assert render_markdown(wide).startswith("<pre>")
    assert process_time() - began < 0.2
    long = "|a|b|c|\n|-|-|-|\n" + "|1|2|3|\n" * 1000
    assert render_markdown(f"{long}\n\n{long}").count("</td>") == 6000


def test_what_small_texts_of_a_page_become_is_bounded_together() -> None:
    text = f"[x]: /{'y' * 1_000}\n\n" + "[x] " * 250
    render = PageMarkdown()
    assert sum(len(render(text)) for _ in range(40)) < 2 * MAX_SHOWN


def test_of_a_huge_text_the_beginning_is_shown() -> None:
    html = render_markdown("x" * (MAX_SHOWN + 7))
    assert len(html) < MAX_SHOWN + 100
    assert html.endswith("… 7 characters more</pre>")


@pytest.mark.parametrize("url", ["https://a.test", "HTTP://a.test/x", "mailto:a@b.test"])
def test_a_link_may_lead_to(url: str) -> None:
    assert is_link(url)


@pytest.mark.parametrize(
    "url", ["javascript:x", "data:text/html,x", "//a.test", "/x", "", "ftp://a", "https://a\nb", " https://a"]
)
def test_a_link_may_not_lead_to(url: str) -> None:
    assert not is_link(url)
