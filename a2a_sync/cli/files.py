"""Save the files of an agent in one folder, without overwriting any file."""

from __future__ import annotations

import json
import mimetypes
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from a2a_sync import Artifact, DataPart, FilePart, TextPart
from a2a_sync.display import clean, make_new, write_new

_SUFFIXES = {
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/csv": ".csv",
    "text/html": ".html",
    "application/json": ".json",
    "image/svg+xml": ".svg",
    "image/jpeg": ".jpg",
}


def safe_name(name: str, otherwise: str) -> str:
    """A safe file name for the name that a peer sent; `otherwise` if nothing is left of it.

    No folders, no leading dot or dash, no control characters, at most 120 bytes.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", clean(name)))[-1]
    plain = re.sub(r"[^\w.()+ -]", "_", last).strip(" .").lstrip("-.")
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix.encode()) > 20:
        stem, suffix = plain, ""
    limit = 120 - len(suffix.encode()) - 1
    stem = stem.encode()[:limit].decode(errors="ignore").rstrip(" .")
    if not stem:
        return otherwise
    return f"{stem}.{suffix}" if suffix else stem


class Folder:
    """The folder of artifacts. It is created when the first file is saved.

    `new`: a peer has chosen its name, so that an existing folder, or a link to one, is not used; it gets another name then.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path: Path = path
        self._new = new

    def save(self, name: str, data: bytes) -> Path:
        """Write a new file under a safe form of `name`; an existing name gets a number.

        Raises:
            OSError: the file cannot be written.
        """
        if self._new:
            self.path, self._new = make_new(self.path, Path.mkdir), False
        self.path.mkdir(parents=True, exist_ok=True)
        return write_new(self.path / safe_name(name, "artifact"), data)

    def save_artifacts(self, artifacts: Iterable[Artifact], *, everything: bool) -> Iterator[Path]:
        """Save the files in these artifacts (with `everything`, also texts and data), and yield the paths written."""
        for artifact in artifacts:
            for name, data in contents(artifact, everything=everything):
                yield self.save(name, data)


def contents(artifact: Artifact, *, everything: bool) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the files of an artifact. Its text parts, which may be chunks, are one file."""
    title = artifact.name or artifact.artifact_id
    texts = [part for part in artifact.parts if isinstance(part, TextPart)]
    if texts and everything:
        yield (
            _named(texts[0].filename or title, texts[0].media_type or "text/plain"),
            artifact.text.encode(errors="replace"),
        )
    for part in artifact.parts:
        if isinstance(part, FilePart) and part.raw is not None:
            yield _named(part.filename or title, part.media_type), part.raw
        elif isinstance(part, DataPart) and everything:
            data = json.dumps(part.data, ensure_ascii=False, indent=2) + "\n"
            yield _named(part.filename or title, "application/json"), data.encode(errors="replace")


def _named(name: str, media_type: str) -> str:
    plain = media_type.partition(";")[0].strip().lower()
    suffix = _SUFFIXES.get(plain) or mimetypes.guess_extension(plain) or ""
    return name if re.search(r"[^./\\]\.\w{1,10}$", name) else name + suffix
