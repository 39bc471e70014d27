"""Bytes that runs keep for a conversation, or for a task that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import InputRequired, Message
from a2a_sync import operations as op
from a2a_sync.agent.executor import TaskCancelled
from a2a_sync.agent.memory import Memory
from a2a_sync.errors import StoreError
from a2a_sync.operations import Principal
from a2a_sync.stores.base import MEMORY, Owner, StateConflict, StoredState, pending_name
from tests.engine import STORES, Background, Gate, Served, serving_over

ADA = Principal(id="ada")


@pytest.fixture(params=STORES)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    yield from serving_over(request.param, tmp_path)


class Shelf:
    """Keeps one value as a store would. `rivals` change it before a write, one each."""

    def __init__(self, *rivals: bytes) -> None:
        self.stored = StoredState()
        self.rivals = list(rivals)
        self.writes = 0
        self.memory = Memory(lambda: self.stored, self.write)

    def write(self, body: bytes, expected: int) -> None:
        if self.rivals:
            self.stored = StoredState(self.rivals.pop(0), self.stored.version + 1)
        if expected != self.stored.version:
            raise StateConflict(self.stored)
        self.stored = StoredState(body, expected + 1)
        self.writes += 1


def test_a_value_is_bytes_or_none() -> None:
    memory = Shelf().memory
    assert memory.get() is None
    memory.set(b"\x00\xff")
    assert memory.get() == b"\x00\xff"
    for nothing in (None, b""):
        memory.set(b"again")
        memory.set(nothing)
        assert memory.get() is None


def test_a_change_is_applied_to_what_another_run_has_stored() -> None:
    shelf = Shelf(b"theirs,")
    assert shelf.memory.change(lambda old: (old or b"") + b"mine") == b"theirs,mine"
    assert shelf.memory.get() == b"theirs,mine"


def test_a_value_that_stays_as_it_is_is_not_written() -> None:
    shelf = Shelf()
    shelf.memory.set(None)
    shelf.memory.change(lambda old: b"")
    assert shelf.writes == 0
    shelf.memory.set(b"a")
    shelf.memory.set(b"a")
    assert shelf.writes == 1


@pytest.mark.parametrize("name", ["memory", "state"])
def test_runs_of_one_owner_change_a_large_value_once_each(name: str, serve: Callable[..., Served]) -> None:
    """Each attempt reads, parses and writes all of it, while the writers of other owners wait."""
    attempts: list[bool] = []
    large = "x" * 100_000
    gate = Gate()

    def grow(old: Any) -> Any:
        attempts.append(True)
        if name == "memory":
            return (old or large.encode()) + b"."
        old["large"] = old.get("large", large) + "."
        return None

    def handler(message: Message, context: Any) -> str:
        if message.text == "many":
            gate.block()
        getattr(context, name).change(grow)
        return "ok"

    served = serve(handler)
    served.send("first", context_id="c")
    attempts.clear()
    runs = [served.in_background("many", context_id="c") for _ in range(12)]
    gate.wait()
    gate.open.set()
    for run in runs:
        run.result()
    assert len(attempts) == 12


def test_a_value_that_others_change_all_the_time_is_an_error() -> None:
    shelf = Shelf(*[b"%d" % n for n in range(2000)])
    with pytest.raises(StoreError, match="changed by other runs"):
        shelf.memory.set(b"mine")


def test_the_memory_of_a_context_is_shared_by_its_tasks_and_apart_from_its_state(serve: Any) -> None:
    def handler(message: Message, context: Any) -> str:
        context.state["texts"] = message.text
        return (context.memory.change(lambda old: (old or b"") + message.text.encode()) or b"").decode()

    served = serve(handler)
    assert [served.send(text, context_id="c").text for text in "ab"] == ["a", "ab"]
    assert served.send("x", context_id="d").text == "x"
    assert served.store.contexts.state(Owner(), "c") == StoredState(b'{"texts":"b"}', 2)
    assert served.store.contexts.state(Owner(), "c", MEMORY) == StoredState(b"ab", 2)


def test_pending_bytes_are_of_one_task_and_go_with_its_end(serve: Any) -> None:
    def handler(message: Message, context: Any) -> Any:
        kept = context.pending.get()
        if kept is None:
            context.pending.set(message.text.encode())
            return InputRequired("Which?")
        return f"{kept.decode()} {message.text}"

    served = serve(handler)
    first, second, third = (served.send(text, context_id="c") for text in ("one", "two", "three"))
    served.cancel(third.id)
    assert served.send("b", task_id=second.id).text == "two b"
    assert served.send("a", task_id=first.id).text == "one a"
    for task in (first, second, third):
        assert served.store.contexts.state(Owner(), "c", pending_name(task.id)) == StoredState()


def test_both_are_bounded(serve: Any) -> None:
    def handler(message: Message, context: Any) -> str:
        value = b"x" * int(message.text)
        try:
            context.memory.set(value)
            context.pending.set(value)
        except ValueError as error:
            return str(error)
        return "kept"

    served = serve(handler, max_context_memory_bytes=1000)
    assert served.send("1000").text == "kept"
    assert served.send("1001").text == "memory: 1001 bytes are more than Limits.max_context_memory_bytes (1000)"


def test_runs_at_once_lose_no_change(serve: Any) -> None:
    def handler(message: Message, context: Any) -> None:
        for _ in range(10):
            context.memory.change(lambda old: b"%d" % (int(old or b"0") + 1))

    served = serve(handler)
    for call in [Background(lambda: served.send(context_id="c")) for _ in range(4)]:
        call.result()
    assert served.store.contexts.state(Owner(), "c", MEMORY).body == b"40"


def test_a_run_that_was_cancelled_changes_nothing_any_more(serve: Any) -> None:
    gate, seen = Gate(), []

    def handler(message: Message, context: Any) -> None:
        gate.block()
        for memory in (context.memory, context.pending):
            with pytest.raises(TaskCancelled):
                memory.set(b"late")
            seen.append(memory.get())
        raise TaskCancelled(context.task_id)

    served = serve(handler)
    task_id = served.begin(context_id="c")
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert seen == [None, None]


def test_the_key_of_a_conversation_differs_by_tenant_caller_and_context(serve: Any) -> None:
    served = serve(lambda message, context: context.key)

    def key(context_id: str = "c", *, principal: Principal = ADA, tenant: str = "acme") -> str:
        request = replace(served.request("x", context_id=context_id), tenant=tenant)
        text: str = served.call(op.SEND_MESSAGE, request, principal=principal).text
        return text

    keys = [key(), key("d"), key(principal=Principal(id="bob")), key(tenant="other"), key("", tenant="acme")]
    assert len(set(keys)) == 5
    assert key() == keys[0]
    assert all(len(one) == 64 and int(one, 16) for one in keys)
