"""Reads of the end of a log that several streams of one process share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from a2a_sync.stores.base import LogPage

#: How long a stream waits for the read of another one, in seconds; then it reads itself.
_WAIT_TIMEOUT: Final = 30.0


class Tail:
    """The newest read of one task's log, for all its streams in this process. Thread-safe.

    A page is used until something is published about the task: what was stored before a publication is in every page that is
    read after it. While one thread reads, the others wait for its page; no lock is held meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._published = 0
        self._newest: _Read | None = None

    def note_publication(self) -> None:
        """Something was stored or may have been: the next stream reads the log. Does not block."""
        # Two at once may count as one: both have stored before.
        self._published += 1

    def read(self, after: int, load: Callable[[], LogPage]) -> LogPage:
        """The page after `after` that `load` reads, or the end of one that another stream has read since the last publication.

        Raises:
            Exception: that of `load`, in this thread or in the one whose page was waited for.
        """
        with self._lock:
            shared = self._newest
            leads = shared is None or shared.published != self._published or not shared.may_serve(after)
            if leads:
                shared = self._newest = _Read(after, self._published)
        assert shared is not None
        if leads:
            return shared.execute(load)
        page = shared.page_after(after) if shared.over.wait(_WAIT_TIMEOUT) else None
        return load() if page is None else page


class _Read:
    """One read of a log, which goes on or has returned."""

    def __init__(self, after: int, published: int) -> None:
        self.published = published
        self.over = threading.Event()
        self._after = after
        self._page: LogPage | None = None
        self._error: Exception | None = None

    def may_serve(self, after: int) -> bool:
        """It contains what follows `after`, or may when it has returned; one that failed is not repeated by waiting for it."""
        if self._after > after:
            return False
        return not self.over.is_set() or (self._error is None and self._contains(after))

    def execute(self, load: Callable[[], LogPage]) -> LogPage:
        try:
            self._page = load()
        except Exception as error:
            self._error = error
            raise
        finally:
            self.over.set()
        return self._page

    def _contains(self, after: int) -> bool:
        page = self._page
        if page is None:
            return False
        covered = page.entries[-1].number if page.entries else page.version
        return after < covered or covered >= page.version

    def page_after(self, after: int) -> LogPage | None:
        """The part of the page after `after`; None where the page ends before it."""
        if self._error is not None:
            raise self._error
        if self._page is None or not self._contains(after):
            return None
        return replace(self._page, entries=tuple([one for one in self._page.entries if one.number > after]))
