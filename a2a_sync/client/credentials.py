"""Where credentials may be told, and how URLs are shown: origins, and what a header can hold.

Nothing here shows a secret: not in an error, not in a repr. How credentials are sent is known to `placing`.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from a2a_sync import urls

_WITH_CREDENTIALS = re.compile(r"(https?://)([^/?#\\]*)@(.*)", re.IGNORECASE | re.DOTALL)


def display(url: str) -> str:
    """`url`, without credentials, as it may be shown: without its query."""
    return urls.parse(url).shown


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """`url`, which its user wrote, without a user and password, and these two.

    Raises:
        UnsafeURLError: what is left cannot be called.
    """
    found = _WITH_CREDENTIALS.fullmatch(url)
    bare = found[1] + found[3] if found else url
    urls.parse(bare)
    if found is None:
        return bare, None
    user, _, password = found[2].partition(":")
    return bare, (unquote(user), unquote(password))


def may_know(home: str, url: str) -> bool:
    """What the user gave for `home` may be sent to `url`: the same origin, or the same host moved from http to https."""
    ours, theirs = urls.parse(home).origin, urls.parse(url).origin
    return ours == theirs or (ours[::2] == ("http", 80) and theirs == ("https", ours[1], 443))


def checked_header(name: str, value: str) -> str:
    """`value`, if it can stand in a header.

    Raises:
        ValueError: it cannot. It may be a secret, so the error does not show it.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError(f"the value of the header {name!r} must be printable ASCII")
    return value
