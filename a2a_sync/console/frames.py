"""The messages on the wire between a console and a remote agent: kept by task, and as rows of a page."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any, NamedTuple

from a2a_sync import urls
from a2a_sync.client import Frame
from a2a_sync.console.markup import clean
from a2a_sync.console.values import indent_json
from a2a_sync.errors import UnsafeURLError

#: In the metadata of a task here: the ids of the task at the agent.
REMOTE = "urn:a2a-sync:console:remote"
#: In its metadata while the connection to the agent is lost: why. It is empty when there is one again.
LINK = "urn:a2a-sync:console:link"
#: Frames that are kept of an agent, and their bytes; the oldest task loses its frames first.
_MAX_FRAMES, _MAX_FRAME_BYTES = 10_000, 64 * 1024 * 1024
#: Frames of a task that a page shows, and the bytes of these that it shows.
_PAGE, _PAGE_BYTES = 200, 1024 * 1024
#: Characters of a frame that a page shows.
_MAX_SHOWN = 20_000


class Recorded(NamedTuple):
    """A frame of a task, with its number and the time in milliseconds since 1970."""

    number: int
    at_ms: int
    frame: Frame


class FrameLog:
    """The frames of an agent by task, as many as fit. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: OrderedDict[str, list[Recorded]] = OrderedDict()
        self._count = self._bytes = 0

    def add(self, task_id: str, frame: Frame) -> None:
        """Keep a frame of a task."""
        with self._lock:
            kept = self._tasks.setdefault(task_id, [])
            kept.append(Recorded(kept[-1].number + 1 if kept else 1, time.time_ns() // 1_000_000, frame))
            self._count += 1
            self._bytes += len(frame.body)
            while self._count > _MAX_FRAMES or self._bytes > _MAX_FRAME_BYTES:
                oldest = next(iter(self._tasks))
                lost = self._tasks[oldest].pop(0)
                self._count -= 1
                self._bytes -= len(lost.frame.body)
                if not self._tasks[oldest]:
                    del self._tasks[oldest]

    def of_task(self, task_id: str, after: int = 0) -> list[Recorded]:
        """The frames of a task after a number: the newest, as many as a page shows."""
        with self._lock:
            kept = self._tasks.get(task_id, ())
            first, size = len(kept), 0
            while first > max(0, len(kept) - _PAGE) and kept[first - 1].number > after:
                size += min(len(kept[first - 1].frame.body), _MAX_SHOWN)
                if size > _PAGE_BYTES:
                    break
                first -= 1
            return list(kept[first:])


def frame_row(recorded: Recorded, home: str) -> dict[str, Any]:
    """A frame as a page shows it, with whether its request may have the credentials for `home`, the URL of the agent."""
    number, at_ms, frame = recorded
    what = f"{frame.method} {frame.url}" if frame.sent else f"HTTP {frame.status}" if frame.status else "event"
    return {
        "n": number,
        "time": time.strftime("%H:%M:%S", time.gmtime(at_ms / 1000)) + f".{at_ms % 1000:03}",
        "sent": frame.sent,
        "what": clean(what),
        "size": len(frame.body),
        "method": frame.method,
        "url": clean(frame.url),
        "headers": dict(frame.headers),
        "at_home": _may_have_credentials(home, frame.url),
        "json": clean(indent_json(frame.body, _MAX_SHOWN)),
        "whole": len(frame.body) <= _MAX_SHOWN,
    }


def _may_have_credentials(home: str, url: str) -> bool:
    try:
        return urls.may_send_credentials(home, url)
    except UnsafeURLError:
        # The client has not sent it: ids of an agent may make a URL too long.
        return False
