"""Server-sent events in both directions: frames out, events in.

Writing is one function per kind of frame. Reading is done in two steps: `BlockSource` cuts a byte stream into complete
blocks, promptly however the bytes were split on their way, and sseclient-py reads the fields of each block. The source
does what that reader leaves open: line ends of every kind, byte order marks, a bounded size, cost that grows with the bytes
and not with their square, and never an event that was cut short. The framing is that of the HTML standard (9.2.6) as spec
9.4.2 uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from a2a_sync import jsontext
from a2a_sync.errors import JSONParseError

#: How large one event may be, in bytes, unless the reader says otherwise.
MAX_EVENT_BYTES = 64 * 1024 * 1024
#: Blocks with more lines go to sseclient-py in pieces of so many: it copies what it has for each further line.
_LINES_AT_ONCE = 128
#: More than one blank line: a stream of nothing else is compressed a thousand times.
_BLANK_LINES = re.compile(rb"\n{3,}")
_BOM = b"\xef\xbb\xbf"
#: As numbers: to search bytes for bytes, ``in`` makes an exception first, which takes longer than the search.
_LF, _CR = b"\n\r"
#: An event as most servers write it. It is read here: sseclient-py and the splitting into lines take longer than all other work
#: of a client for an event.
_PLAIN = re.compile(rb"(?:id: ([0-9]+)\n)?data: ([^\r\n]+)\n\n")


class MalformedStream(ValueError):
    """The bytes are no event stream: not UTF-8, or an event larger than allowed."""


class CutStream(Exception):
    """The bytes ended within an event."""


# -- writing ------------------------------------------------------------------------------------------------------------


def frame(data: bytes, number: int | None = None, event: str = "") -> bytes:
    """One event whose data is one line (compact JSON); `number` is its id, `event` its name if it has one.

    Raises:
        ValueError: `data` has a line break.
    """
    if _LF in data or _CR in data:
        raise ValueError("the data of an event must be one line")
    name = b"event: %b\n" % event.encode() if event else b""
    if number is None:
        return b"%bdata: %b\n\n" % (name, data)
    return b"id: %d\n%bdata: %b\n\n" % (number, name, data)


def comment(text: str) -> bytes:
    """A comment, which readers pass over: a sign of life.

    Raises:
        ValueError: `text` has a line break.
    """
    if "\n" in text or "\r" in text:
        raise ValueError("a comment must be one line")
    return f": {text}\n\n".encode()


# -- reading ------------------------------------------------------------------------------------------------------------


class ServerEvent(NamedTuple):
    """One event as it was sent: its data, its own id (None: it had none) and its name (``message`` by default)."""

    data: str
    id: str | None
    event: str


class BlockSource:
    """Iterates over the complete blocks of an event stream, as bytes with ``\\n`` for every line end.

    `read` gives the next bytes as soon as there are any and ``b""`` at the end; it is called on the thread that iterates,
    and what it raises passes through.

    Raises (from the iteration):
        MalformedStream: an event is larger than `max_event_bytes`.
        CutStream: the bytes ended within an event.
    """

    def __init__(self, read: Callable[[], bytes], *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        #: The block just handed over continues in the next one (see `_in_pieces`).
        self.continued: bool = False
        self._read = read
        self._max = max_event_bytes
        self._rest = bytearray()  # of the block that is not complete yet
        self._after_cr = False

    def __iter__(self) -> Iterator[bytes]:
        head = more = self._read()
        while more and len(head) < 3 and _BOM.startswith(head):
            more = self._read()
            head += more
        yield from self._cut(head.removeprefix(_BOM))
        while more and (more := self._read()):
            yield from self._cut(more)
        yield from self._finish()

    def _cut(self, data: bytes) -> Iterator[bytes]:
        """The blocks that `data` completes; the rest is kept."""
        if not self._rest and _PLAIN.fullmatch(data):
            self._after_cr = False
            self._check_size(len(data))
            yield data
            return
        data = _BLANK_LINES.sub(b"\n\n", self._normalise(data))
        if data.startswith(b"\n") and (not self._rest or self._rest.endswith(b"\n")):
            # The blank line that ends a block, or one between two blocks.
            yield from self._hand_over(b"\n")
            data = data[1:]
        start = 0
        while (end := data.find(b"\n\n", start)) >= 0:
            yield from self._hand_over(data[start : end + 2])
            start = end + 2
        self._rest += data[start:] if self._rest else data[start:].lstrip(b"\n")
        self._check_size(len(self._rest))

    def _normalise(self, data: bytes) -> bytes:
        """Every line end as ``\\n``; a ``\\r\\n`` may come in two reads."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _check_size(self, size: int) -> None:
        if size > self._max:
            raise MalformedStream(f"an event is larger than {self._max} bytes")

    def _hand_over(self, last: bytes) -> Iterator[bytes]:
        """The block that ends with `last`."""
        self._check_size(len(self._rest) + len(last))
        block = (bytes(self._rest) + last if self._rest else last).lstrip(b"\n")
        self._rest.clear()
        if not block:
            return iter(())
        if block.count(b"\n") > _LINES_AT_ONCE:
            return self._in_pieces(block)
        return iter((block,))

    def _in_pieces(self, block: bytes) -> Iterator[bytes]:
        """A block of very many lines as several that sseclient-py reads one by one; all but the last are `continued`."""
        lines = block.split(b"\n")
        data = [line for line in lines if line == b"data" or line.startswith(b"data:")]
        others = {name: line for line in lines if (name := line.partition(b":")[0]) in (b"id", b"event")}
        for start in range(0, len(data), _LINES_AT_ONCE):
            self.continued = start + _LINES_AT_ONCE < len(data)
            piece = data[start : start + _LINES_AT_ONCE] + ([] if self.continued else list(others.values()))
            yield b"\n".join([*piece, b"", b""])

    def _finish(self) -> Iterator[bytes]:
        """What is left when the bytes end without the last blank line.

        Some servers omit it, and some connections break: an event has a whole JSON object or array as its data.
        """
        whole, _, tail = bytes(self._rest).rpartition(b"\n")
        self._rest.clear()
        lines = whole.split(b"\n")
        if tail.startswith(b"data:"):
            lines.append(tail)
        elif tail and not tail.startswith(b":"):
            raise CutStream("the stream ended within a line")
        if any(line.startswith(b"data") for line in lines):
            if not _is_whole(lines):
                raise CutStream("the stream ended within an event")
            yield from self._hand_over(b"\n".join([*lines, b"", b""]))


