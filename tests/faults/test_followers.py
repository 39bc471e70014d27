"""A state machine over two processes on one store: followers see every entry once and in order, whatever they miss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from a2a_sync.lifecycle import ends_run
from a2a_sync.stores import open_store
from a2a_sync.stores.base import COMPACT_FROM, TaskStore
from a2a_sync.types import Message
from tests.faults.conftest import Place
from tests.faults.node import SCOPE, Node, RemoteNode

published = st.sampled_from(["now", "late", "never"])
which = st.integers(0, 1)
readers = st.integers(0, 255)


class Written(NamedTuple):
    """A log entry that followers must receive."""

    number: int
    streamed: bool
    ends: bool


class Follower:
    """The start of a stream, the numbers it has received, and whether it has ended."""

    def __init__(self, node: Any, index: int, cursor: int) -> None:
        self.node = node
        self.index = index
        self.cursor = cursor
        self.seen: list[int] = []
        self.over = False

    def read(self) -> None:
        if not self.over:
            numbers = self.node.read(self.index)
            self.over = numbers is None
            self.seen += numbers or []


class TwoProcesses(RuleBasedStateMachine):
    """Runs start and end in either process; hints and published entries are late, out of order, or lost."""

    nodes: tuple[Any, Any]
    store: TaskStore
    names = itertools.count()
    examples: int

    def __init__(self) -> None:
        super().__init__()
        self.task_id = f"task-{next(self.names)}"
        self.written: list[Written] = []
        self.followers: list[Follower] = []
        self.writer = self.nodes[0]
        self.ended = False

    @initialize(node=which)
    def begin(self, node: int) -> None:
        self.start(node, "now", True)
        for one in (0, 1):
            self.follow(one, 2)

    # -- writing --

    @property
    def running(self) -> bool:
        return self.store.head(SCOPE, self.task_id).running

    def start(self, node: int, publish: str, create: bool = False) -> None:
        self.writer = self.nodes[node]
        self.writer.start(self.task_id, create, publish)
        self.note()

    def note(self) -> None:
        """Record the entries before they can be compacted."""
        after = self.written[-1].number if self.written else 0
        for entry in self.store.log(SCOPE, self.task_id, after=after).entries:
            streamed = not isinstance(entry.event, Message)
            self.written.append(Written(entry.number, streamed, ends_run(entry.event)))

    @precondition(lambda self: not self.running)
    @rule(node=which, publish=published)
    def next_run(self, node: int, publish: str) -> None:
        self.start(node, publish)

    @rule(steps=st.lists(st.tuples(st.integers(1, 9), published, readers), min_size=1, max_size=5), node=which)
    def write(self, steps: list[tuple[int, str, int]], node: int) -> None:
        """Append entries in several ways of publishing, and let some followers read between them."""
        if not self.running:
            self.start(node, "now")
        for count, publish, readers in steps:
            self.writer.write(self.task_id, count, publish)
            self.note()
            self.look(readers)

    @precondition(lambda self: self.running)
    @rule(state=st.sampled_from(["input-required", "auth-required"]), publish=published, readers=readers)
    def pause(self, state: str, publish: str, readers: int) -> None:
        self.writer.pause(self.task_id, state, publish)
        self.note()
        self.look(readers)

    @rule(node=which, readers=readers)
    def compact(self, node: int, readers: int) -> None:
        """Compact the logs while followers are at any position."""
        if self.running:
            self.writer.write(self.task_id, COMPACT_FROM, "never")
            self.writer.pause(self.task_id, "input-required", "never")
            self.note()
        self.nodes[node].compact()
        for node_ in self.nodes:
            node_.hint(self.task_id)
        self.look(readers)

    # -- delivery to followers --

    @rule(node=which)
    def hint(self, node: int) -> None:
        self.nodes[node].hint(self.task_id)

    @rule(node=which, index=st.integers(0, 9))
    def publish_late(self, node: int, index: int) -> None:
        self.nodes[node].publish_late(index)

    # -- following --

    @precondition(lambda self: len(self.followers) < 8)
    @rule(node=which, size=st.integers(1, 6))
    def follow(self, node: int, size: int) -> None:
        self.followers.append(Follower(self.nodes[node], *self.nodes[node].follow(self.task_id, size)))

    @precondition(lambda self: len(self.followers) < 8)
    @rule(node=which, size=st.integers(1, 6), back=st.integers(0, 30))
    def resume(self, node: int, size: int, back: int) -> None:
        head = self.store.head(SCOPE, self.task_id)
        cursor = max(head.compacted, head.version - back)
        self.followers.append(Follower(self.nodes[node], *self.nodes[node].resume(self.task_id, cursor, size)))

    @rule(readers=readers)
    def look(self, readers: int) -> None:
        """Let the followers in the bits of `readers` read."""
        for place, follower in enumerate(self.followers):
            if readers >> place % 8 & 1:
                follower.read()

    def expected(self, cursor: int) -> list[int]:
        """The streamed entries after a cursor, up to the end of the run."""
        found = []
        for entry in self.written:
            if entry.number > cursor and entry.streamed:
                found.append(entry.number)
                if entry.ends:
                    break
        return found

    @invariant()
    def no_follower_sees_a_gap_or_a_duplicate(self) -> None:
        for follower in self.followers:
            assert follower.seen == self.expected(follower.cursor)[: len(follower.seen)]

    def teardown(self) -> None:
        """Send hints for the end of the last run: all followers then have received all of it and end."""
        if not self.written:
            return
        if not self.running:
            self.start(0, "never")
        self.writer.pause(self.task_id, "completed", "never")
        self.note()
        for node in self.nodes:
            node.hint(self.task_id)
        for follower in self.followers:
            for _ in range(10_000):
                if follower.over:
                    break
                follower.read()
            assert follower.over, "a stream did not end"
            expected = self.expected(follower.cursor)
            assert follower.seen == expected[: len(follower.seen)]
            if len(follower.seen) < len(expected):
                assert self.may_stop_at(max([follower.cursor, *follower.seen]))
        for node in self.nodes:
            node.reset()

    def may_stop_at(self, number: int) -> bool:
        """The run released its token here without a final entry, or the following entries were compacted."""
        following = next(entry for entry in self.written if entry.number > number)
        return not following.streamed or self.store.head(SCOPE, self.task_id).compacted > number


def machines(url: str, examples: int = 50) -> Iterator[type[TwoProcesses]]:
    """For fixtures: the machine over the store at `url`, which is run for so many examples."""
    remote = RemoteNode(url)
    machine = type("Machine", (TwoProcesses,), {"nodes": (Node(url), remote), "store": open_store(url)})
    machine.examples = examples
    yield machine
    machine.store.close()
    remote.close()


@pytest.fixture
def machine(place: Place) -> Iterator[type[TwoProcesses]]:
    yield from machines(place.store)


@pytest.mark.live
def test_followers_in_either_process_receive_the_same_entries_in_order(machine: type[TwoProcesses]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=machine.examples, stateful_step_count=40, deadline=None)
    )
