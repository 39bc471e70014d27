"""What the compared servers are asked for, over HTTP with the client of this library: one function for each feature.

A function returns when the feature works, and raises `Missing` with what happens instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from a2a_sync import (
    A2AError,
    Client,
    DataPart,
    FilePart,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from tests.benchmarks.frameworks.work import CALLER, STOPS_WITHIN

TIMEOUT = 30.0
#: Starts a server of a kind and gives its client.
Serve = Callable[[str], Any]


class Missing(Exception):
    """A feature does not work; the text is what happens instead."""


def expect(condition: object, instead: str) -> None:
    if not condition:
        raise Missing(instead)


def send(client: Client, content: Any, **options: Any) -> Task | Message:
    return client.send(content, timeout=TIMEOUT, stream=False, **options)


def said(answer: Task | Message) -> str:
    """The text of an answer: of its artifacts, else of the status or the last message of the agent."""
    if isinstance(answer, Message):
        return answer.text
    found = " ".join(filter(None, (artifact.text for artifact in answer.artifacts)))
    if not found and answer.status.message is not None:
        found = answer.status.message.text
    return found


def stream(serve: Serve) -> str:
    """Pieces of the answer arrive while it is made, and the task has the whole answer afterwards."""
    with serve("shop") as client:
        with client.stream("one two three", timeout=TIMEOUT) as events:
            seen = list(events)
        pieces = [event for event in seen if isinstance(event, TaskArtifactUpdateEvent) and event.artifact.text]
        updates = [event.status.message for event in seen if isinstance(event, TaskStatusUpdateEvent)]
        expect(len(pieces) >= 2 or len([one for one in updates if one and one.text]) >= 2, "one piece")
        kept = said(client.get_task(events.task_id))
        expect(kept == "You said: one two three.", f"the task keeps {kept!r}")
        return "yes" if len(pieces) >= 2 else "yes, as status messages"


def memory(serve: Serve) -> None:
    """The second message of a conversation is answered with what the first one said."""
    with serve("shop") as client:
        first = send(client, "one")
        second = said(send(client, "two", context_id=first.context_id))
        expect("one, two" in second, f"the second answer is {second!r}")


def restart(serve: Serve) -> None:
    """After a restart the task is found, and the conversation goes on."""
    with serve("shop") as client:
        first = send(client, "one")
    with serve("shop") as client:
        second = said(send(client, "two", context_id=first.context_id))
        expect("one, two" in second, f"the conversation is lost: {second!r}")
        if isinstance(first, Task):
            client.get_task(first.id)


def question(serve: Serve, answer: Callable[[Task], Any] | None = None) -> None:
    """A tool that needs an approval makes the task require input, and the answer continues it."""
    with serve("shop") as client:
        asked = send(client, "buy")
        expect(isinstance(asked, Task) and asked.state is TaskState.INPUT_REQUIRED, f"the answer is {said(asked)!r}")
        assert isinstance(asked, Task)
        done = send(client, answer(asked) if answer else "yes", task_id=asked.id, context_id=asked.context_id)
        expect("bought a boat" in said(done), f"the answer to the question gives {said(done)!r}")


def cancel(serve: Serve, folder: Path) -> None:
    """A cancel stops the tool that works, within seconds."""
    for name in ("waiting", "stopped", "waited"):
        (folder / name).unlink(missing_ok=True)
    with serve("shop") as client:
        task_id = ""
        with client.stream("wait", timeout=TIMEOUT) as events:
            for _ in events:
                task_id = events.task_id or task_id
                if task_id:
                    break
            _await(folder / "waiting", TIMEOUT)
            canceled = client.cancel_task(task_id, timeout=TIMEOUT)
        expect(canceled.state is TaskState.CANCELED, f"the task is {canceled.state.value}")
        expect(_await(folder / "stopped", STOPS_WITHIN), "the task is canceled, the tool works on")


def files(serve: Serve) -> None:
    """An image reaches the model."""
    with serve("shop") as client:
        answer = said(send(client, ["look", FilePart(raw=b"\x89PNG", media_type="image/png", filename="a.png")]))
        expect("1 image" in answer, f"the answer is {answer!r}")


def structured(serve: Serve) -> None:
    """A declared output is a data part."""
    with serve("prices") as client:
        answer = send(client, "how much")
        parts = [part for artifact in getattr(answer, "artifacts", ()) for part in artifact.parts]
        data = [part.data for part in parts if isinstance(part, DataPart)]
        expect("'amount': 5" in str(data), f"the answer is {said(answer)!r}")


def identity(serve: Serve) -> None:
    """A tool reads the name of the caller that a token names."""
    with serve("known") as client:
        answer = said(send(client, "whoami"))
        expect(CALLER in answer, f"the tool reads {answer!r}")


def _await(path: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return path.exists()


FEATURES: tuple[Callable[..., str | None], ...] = (
    stream,
    memory,
    restart,
    question,
    cancel,
    files,
    structured,
    identity,
)


def results(serve: Serve, folder: Path, answer: Callable[[Task], Any] | None) -> Iterator[tuple[str, str]]:
    """The names of the features, each with ``"yes"`` or what happens instead."""
    special: dict[Any, tuple[Any, ...]] = {question: (answer,), cancel: (folder,)}
    for feature in FEATURES:
        try:
            works = feature(serve, *special.get(feature, ())) or "yes"
        except Missing as missing:
            yield feature.__name__, f"no: {missing}"
        except (A2AError, AssertionError) as error:
            yield feature.__name__, f"no: {type(error).__name__}: {str(error)[:160]}"
        else:
            yield feature.__name__, works
