"""The text of an error in the body of an HTTP response without A2A, in the forms that web frameworks and proxies use."""

from __future__ import annotations

import html
import re
from typing import Any

from a2a_sync import jsontext
from a2a_sync.errors import JSONParseError

#: The most characters of a text, and the most bytes that are searched for it.
_MAX_CHARS = 300
_MAX_BYTES = 64 * 1024
#: JSON members with the text of an error, the most specific first (FastAPI, OAuth 2, problem details, …).
_MEMBERS = ("detail", "error_description", "message", "msg", "error", "title")
_TITLE = re.compile(r"<title[^<>]*>([^<]*)</title>", re.IGNORECASE)


def error_text(body: bytes, content_type: str) -> str:
    """The text of an error in `body`: one printable line of at most 300 characters; ``""`` if there is none."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.endswith("json"):
        text = _in_json(body)
    elif media_type in ("text/html", "application/xhtml+xml"):
        found = _TITLE.search(body[:_MAX_BYTES].decode(errors="replace"))
        text = html.unescape(found[1]) if found else ""
    elif media_type in ("", "text/plain"):
        text = body[:_MAX_BYTES].decode(errors="replace")
    else:
        text = ""
    line = " ".join("".join(one if one.isprintable() else " " for one in text[: 10 * _MAX_CHARS]).split())
    return line if len(line) <= _MAX_CHARS else line[:_MAX_CHARS] + "…"


def _in_json(body: bytes) -> str:
    if len(body) > _MAX_BYTES:
        return ""
    try:
        return _text_of(jsontext.loads(body))
    except JSONParseError:
        return ""


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        # Validation errors of FastAPI name the location.
        where = value.get("loc")
        before = ".".join(map(str, where)) + ": " if isinstance(where, list) else ""
        return next((before + text for name in _MEMBERS if (text := _text_of(value.get(name)))), "")
    if isinstance(value, list):
        return "; ".join(filter(None, map(_text_of, value[:5])))
    return ""
