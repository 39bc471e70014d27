"""Server-sent events in both directions: frames out, events in.

Writing is one function per kind of frame. Reading is done in two steps: `BlockSource` cuts a byte stream into complete
blocks, promptly however the bytes were split on their way, and sseclient-py reads the fields of each short block. This module
does what that reader leaves open: line ends of every kind, byte order marks, a bounded size, time and memory that grow with the
bytes and not with their square, and never an event that was cut short. The framing is that of the HTML standard (9.2.6) as
spec 9.4.2 uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from a2a_sync import jsontext
from a2a_sync.concurrency.gevent import let_greenlets_run
from a2a_sync.errors import JSONParseError

#: How large one event may be, in bytes, unless the reader says otherwise.
MAX_EVENT_BYTES = 64 * 1024 * 1024
#: Blocks with more lines or bytes are not for sseclient-py, which copies what it has for each further line.
_SHORT_LINES, _SHORT_BYTES = 128, 64 * 1024
#: The value of each field of one name: of lines that begin after a line end.
_DATA, _ID, _EVENT = (re.compile(rb"\n%b(?:: ?([^\n]*))?(?=\n)" % name) for name in (b"data", b"id", b"event"))
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
        if self._rest:
            self._rest += last
            last = bytes(self._rest)
            self._rest.clear()
        block = last.lstrip(b"\n")
        if block:
            yield block

    def _finish(self) -> Iterator[bytes]:
        """What is left when the bytes end without the last blank line.

        Some servers omit it, and some connections break: an event has a whole JSON object or array as its data.
        """
        rest = self._rest
        end = rest.rfind(b"\n") + 1
        if rest.startswith(b"data:", end):
            rest += b"\n"
        elif end < len(rest) and not rest.startswith(b":", end):
            raise CutStream("the stream ended within a line")
        else:
            del rest[end:]
        for block in self._hand_over(b"\n"):
            data = _read_fields(block).data
            if data is not None:
                if not _is_whole(data):
                    raise CutStream("the stream ended within an event")
                yield block


def _is_whole(data: bytearray) -> bool:
    try:
        # A number or a word can be the beginning of a longer one; an object or array that closes is complete.
        return isinstance(jsontext.loads(bytes(data)), (dict, list))
    except JSONParseError:
        return False


def _text(value: bytes | bytearray) -> str:
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
        for block in self.source:
            if plain := _PLAIN.fullmatch(block):
                yield ServerEvent(_text(plain[2]), None if plain[1] is None else _text(plain[1]), "message")
            elif (event := _read_block(block)) is not None:
                yield event


def _read_block(block: bytes) -> ServerEvent | None:
    """The event in a block; None if the block has no data."""
    if len(block) > _SHORT_BYTES or block.count(b"\n") > _SHORT_LINES:
        data, event_id, name = _read_fields(block)
        if data is None:
            return None
        return ServerEvent(_text(data), None if event_id is None else _text(event_id), _text(name or b"message"))
    # Loaded with the first such block: most clients have none.
    from sseclient import SSEClient

    try:
        event = next(SSEClient(iter((block,))).events(), None)
    except UnicodeDecodeError:
        raise MalformedStream("the stream is not UTF-8") from None
    return None if event is None else ServerEvent(event.data, event.id, event.event)


class _Fields(NamedTuple):
    """The fields of a block: its lines of data as one text, and of the others the last one each."""

    data: bytearray | None
    id: bytes | None
    event: bytes | None


def _read_fields(block: bytes) -> _Fields:
    """The fields of a block of any number of lines.

    A list of very many lines needs ten times the memory of the block, so those of 64 KiB are read at once. Between them other
    greenlets run.
    """
    text = b"\n" + block
    data = bytearray()
    ids: list[bytes] = []
    names: list[bytes] = []
    start, last = 0, len(text) - 1
    while start < last:
        end = text.rfind(b"\n", start + 1, start + _SHORT_BYTES)
        if end < 0:
            end = text.index(b"\n", start + 1)
        if values := _DATA.findall(text, start, end + 1):
            data += b"\n".join(values)
            data += b"\n"
        ids = _ID.findall(text, start, end + 1)[-1:] or ids
        names = _EVENT.findall(text, start, end + 1)[-1:] or names
        start = end
        let_greenlets_run()
    if not data:
        return _Fields(None, None, None)
    del data[-1:]
    return _Fields(data, ids[0] if ids else None, names[0] if names else None)
