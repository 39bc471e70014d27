"""One read of a log serves all streams of its task, and none misses what was stored before a publication."""

from __future__ import annotations

import threading

import pytest

from a2a_sync.engine.tail import Tail
from a2a_sync.errors import StoreError
from a2a_sync.lifecycle import Entry
from a2a_sync.stores.base import LogPage
from a2a_sync.testing.storecontract.making import chunk
from a2a_sync.types import TaskState
from tests.engine import TIMEOUT, Background


class Log:
    """Entries of one task, in pages of five, and a count of the reads."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.reads = 0
        self.gate = threading.Event()
        self.gate.set()
        self.reading = threading.Event()
        self.error: Exception | None = None

    def after(self, number: int) -> LogPage:
        self.reads += 1
        version, error = self.version, self.error
        self.reading.set()
        assert self.gate.wait(TIMEOUT)
        if error is not None:
            raise error
        found = range(number + 1, version + 1)[:5]
        entries = tuple(Entry(one, chunk("t", str(one))) for one in found)
        return LogPage(entries=entries, version=version, state=TaskState.WORKING, running=True)


def read(tail: Tail, log: Log, after: int) -> list[int]:
    return [entry.number for entry in tail.read(after, lambda: log.after(after)).entries]


def test_the_second_stream_uses_the_page_of_the_first() -> None:
    tail, log = Tail(), Log(3)
    assert [read(tail, log, after) for after in (0, 0, 2, 3)] == [[1, 2, 3], [1, 2, 3], [3], []]
    assert log.reads == 1


def test_the_log_is_read_again_after_a_publication() -> None:
    tail, log = Tail(), Log(3)
    read(tail, log, 0)
    log.version = 4
    tail.note_publication()
    assert read(tail, log, 3) == [4]
    assert log.reads == 2


def test_a_stream_that_is_further_back_reads_what_it_lacks() -> None:
    tail, log = Tail(), Log(3)
    assert [read(tail, log, after) for after in (2, 0)] == [[3], [1, 2, 3]]
    assert log.reads == 2


def test_a_page_that_ends_before_the_log_is_not_taken_for_its_end() -> None:
    tail, log = Tail(), Log(8)
    assert [read(tail, log, after) for after in (0, 3, 5)] == [[1, 2, 3, 4, 5], [4, 5], [6, 7, 8]]
    assert log.reads == 2


def test_streams_that_read_at_once_wait_for_one_read() -> None:
    tail, log = Tail(), Log(3)
    log.gate.clear()
    readers = [Background(lambda: read(tail, log, 0))]
    assert log.reading.wait(TIMEOUT)
    readers += [Background(lambda after=after: read(tail, log, after)) for after in (0, 1, 2) * 5]
    log.gate.set()
    assert sorted({tuple(reader.result()) for reader in readers}) == [(1, 2, 3), (2, 3), (3,)]
    assert log.reads == 1


def test_a_read_that_began_before_a_publication_serves_no_stream_that_comes_after_it() -> None:
    tail, log = Tail(), Log(3)
    log.gate.clear()
    early = Background(lambda: read(tail, log, 0))
    assert log.reading.wait(TIMEOUT)
    log.version = 4
    tail.note_publication()
    log.gate.set()
    assert read(tail, log, 0) == [1, 2, 3, 4]
    assert early.result() == [1, 2, 3]
    assert read(tail, log, 3) == [4]
    assert log.reads == 2


def test_a_read_that_fails_is_tried_again_by_the_next_stream() -> None:
    tail, log = Tail(), Log(3)
    log.error = StoreError("broken")
    with pytest.raises(StoreError, match="broken"):
        read(tail, log, 0)
    log.error = None
    assert read(tail, log, 0) == [1, 2, 3]
