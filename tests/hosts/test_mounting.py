"""The environ of a mounted app."""

from __future__ import annotations

from typing import Any

from a2a_sync.integrations.mounting import mounted_environ


def environ(**more: Any) -> dict[str, Any]:
    return {"REQUEST_METHOD": "POST", "HTTP_HOST": "site.example", "HTTP_COOKIE": "sessionid=1", **more}


def test_the_path_is_split_and_the_original_left_alone() -> None:
    original = environ(SCRIPT_NAME="", PATH_INFO="/agents/café/x")
    below = mounted_environ(original, "/agents/café", "/x", None)
    assert (below["SCRIPT_NAME"], below["PATH_INFO"]) == ("/agents/cafÃ©", "/x")
    assert original["PATH_INFO"] == "/agents/café/x"


def test_a_body_that_was_read_is_there_again_whole_and_with_its_length() -> None:
    below = mounted_environ(environ(HTTP_TRANSFER_ENCODING="chunked"), "", "/", b"body")
    assert below["wsgi.input"].read() == b"body"
    assert below["CONTENT_LENGTH"] == "4"
    assert "HTTP_TRANSFER_ENCODING" not in below
