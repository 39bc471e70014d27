"""The headers of the protocol: which versions a request names."""

from __future__ import annotations

import pytest

from a2a_sync.bindings import headers
from a2a_sync.bindings.headers import major_minor, named_versions, only_version


@pytest.mark.parametrize(
    ("value", "version"),
    [("1.0", "1.0"), (" 1.0.2 ", "1.0"), ("1.0, 1.0.1,", "1.0"), ("1.0, 0.3", ""), ("", "0.3"), ("1.0," * 20, "")],
)
def test_a_header_names_one_version(value: str, version: str) -> None:
    assert only_version(value) == version


def test_a_long_list_of_versions_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def count(version: str) -> str:
        read.append(version)
        return major_minor(version)

    monkeypatch.setattr(headers, "major_minor", count)
    assert len(named_versions("1," * 20_000)) > 1
    assert len(read) < 20
