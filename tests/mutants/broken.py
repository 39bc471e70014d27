"""Defects: plausible mistakes in the library. They are independent of the tests."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from a2a_sync import client, types
from a2a_sync.agent import agent, executor
from a2a_sync.agent.results import ChunkStream
from a2a_sync.auth import schemes
from a2a_sync.bindings import jsonrpc
from a2a_sync.bindings.sse import BlockSource
from a2a_sync.card import AgentCard
from a2a_sync.codec import v03
from a2a_sync.codec.base import Codec
from a2a_sync.engine import run
from a2a_sync.engine.hub import EventHub, TaskEventStream
from a2a_sync.errors import UnsupportedOperationError
from a2a_sync.integrations import runners
from a2a_sync.lifecycle import ArtifactFold
from a2a_sync.multiagent import taskresult
from a2a_sync.push import PushOptions
from a2a_sync.push.configs import PushConfigs
from a2a_sync.server import handler
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.types import TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from a2a_sync.wsgi import app, exchange, streaming

Change = AbstractContextManager[object]


@dataclass(frozen=True)
class Mutant:
    """A defect that the tests of `row` must detect. `inside` is a context manager that applies it."""

    row: str
    inside: Callable[[], Change]


def replaced(owner: Any, name: str, new: Any) -> Callable[[], Change]:
    """Set `owner.name` to `new`."""
    return lambda: patch.object(owner, name, new)


def around(owner: Any, name: str, change: Callable[..., Any]) -> Callable[[], Change]:
    """Wrap `owner.name` in `change`, which receives the original as its first argument."""
    original = getattr(owner, name)

    def changed(*arguments: Any, **options: Any) -> Any:
        return change(original, *arguments, **options)

    return replaced(owner, name, changed)


def refused(*_arguments: Any, **_options: Any) -> Any:
    raise UnsupportedOperationError("not here")


def all_of(*changes: Callable[[], Change]) -> Callable[[], Change]:
    def inside() -> Change:
        stack = ExitStack()
        for change in changes:
            stack.enter_context(change())
        return stack

    return inside


# -- streams ------------------------------------------------------------------------------------------------------------


def stream_items(change: Callable[[list[Any]], list[Any]]) -> Callable[[], Change]:
    """Change the items of task streams, for blocking and polling readers."""
    poll, iterate = TaskEventStream.poll, TaskEventStream.__iter__

    def polled(self: Any, timeout: float) -> Any:
        items = poll(self, timeout)
        return items if items is None else change(items)

    def iterated(self: Any) -> Iterator[Any]:
        for item in iterate(self):
            yield from change([item])

    return all_of(replaced(TaskEventStream, "poll", polled), replaced(TaskEventStream, "__iter__", iterated))


def without_pieces(items: list[Any]) -> list[Any]:
    return [item for item in items if not isinstance(item.event, TaskArtifactUpdateEvent)]


def twice(items: list[Any]) -> list[Any]:
    return [item for item in items for _ in range(1 + isinstance(item.event, TaskArtifactUpdateEvent))]


def collected(original: Any, self: Any, chunks: Iterator[Any]) -> Any:
    """Send a stream only when it is complete."""
    return original(self, iter(list(chunks)))


# -- task lifecycle ----------------------------------------------------------------------------------------------------


def lenient_check(state: TaskState, events: Any) -> TaskState:
    """Allow every transition."""
    for event in events:
        if isinstance(event, TaskStatusUpdateEvent):
            state = event.status.state
    return state


class NoLock:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def unlocked(original: Any, self: Any, *arguments: Any, **options: Any) -> None:
    original(self, *arguments, **options)
    self._lock = NoLock()


def one_artifact_only(original: Any, self: Any, event: Any) -> None:
    self._artifacts.clear()
    original(self, event)


# -- owners, secrets, limits --------------------------------------------------------------------------------------------


def without(name: str) -> Callable[..., None]:
    """Accept an argument of `A2AApp` and ignore it."""

    def init(original: Any, self: Any, *arguments: Any, **options: Any) -> None:
        options.pop(name, None)
        original(self, *arguments, **options)

    return init


def keyless(original: Any, self: Any, call: Any) -> Any:
    return original(self, replace(call, context=replace(call.context, key=None)))


def in_order_of_creation(original: Any, self: Any, scope: Any, query: Any) -> Any:
    page = original(self, scope, query)
    return replace(page, tasks=tuple(sorted(page.tasks, key=lambda task: task.id, reverse=True)))


def unfiltered(original: Any, self: Any, scope: Any, query: Any) -> Any:
    return original(self, scope, replace(query, state=None))


# -- results and bridges ------------------------------------------------------------------------------------------------


def without_documentation(original: Any, self: Any) -> Any:
    return replace(original(self), documentation_url=None)


def without_reason(original: Any, request: Any, state: TaskState, text: str = "") -> Any:
    return original(request, state)


def without_artifacts(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
    stored = original(self, *arguments, **options)
    return replace(stored, task=replace(stored.task, artifacts=()))


# -- JSON ---------------------------------------------------------------------------------------------------------------


def written(change: Callable[[Any, dict[str, Any]], Any]) -> Callable[[], Change]:
    """Change the result of `to_dict`."""

    def dump(original: Any, self: Any, obj: Any) -> Any:
        return change(obj, dict(original(self, obj)))

    return around(Codec, "dump", dump)


def read(cls: type, **members: Any) -> Callable[[], Change]:
    """Set members of decoded objects to these values, whatever was sent."""

    def load(original: Any, self: Any, *arguments: Any) -> Any:
        found = original(self, *arguments)
        return replace(found, **members) if isinstance(found, cls) else found

    return around(Codec, "load", load)


def without_kind(obj: Any, value: dict[str, Any]) -> Any:
    return {name: member for name, member in value.items() if name != "kind"}


def with_nulls(obj: Any, value: dict[str, Any]) -> Any:
    return {"metadata": None, **value}


def with_upper_case_roles(obj: Any, value: dict[str, Any]) -> Any:
    return {**value, "role": value["role"].upper()} if "role" in value else value


def with_cancelled_spelt_british(obj: Any, value: dict[str, Any]) -> Any:
    return {**value, "state": value["state"].replace("cancel", "cancell")} if "state" in value else value


def never_final(obj: Any, value: dict[str, Any]) -> Any:
    return {**value, "final": False} if "final" in value else value


def blocking(obj: Any, value: dict[str, Any]) -> Any:
    return (
        {**value, "configuration": {**value["configuration"], "blocking": True}} if "configuration" in value else value
    )


def mere_text(obj: Any, value: dict[str, Any]) -> Any:
    return {name: member for name, member in value.items() if name != "metadata"}


def without_state_transition_history(original: Any, self: Any, *arguments: Any) -> Any:
    found = original(self, *arguments)
    if not isinstance(found, AgentCard):
        return found
    return replace(found, capabilities=replace(found.capabilities, state_transition_history=None))


def parts_backwards(original: Any, self: Any, *arguments: Any) -> Any:
    found = original(self, *arguments)
    return replace(found, parts=found.parts[::-1]) if isinstance(found, types.Message) else found


def one_name_less() -> Change:
    names = dict(v03.CODEC.operations)
    del names["tasks/pushNotificationConfig/list"]
    return patch.object(v03.CODEC, "operations", names)


def id_as_text(original: Any, id: Any, result: Any) -> Any:
    return original(str(id), result)


def one_code(original: Any, self: Any, error: Any) -> Any:
    return {**original(self, error), "code": -32603}


def numberless(original: Any, data: bytes, number: int | None = None, event: str = "") -> bytes:
    return original(data, None, event)


def by_its_card(original: Any, url: str, **options: Any) -> Any:
    return client.Client(url, **{name: value for name, value in options.items() if name != "streaming"})


@contextlib.contextmanager
def thread_at_import() -> Iterator[None]:
    """Processes started here import a copy of the package that starts a thread when it is imported."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        copy = shutil.copytree(Path(types.__file__).parent, "a2a_sync", ignore=shutil.ignore_patterns("__pycache__"))
        with Path(copy, "__init__.py").open("a") as module:
            module.write(
                "\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
            )
        yield


