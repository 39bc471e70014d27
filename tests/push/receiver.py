"""A webhook's receiver on loopback: it answers as configured, and stores what it receives."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from a2a_sync import PushOptions, URLGuard
from a2a_sync.types import TaskPushNotificationConfig
from tests.client.peer import Asked, Line, peer
from tests.engine import TIMEOUT

LOOPBACK = PushOptions(url_guard=URLGuard(allow=["127.0.0.1"]))

#: Answers one post.
Answer = Callable[[Line], None]


class Post(NamedTuple):
    """A notification as it arrived."""

    path: str
    headers: dict[str, str]
    body: Any


def taken(line: Line) -> None:
    line.answer(b"", 204)


def refused(code: int = 503, **headers: str) -> Answer:
    return lambda line: line.answer(b"not now", code, **headers)


def hanging(line: Line) -> None:
    """No answer before the test ends."""
    line.pause()


class Receiver:
    """``posts`` are the notifications that were taken, ``tried`` all that came."""

    def __init__(self) -> None:
        self.url = ""
        self.posts: list[Post] = []
        self.tried: list[Post] = []
        self._answers: list[Answer] = []
        self._usual: Answer = taken
        self._changed = threading.Condition()

    def plan(self, *answers: Answer, then: Answer = taken) -> None:
        """Answer the next posts in this way, then the others."""
        with self._changed:
            self._answers, self._usual = list(answers), then

    def serve(self, asked: Asked, line: Line) -> None:
        if line.finish.is_set():
            return  # what is cut off by the end of the test is not whole
        post = Post(asked.path, asked.headers, json.loads(asked.body))
        with self._changed:
            answer = self._answers.pop(0) if self._answers else self._usual
            self.tried.append(post)
            if answer is taken:
                self.posts.append(post)
            self._changed.notify_all()
        answer(line)

    def await_posts(self, condition: Callable[[list[Post]], Any], *, tried: bool = False) -> list[Post]:
        """The posts, once `condition` is true of them."""
        posts = self.tried if tried else self.posts
        with self._changed:
            assert self._changed.wait_for(lambda: condition(posts), TIMEOUT), f"came: {[post.body for post in posts]}"
            return list(posts)

    def await_count(self, count: int, *, tried: bool = False) -> list[Post]:
        return self.await_posts(lambda posts: len(posts) >= count, tried=tried)

    def await_end(self) -> list[Post]:
        """All posts, once one has a terminal state."""
        return self.await_posts(lambda posts: any(state(post.body) in ENDS for post in posts))

    def config(self, **members: Any) -> TaskPushNotificationConfig:
        return TaskPushNotificationConfig(url=self.url, **members)


ENDS = ("completed", "failed", "canceled", "rejected")


def state(body: Any) -> str:
    """The state in a notification of either version; empty if it has none."""
    holder = body if "status" in body else body.get("statusUpdate") or body.get("task") or {}
    said = holder.get("status", {}).get("state", "")
    return str(said).removeprefix("TASK_STATE_").lower().replace("_", "-")


def texts(posts: list[Post]) -> list[str]:
    """The states and the pieces of artifacts in 1.0 notifications.

    Left out are an event that completes an artifact by repeating all of its pieces, and one that completes it with no text.
    """
    found, known = [], {}
    for post in posts:
        update = post.body.get("artifactUpdate")
        if update is None:
            found.append(state(post.body))
            continue
        artifact_id = update["artifact"]["artifactId"]
        text = "".join(part["text"] for part in update["artifact"]["parts"])
        before, append = known.get(artifact_id, ""), update.get("append", False)
        known[artifact_id] = before + text if append else text
        repeats = update.get("lastChunk", False) and not append and text == before
        found.append("" if repeats else text)
    return [text for text in found if text]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    with peer(receiver.serve) as server:
        receiver.url = server.url + "/hooks/s3cret-path"
        yield receiver
