"""Files of agents as responses."""

from __future__ import annotations

import pytest

from a2a_sync.console.files import FILE_POLICY, PDF_POLICY, file_headers, file_name, shown_type
from a2a_sync.types import FilePart
from tests.console.payloads import ATTACKS, PNG


@pytest.mark.parametrize(
    ("raw", "media_type", "shown"),
    [
        (PNG, "image/png", "image/png"),
        (PNG, "IMAGE/PNG; x=y", "image/png"),
        (b"<script>", "image/png", ""),
        (PNG, "text/html", ""),
        (b"<html>", "text/html", ""),
        (b"%PDF-1.7", "application/pdf", "application/pdf"),
        (b"<html>%PDF-1.7", "application/pdf", ""),
        (b"RIFF\x00\x00\x00\x00WAVE", "audio/x-wav", "audio/x-wav"),
        (b"<html>", "audio/x-wav", ""),
        (b"fLaC", "audio/flac", "audio/flac"),
        (b"\x1a\x45\xdf\xa3", "audio/webm", "audio/webm"),
        (b"\x1a\x45\xdf\xa3", "video/webm", "video/webm"),
        (b"\x00\x00\x00\x1cftypisom", "video/mp4", "video/mp4"),
        (b"<html>", "video/mp4", ""),
        (b" <svg xmlns=''/>", "image/svg+xml", "image/svg+xml"),
        (b"", "image/png", ""),
        (PNG, "", ""),
    ],
)
def test_a_file_is_shown_where_its_type_is_listed_and_its_bytes_begin_so(
    raw: bytes, media_type: str, shown: str
) -> None:
    part = FilePart(raw=raw, media_type=media_type)
    headers = file_headers(part, download=False)
    assert shown_type(part) == shown
    assert headers["Content-Type"] == (shown or "application/octet-stream")
    assert headers["Content-Disposition"].startswith("inline" if shown else "attachment")
    assert headers["Content-Security-Policy"] == (PDF_POLICY if shown == "application/pdf" else FILE_POLICY)
    assert file_headers(part, download=True)["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("name", [*ATTACKS, "../../etc/passwd", "..", "", 'a"; b', "a\r\nSet-Cookie: x", "x" * 300])
def test_a_file_name_is_nothing_but_a_name(name: str) -> None:
    found = file_name(FilePart(raw=b"x", filename=name))
    assert 1 <= len(found) <= 100
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert not found.startswith(".")
