from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_sync import Artifact, DataPart, FilePart, TextPart
from a2a_sync.cli.files import Folder, safe_name


@given(st.text(st.characters()) | st.text("./\\-ab\0é ", max_size=300))
def test_a_safe_name_is_a_plain_short_file_name(name: str) -> None:
    safe = safe_name(name, "artifact")
    assert safe == os.path.basename(safe)
    assert safe not in ("", ".", "..")
    assert not safe.startswith((".", "-"))
    assert "\\" not in safe
    assert "\0" not in safe
    assert len(safe.encode()) <= 120


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("chart.svg", "chart.svg"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("..", "artifact"),
        ("a\x1b[31mb.txt", "a_31mb.txt"),
        ("Übersicht 1.md", "Übersicht 1.md"),
        ("x" * 500 + ".csv", "x" * 116 + ".csv"),
    ],
)
def test_names_that_peers_choose_are_made_safe(name: str, safe: str) -> None:
    assert safe_name(name, "artifact") == safe


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new")
    paths = [folder.save("a.txt", data) for data in (b"1", b"2", b"3")]
    assert [path.name for path in paths] == ["a.txt", "a-2.txt", "a-3.txt"]
    assert [path.read_bytes() for path in paths] == [b"1", b"2", b"3"]


def test_a_link_that_lies_there_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "a.txt").symlink_to(target)
    assert Folder(tmp_path).save("a.txt", b"data").name == "a-2.txt"
    assert not target.exists()


def test_a_folder_that_a_peer_has_named_is_a_new_one(tmp_path: Path) -> None:
    # The id of a task could name a folder of source code, into which a module is then saved.
    (tmp_path / "a2a-tools").mkdir()
    (tmp_path / "a2a-tools-2").symlink_to(tmp_path / "a2a-tools")
    saved = Folder(tmp_path / "a2a-tools", new=True).save("conftest.py", b"data")

    assert saved == tmp_path / "a2a-tools-3" / "conftest.py"
    assert not list((tmp_path / "a2a-tools").iterdir())


def test_the_chunks_of_a_text_are_one_file_with_the_suffix_of_their_media_type(tmp_path: Path) -> None:
    chunks = tuple(TextPart(text, media_type="text/markdown") for text in ("# A", "\n", "ü"))
    (path,) = Folder(tmp_path).save_artifacts([Artifact(name="report", parts=chunks)], everything=True)
    assert (path.name, path.read_text("utf-8")) == ("report.md", "# A\nü")


def test_texts_and_data_that_have_no_bytes_are_saved(tmp_path: Path) -> None:
    artifact = Artifact(name="odd", parts=(TextPart("a\ud800"), DataPart({"b": "\ud800"})))
    saved = list(Folder(tmp_path).save_artifacts([artifact], everything=True))
    assert [path.read_text() for path in saved] == ["a?", '{\n  "b": "?"\n}\n']


def test_only_files_are_saved_unless_everything_is_asked_for(tmp_path: Path) -> None:
    parts = (TextPart("text"), DataPart([1]), FilePart(raw=b"raw", media_type="image/png"), FilePart(url="http://x/"))
    artifact = Artifact(name="mixed", parts=parts)
    only = list(Folder(tmp_path / "files").save_artifacts([artifact], everything=False))
    everything = list(Folder(tmp_path / "all").save_artifacts([artifact], everything=True))
    assert [path.name for path in only] == ["mixed.png"]
    assert [path.name for path in everything] == ["mixed.txt", "mixed.json", "mixed.png"]