MUTANTS: dict[str, Mutant] = {
    # -- declaring and calling --
    "an attribute does not reach the card": Mutant("A1", around(agent.Agent, "describe", without_documentation)),
    "the reason of an error is lost": Mutant("A14", around(run, "status_event", without_reason)),
    "metadata of a call are lost": Mutant("A23", replaced(executor.RequestContext, "metadata", {})),
    "artifacts are not kept": Mutant("D8", around(MemoryStore, "load", without_artifacts)),
    "the old card is elsewhere": Mutant("E11", replaced(app, "OLD_CARD_PATH", "/.well-known/old.json")),
    "an app has no path": Mutant("E12", around(app.A2AApp, "__init__", without("url"))),
    "questions of a bridged agent are lost": Mutant("E9", replaced(runners, "final_events", lambda value, context: [])),
    # -- operations --
    **{
        f"{name} is always refused": Mutant("C1", replaced(handler.RequestHandler, f"_{name}", refused))
        for name in (
            "send_message",
            "send_streaming_message",
            "get_task",
            "cancel_task",
            "subscribe_to_task",
        )
    },
    **{
        f"{name} of webhooks is always refused": Mutant("C1", replaced(PushConfigs, name, refused))
        for name in ("create", "get", "list", "delete")
    },
    # -- streams --
    "streams drop every piece": Mutant("A7", stream_items(without_pieces)),
    "streams drop every piece, live": Mutant("A13", stream_items(without_pieces)),
    "streams wait for their end": Mutant("A13", around(ChunkStream, "_send_all", collected)),
    "streams give every piece twice": Mutant("C16", stream_items(twice)),
    "streams of both directions drop every piece": Mutant("C28", stream_items(without_pieces)),
    # -- tasks --
    "anything may follow an end": Mutant("A10", replaced(run, "check", lenient_check)),
    "a store in memory has no lock": Mutant("C5", around(MemoryStore, "__init__", unlocked)),
    "artifacts replace each other": Mutant("A11", around(ArtifactFold, "apply", one_artifact_only)),
    "ids are random": Mutant("C13", replaced(types, "new_id", lambda: str(uuid.uuid4()))),
    "tasks are listed by creation": Mutant("A29", around(MemoryStore, "list", in_order_of_creation)),
    "tasks are listed in any state": Mutant("A29", around(MemoryStore, "list", unfiltered)),
    # -- authentication and limits --
    "owner= is ignored": Mutant("A33", around(app.A2AApp, "__init__", without("owner"))),
    "auth= is ignored": Mutant("A34", around(app.A2AApp, "__init__", without("auth"))),
    "url= is ignored": Mutant("A33", around(app.A2AApp, "__init__", without("url"))),
    "protocol_versions= is ignored": Mutant("A33", around(app.A2AApp, "__init__", without("protocol_versions"))),
    "limits= is ignored": Mutant("B16", around(app.A2AApp, "__init__", without("limits"))),
    "secrets are kept": Mutant("B17", replaced(schemes, "_digest", lambda secret: secret.encode())),
    "repeated messages run again": Mutant("B16", around(handler.RequestHandler, "__call__", keyless)),
    # -- JSON --
    "a method has no name": Mutant("C2", one_name_less),
    "ids of answers are text": Mutant("C9", around(jsonrpc, "write_result", id_as_text)),
    "codes of errors are alike": Mutant("C10", around(Codec, "dump_error", one_code)),
    "ids of tasks are not read": Mutant("C11", read(types.Message, task_id="")),
    "what is absent is null": Mutant("C12", written(with_nulls)),
    "line ends other than LF are none": Mutant("C24", replaced(BlockSource, "_normalise", lambda self, data: data)),
    "parts do not say their kind": Mutant("D1", written(without_kind)),
    "parts are read backwards": Mutant("D3", around(Codec, "load", parts_backwards)),
    "roles are written large": Mutant("D5", written(with_upper_case_roles)),
    "descriptions are not read": Mutant("D9", read(types.Artifact, description="")),
    "no event is final": Mutant("D10", written(never_final)),
    "every send blocks": Mutant("D11", written(blocking)),
    "metadata of a part are not written": Mutant("D26", written(mere_text)),
    "canceled is written with two l": Mutant("B19", written(with_cancelled_spelt_british)),
    "final is not read": Mutant("C31", read(types.TaskStatusUpdateEvent, final=None)),
    "stateTransitionHistory is not read": Mutant("C31", around(Codec, "load", without_state_transition_history)),
    # -- transport --
    "events have no numbers": Mutant("E3", around(streaming, "frame", numberless)),
    "streams are not called so": Mutant("E6", replaced(exchange, "STREAM_HEADERS", [("Content-Type", "text/plain")])),
    "an endpoint must have a card": Mutant("C30", around(client.Client, "for_endpoint", by_its_card)),
    "a sender of one's own is not called": Mutant("C32", around(PushOptions, "__init__", without("sender"))),
    "start options are lost": Mutant("A36", replaced(agent.Agent, "_set", lambda self, key, value: None)),
    # -- modules --
    "a class is in a module of another concern": Mutant("E1", replaced(EventHub, "__module__", run.__name__)),
    "importing starts a thread": Mutant("E13", thread_at_import),
    # -- results and bridges --
    "names of artifacts do not count": Mutant("B12", replaced(taskresult, "RESULT_NAMES", ())),
    "prompts of the system reach clients": Mutant("E9", replaced(runners, "_PRIVATE", frozenset())),
}
