"""What the tasks of a context share, as handlers read and change it."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Limits, Message, SQLiteStore
from a2a_sync import operations as op
from a2a_sync.agent.executor import TaskCancelled
from a2a_sync.agent.state import State
from a2a_sync.errors import StoreError
from a2a_sync.operations import Principal
from a2a_sync.stores.base import Owner, StateConflict, StoredState
from a2a_sync.types import TaskState
from tests.engine import STORES, TIMEOUT, Background, Gate, Served, serving_over

ADA = Principal(id="ada")


@pytest.fixture(params=STORES)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    yield from serving_over(request.param, tmp_path)


class Shelf:
    """Keeps one state as a store would. `rivals` change it before a write, one each."""

    def __init__(self, *rivals: dict[str, Any]) -> None:
        self.stored = StoredState()
        self.rivals = list(rivals)
        self.writes = 0

    def write(self, body: bytes, expected: int) -> None:
        if self.rivals:
            self.stored = StoredState(json.dumps(self.rivals.pop(0)).encode(), self.stored.version + 1)
        if expected != self.stored.version:
            raise StateConflict(self.stored)
        self.stored = StoredState(body, expected + 1)
        self.writes += 1

    def state(self) -> State:
        return State(lambda: self.stored, self.write)

    @property
    def value(self) -> Any:
        return json.loads(self.stored.body)


# -- as a mapping -------------------------------------------------------------------------------------------------------


def test_it_is_used_like_a_dictionary() -> None:
    shelf = Shelf()
    state = shelf.state()
    assert dict(state) == {}
    state["a"] = 1
    state.update({"b": [1, 2]}, c=None)
    assert shelf.value == {"a": 1, "b": [1, 2], "c": None}
    assert (state["a"], state.get("z"), "b" in state, len(state), list(state)) == (1, None, True, 3, ["a", "b", "c"])
    assert state.setdefault("a", 7) == 1
    assert state.setdefault("d", {"x": 1}) == {"x": 1}
    assert state.pop("a") == 1
    assert state.pop("a", 5) == 5
    del state["b"]
    assert state == {"c": None, "d": {"x": 1}} == shelf.value
    assert repr(state) == "State({'c': None, 'd': {'x': 1}})"
    state.clear()
    assert shelf.value == {}
    for missing in (lambda: state["a"], lambda: state.pop("a"), lambda: state.__delitem__("a")):
        with pytest.raises(KeyError):
            missing()


def test_several_keys_are_set_in_one_step() -> None:
    shelf = Shelf()
    shelf.state().update(a=1, b=2)
    assert shelf.writes == 1


def test_nothing_is_written_where_nothing_changes() -> None:
    shelf = Shelf()
    state = shelf.state()
    state["a"] = 1
    state["a"] = 1
    state.setdefault("a", 2)
    assert shelf.writes == 1


def test_it_shows_itself_as_it_was_at_the_first_look_and_after_the_own_last_change() -> None:
    shelf = Shelf()
    one, other = shelf.state(), shelf.state()
    assert one.get("a") is None
    other["a"] = 1
    assert one.get("a") is None
    one["b"] = 2
    assert one == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["list"].append(3),
        lambda value: value["list"].sort(),
        lambda value: value["list"].__setitem__(0, 9),
        lambda value: value["dict"].update(x=2),
        lambda value: value["dict"].pop("x"),
        lambda value: value["dict"]["inner"].append(1),
    ],
)
def test_what_is_read_cannot_be_changed_in_place_because_it_would_not_be_stored(change: Any) -> None:
    state = Shelf().state()
    state.update({"list": [1, 2], "dict": {"x": 1, "inner": []}})
    with pytest.raises(TypeError, match=r"context\.state\.change"):
        change(state)
    assert state == {"list": [1, 2], "dict": {"x": 1, "inner": []}}


def test_what_is_read_can_be_stored_again() -> None:
    shelf = Shelf()
    state = shelf.state()
    state["a"] = {"list": [1]}
    state["b"] = state["a"]
    assert shelf.value["b"] == {"list": [1]}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"x": object()}, "JSON"),
        ({"x": float("nan")}, "JSON"),
        ({1: "x"}, "a key is a string, not 1"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(change: Any, complaint: str) -> None:
    shelf = Shelf()
    state = shelf.state()
    state["a"] = 1
    with pytest.raises(ValueError, match=complaint):
        state.update(change)
    assert state == {"a": 1} == shelf.value


# -- when others change it too ------------------------------------------------------------------------------------------


def count(state: dict[str, Any]) -> int:
    state["n"] = state.get("n", 0) + 1
    result: int = state["n"]
    return result


def test_a_change_gives_what_its_function_returns() -> None:
    shelf = Shelf()
    state = shelf.state()
    assert [state.change(count) for _ in range(3)] == [1, 2, 3]
    assert shelf.value == {"n": 3}


def test_the_slower_change_is_repeated_with_the_value_of_the_faster_one() -> None:
    shelf = Shelf({"n": 10}, {"n": 20, "other": True})
    assert shelf.state().change(count) == 21
    assert shelf.value == {"n": 21, "other": True}


def test_setting_one_key_leaves_those_of_others() -> None:
    shelf = Shelf({"theirs": 1})
    state = shelf.state()
    state["mine"] = 2
    assert shelf.value == {"theirs": 1, "mine": 2} == state


def test_a_function_that_fails_changes_nothing() -> None:
    def fail(state: dict[str, Any]) -> None:
        state["a"] = 1
        raise RuntimeError("no")

    shelf = Shelf()
    with pytest.raises(RuntimeError, match="no"):
        shelf.state().change(fail)
    assert shelf.value == {}


def test_a_state_that_others_change_all_the_time_is_given_up_at_last() -> None:
    shelf = Shelf(*[{"n": n} for n in range(2000)])
    with pytest.raises(StoreError, match="changed by other runs"):
        shelf.state().change(count)


# -- in a handler -------------------------------------------------------------------------------------------------------


def test_the_next_task_of_the_context_finds_what_the_last_one_left(serve):
    def handler(message: Message, context: Any) -> str:
        before = context.state.get("size", "none")
        context.state["size"] = message.text
        return before

    served = serve(handler)
    answers = [served.send(text, context_id=context).artifacts[0].text for text, context in ("ac", "bc", "xd")]
    assert answers == ["none", "a", "none"]


def test_concurrent_runs_of_one_context_lose_no_change(serve):
    together = threading.Barrier(8)

    def handler(message: Message, context: Any) -> None:
        together.wait(TIMEOUT)
        for _ in range(20):
            context.state.change(count)
        context.state[message.text] = True

    served = serve(handler)
    sends = [served.in_background(str(n), context_id="c") for n in range(8)]
    for send in sends:
        assert send.result(6 * TIMEOUT).state is TaskState.COMPLETED
    state = json.loads(served.store.contexts.state(Owner(), "c").body)
    assert state == {"n": 160} | {str(n): True for n in range(8)}


@pytest.mark.parametrize("stranger", [{"principal": Principal(id="bob")}, {"tenant": "other"}])
def test_another_caller_or_tenant_has_another_state(serve, stranger):
    def handler(message: Message, context: Any) -> str:
        return str(context.state.change(count))

    served = serve(handler)

    def send(*, principal: Principal = ADA, tenant: str = "acme") -> str:
        request = replace(served.request("x", context_id="c"), tenant=tenant)
        text: str = served.call(op.SEND_MESSAGE, request, principal=principal).artifacts[0].text
        return text

    assert [send(), send(**stranger), send()] == ["1", "1", "2"]


def test_a_run_that_was_cancelled_changes_nothing_any_more(serve):
    gate, seen = Gate(), []

    def handler(message: Message, context: Any) -> None:
        gate.block()
        try:
            context.state["late"] = True
        except TaskCancelled:
            seen.append(True)
            raise

    served = serve(handler)
    task_id = served.begin(context_id="c")
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert seen == [True]
    assert served.store.contexts.state(Owner(), "c") == StoredState()


def test_a_run_whose_task_was_deleted_is_stopped(serve):
    gate, seen = Gate(), []

    def handler(message: Message, context: Any) -> None:
        gate.block()
        try:
            context.state["late"] = True
        except TaskCancelled:
            seen.append(context.cancelled)
            raise

    served = serve(handler)
    task_id = served.begin(context_id="c")
    gate.wait()
    served.store.delete(Owner(), task_id)
    gate.open.set()
    served.quiet()
    assert seen == [True]


def test_a_direct_run_that_changes_it_gets_a_task(serve):
    agent = Agent("direct", direct=True)

    @agent.message
    def handler(message: Message, context: Any) -> Any:
        if message.text == "change":
            context.state["seen"] = True
        return context.agent_message(str(context.state.get("seen")))

    served = serve(agent, direct_reply_timeout=TIMEOUT)
    assert isinstance(served.send("look", context_id="c"), Message)
    assert served.send("change", context_id="c").state is TaskState.COMPLETED
    assert served.send("look", context_id="c").text == "True"


def test_a_cancel_handler_may_read_it_and_change_it_while_a_run_goes_on(serve):
    agent, gate, seen = Agent("cancelled"), Gate(), []

    @agent.message
    def handler(message: Message, context: Any) -> None:
        context.state["n"] = 1
        gate.block()

    @agent.on_cancel
    def cancel(context: Any) -> None:
        seen.append(context.state["n"])
        context.state["n"] = 2

    served = serve(agent, cancel_handler_timeout=TIMEOUT)
    task_id = served.begin(context_id="c")
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert seen == [1]
    assert json.loads(served.store.contexts.state(Owner(), "c").body) == {"n": 2}


def test_an_async_handler_uses_it_as_others_do(serve):
    async def handler(message: Message, context: Any) -> str:
        return str(context.state.change(count))

    served = serve(handler)
    assert [served.send("x", context_id="c").artifacts[0].text for _ in range(2)] == ["1", "2"]


def test_it_outlives_the_server_and_is_shared_by_several(tmp_path: Path) -> None:
    def handler(message: Message, context: Any) -> str:
        return str(context.state.change(count))

    apps = []
    for _ in range(2):
        agent = Agent("counting")
        agent.message(handler)
        apps.append(A2AApp(agent, store=SQLiteStore(tmp_path / "tasks.db")))
    clients = [Client(app) for app in apps]

    def send(n: int) -> Background:
        return Background(lambda: clients[n % 2].send("x", context_id="c").text)

    assert sorted(int(one.result()) for one in [send(n) for n in range(10)]) == list(range(1, 11))
    for app in apps:
        app.close()
        app.store.close()


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "method": lambda value: value.copy(),
    **{
        f"pickle {n}": lambda value, n=n: pickle.loads(pickle.dumps(value, n))
        for n in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_what_is_read_are_plain_and_can_be_changed(how: str) -> None:
    shelf = Shelf()
    state = shelf.state()
    state["a"] = {"list": [{"x": 1}]}
    copies = [COPIES[how](state["a"]), {"list": COPIES[how](state["a"]["list"])}]
    if how != "method":
        copies.append(COPIES[how](state)["a"])
    for one in copies:
        assert one == {"list": [{"x": 1}]}
        assert (type(one), type(one["list"]), type(one["list"][0])) == (dict, list, dict)
        one["list"].append("changed")
    assert shelf.value == {"a": {"list": [{"x": 1}]}}
    with pytest.raises(TypeError, match="read-only"):
        state["a"]["list"].append(2)


@pytest.mark.parametrize("store", [None, "sqlite"])
def test_a_state_is_bounded_by_a_limit_of_its_own(store: Any, tmp_path: Any) -> None:
    agent = Agent("keeps")

    @agent.message
    def keep(message: Any, context: Any) -> str:
        context.state["a"] = "kept"
        try:
            context.state["b"] = "x" * int(message.text)
        except ValueError as error:
            return str(error)
        return ",".join(context.state)

    where = store and f"sqlite:///{tmp_path}/tasks.db"
    with A2AApp(agent, store=where, limits=Limits(max_context_state_bytes=1000)) as app, Client(app) as client:
        assert client.send("900").text == "a,b"
        assert "more than Limits.max_context_state_bytes (1000)" in client.send("1000").text
    with A2AApp(agent) as app, Client(app) as client:
        assert client.send(str(1024 * 1000)).text == "a,b"
        assert "max_context_state_bytes" in client.send(str(1024 * 1024)).text
