"""Files of messages and artifacts as responses: what a browser may show, and everything else as a download."""

from __future__ import annotations

import re
from collections.abc import Mapping

from a2a_sync.types import FilePart

#: For responses with bytes of an agent: whatever they are, they run nothing and load nothing.
FILE_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
#: For PDF, which browsers show in a viewer of their own, in a process of its own: they refuse to in a sandbox.
PDF_POLICY = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'"
#: The types that are shown, and how their bytes begin: a declared type alone is not trusted.
_SHOWN: Mapping[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "image/svg+xml": (b"<svg", b"<?xml"),
    "audio/mpeg": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"),
    "audio/wav": (b"RIFF",),
    "audio/x-wav": (b"RIFF",),
    "audio/flac": (b"fLaC",),
    "audio/mp4": (b"\x00\x00\x00",),
    "audio/ogg": (b"OggS",),
    "audio/webm": (b"\x1a\x45\xdf\xa3",),
    "application/pdf": (b"%PDF-",),
    "video/mp4": (b"\x00\x00\x00",),
    "video/webm": (b"\x1a\x45\xdf\xa3",),
}


def shown_type(part: FilePart) -> str:
    """The media type in which a browser shows the file; ``""`` where it is a download."""
    declared = part.media_type.partition(";")[0].strip().lower()
    begins = _SHOWN.get(declared, ())
    return declared if part.raw is not None and part.raw.lstrip()[:16].startswith(begins) and begins else ""


def file_name(part: FilePart) -> str:
    """A name for the download that no system takes for more than a name."""
    return re.sub(r"[^\w.-]", "_", part.filename, flags=re.ASCII).lstrip(".")[-100:] or "file"


def file_headers(part: FilePart, *, download: bool) -> dict[str, str]:
    """The headers of the response with the bytes of `part`."""
    media_type = "" if download else shown_type(part)
    kind = "inline" if media_type else "attachment"
    return {
        "Content-Type": media_type or "application/octet-stream",
        "Content-Disposition": f'{kind}; filename="{file_name(part)}"',
        "Content-Security-Policy": PDF_POLICY if media_type == "application/pdf" else FILE_POLICY,
    }
