"""The environ of a mounted app, and which requests pages of other sites have made."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync.hosts.mounting import from_another_site, mounted


def environ(**more: Any) -> dict[str, Any]:
    return {"REQUEST_METHOD": "POST", "HTTP_HOST": "site.example", "HTTP_COOKIE": "sessionid=1", **more}


def test_the_path_is_split_and_the_original_left_alone() -> None:
    original = environ(SCRIPT_NAME="", PATH_INFO="/agents/café/x")
    below = mounted(original, "/agents/café", "/x", None)
    assert (below["SCRIPT_NAME"], below["PATH_INFO"]) == ("/agents/cafÃ©", "/x")
    assert original["PATH_INFO"] == "/agents/café/x"


def test_a_body_that_was_read_is_there_again_whole_and_with_its_length() -> None:
    below = mounted(environ(HTTP_TRANSFER_ENCODING="chunked"), "", "/", b"body")
    assert below["wsgi.input"].read() == b"body"
    assert below["CONTENT_LENGTH"] == "4"
    assert "HTTP_TRANSFER_ENCODING" not in below


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HTTP_SEC_FETCH_SITE": "same-origin", "HTTP_ORIGIN": "https://site.example"},
        {"HTTP_SEC_FETCH_SITE": "none"},
        {"HTTP_ORIGIN": "https://site.example"},
        # Behind a proxy that names another host, the browser's own word counts.
        {"HTTP_SEC_FETCH_SITE": "same-origin", "HTTP_ORIGIN": "https://public.example"},
    ],
)
def test_programs_and_pages_of_the_site_itself_are_welcome(headers: dict[str, str]) -> None:
    assert not from_another_site(environ(**headers))


@pytest.mark.parametrize(
    "headers",
    [
        {"HTTP_SEC_FETCH_SITE": "cross-site"},
        {"HTTP_SEC_FETCH_SITE": "same-site"},
        {"HTTP_SEC_FETCH_SITE": "", "HTTP_ORIGIN": "https://site.example"},
        {"HTTP_ORIGIN": "https://evil.example"},
        {"HTTP_ORIGIN": "https://site.example.evil.example"},
        {"HTTP_ORIGIN": "https://site.example:8443"},
        {"HTTP_ORIGIN": "null"},
    ],
)
def test_pages_of_other_sites_are_found_out(headers: dict[str, str]) -> None:
    assert from_another_site(environ(**headers))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_looking_is_free(method: str) -> None:
    assert not from_another_site(environ(REQUEST_METHOD=method, HTTP_SEC_FETCH_SITE="cross-site"))


def test_a_page_that_sends_no_cookies_speaks_for_itself() -> None:
    without = environ(HTTP_SEC_FETCH_SITE="cross-site")
    del without["HTTP_COOKIE"]
    assert not from_another_site(without)