def _is_whole(lines: list[bytes]) -> bool:
    data = b"\n".join(line[5:] for line in lines if line.startswith(b"data:"))
    try:
        # A number or a word can be the beginning of a longer one; an object or array that closes is complete.
        return isinstance(jsontext.loads(data), (dict, list))
    except JSONParseError:
        return False


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedStream("the stream is not UTF-8") from None


class EventReader:
    """Iterates over the `ServerEvent` of a `BlockSource`, on the calling thread.

    Raises (from the iteration): as `BlockSource`; and `MalformedStream` for what is not UTF-8.
    """

    def __init__(self, source: BlockSource) -> None:
        self.source = source

    def __iter__(self) -> Iterator[ServerEvent]:
        parts: list[str] = []
        for block in self.source:
            if not parts and not self.source.continued and (plain := _PLAIN.fullmatch(block)):
                yield ServerEvent(_text(plain[2]), None if plain[1] is None else _text(plain[1]), "message")
                continue
            event = _read_block(block)
            if event is None:
                continue
            parts.append(event.data)
            if not self.source.continued:
                yield ServerEvent("\n".join(parts), event.id, event.event)
                parts.clear()


def _read_block(block: bytes) -> Any:
    """The event of sseclient-py in a block; None if the block has no data."""
    # Loaded with the first such block: most clients have none.
    from sseclient import SSEClient

    try:
        return next(SSEClient(iter((block,))).events(), None)
    except UnicodeDecodeError:
        raise MalformedStream("the stream is not UTF-8") from None
