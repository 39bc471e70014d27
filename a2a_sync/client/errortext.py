"""What a server that speaks no A2A says of an error in its body, in the forms that web frameworks and proxies use."""

from __future__ import annotations

import html
import re
from typing import Any

from a2a_sync import jsontext
from a2a_sync.errors import JSONParseError

#: The longest text that is shown, in characters, and the most bytes that are searched for it.
_LONGEST = 300
_MOST_BYTES = 64 * 1024
#: Members of JSON that hold the text of an error, the most telling one first (FastAPI, OAuth 2, problem details, …).
_MEMBERS = ("detail", "error_description", "message", "msg", "error", "title")
_TITLE = re.compile(r"<title[^>]*>([^<]*)</title>", re.IGNORECASE)


def error_text(body: bytes, content_type: str) -> str:
    """The text of an error in `body`: one printable line, at most 300 characters; ``""`` where nothing can be shown."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.endswith("json"):
        text = _in_json(body)
    elif media_type in ("text/html", "application/xhtml+xml"):
        found = _TITLE.search(body[:_MOST_BYTES].decode(errors="replace"))
        text = html.unescape(found[1]) if found else ""
    elif media_type in ("", "text/plain"):
        text = body[:_MOST_BYTES].decode(errors="replace")
    else:
        text = ""
    line = " ".join("".join(one if one.isprintable() else " " for one in text[: 10 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"


def _in_json(body: bytes) -> str:
    try:
        return _said(jsontext.loads(body))
    except JSONParseError:
        return ""


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        # Validation errors of FastAPI say where.
        where = value.get("loc")
        before = ".".join(map(str, where)) + ": " if isinstance(where, list) else ""
        return next((before + text for name in _MEMBERS if (text := _said(value.get(name)))), "")
    if isinstance(value, list):
        return "; ".join(filter(None, map(_said, value[:5])))
    return ""
