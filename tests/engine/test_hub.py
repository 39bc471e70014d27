"""A subscriber receives every entry of a run once and in order, whatever it missed in between."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from a2a_sync.engine import hub
from a2a_sync.engine.hub import EventHub, SingleItemStream, Subscription, TaskEventStream, Waiter
from a2a_sync.errors import InternalError, StoreError, UnavailableError
from a2a_sync.operations import RunRequest, StreamItem
from a2a_sync.stores.base import Owner, RunRevoked
from a2a_sync.stores.memory import MemoryStore
from a2a_sync.types import (
    Artifact,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from tests.engine import TIMEOUT, Background, collect, in_child

SCOPE = Owner()
TASK = "t"


def status(state):
    return TaskStatusUpdateEvent(task_id=TASK, context_id="c", status=TaskStatus(state=state))


def chunk(text="x"):
    return TaskArtifactUpdateEvent(
        task_id=TASK, context_id="c", artifact=Artifact(artifact_id="a", parts=(TextPart(text),)), append=True
    )


class Log:
    """One task over a store and a hub, written as a run writes it."""

    def __init__(self, store=None):
        self.store = store or MemoryStore()
        self.hub = EventHub()
        self.token = None
        self.version = 0
        self.create = True

    def start(self, *, publish=True):
        message = Message(role=Role.USER, parts=(TextPart("go"),), task_id=TASK, context_id="c")
        events = [message, *([status(TaskState.SUBMITTED)] if self.create else []), status(TaskState.WORKING)]
        started = self.store.start_run(SCOPE, RunRequest(message=message), events, create=self.create)
        self.create = False
        self.token, self.version = started.token, started.head.version
        if publish:
            self.hub.publish(SCOPE, TASK, started.entries, ended=False)
        return started

    def append(self, *events, end=False, publish=True):
        entries = self.store.append(self.token, events, end=end)
        self.version = entries[-1].number if entries else self.version
        if publish:
            self.hub.publish(SCOPE, TASK, entries, ended=end)
        return entries

    def cancel(self):
        entries = self.store.interrupt(SCOPE, TASK, [status(TaskState.CANCELED)])
        self.hub.publish(SCOPE, TASK, entries, ended=True)

    def stream(self, *, size=16, cursor=None):
        """A stream from now on, made as a subscriber makes it: first the ears, then the snapshot."""
        subscription = Subscription(self.hub, TASK, size=size)
        stored = self.store.load(SCOPE, TASK)
        cursor = stored.version if cursor is None else cursor
        return TaskEventStream(self.store, SCOPE, TASK, subscription, cursor=cursor, running=stored.running)


@pytest.fixture
def log():
    log = Log()
    log.start()
    return log


def numbers(items):
    return [item.number for item in items]


def drain(stream):
    """Everything that can be had without waiting; None for the end is left to the caller."""
    found = []
    for _ in range(50):
        items = stream.poll(0)
        if not items:
            return found
        found += items
    return found


# -- waiters ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in TaskState if state.paused])
def test_a_waiter_wakes_when_the_task_pauses(log, state):
    with Waiter(log.hub, TASK) as waiter:
        log.append(chunk())
        assert not waiter.wait(0)
        log.append(status(state))
        assert waiter.wait(0)


def test_many_events_wake_a_waiter_once(log):
    with Waiter(log.hub, TASK) as waiter:
        log.append(status(TaskState.AUTH_REQUIRED))
        log.append(status(TaskState.WORKING))
        log.append(status(TaskState.COMPLETED), end=True)
        assert waiter.wait(0)
        assert not waiter.wait(0)


def test_a_waiter_for_the_end_is_not_woken_by_a_pause(log):
    with Waiter(log.hub, TASK, ended=True) as waiter:
        log.append(status(TaskState.AUTH_REQUIRED))
        assert not waiter.wait(0)
        log.append(end=True)
        assert waiter.wait(0)


def test_a_waiter_on_another_thread_wakes(log):
    with Waiter(log.hub, TASK) as waiter:
        waiting = Background(lambda: waiter.wait(TIMEOUT))
        log.append(status(TaskState.COMPLETED), end=True)
        assert waiting.result() is True


def test_a_waiter_hears_of_an_end_that_could_not_be_stored(log):
    with Waiter(log.hub, TASK) as waiter:
        log.hub.fail(TASK, InternalError("id 1"))
        with pytest.raises(InternalError, match="id 1"):
            waiter.wait(0)


def test_a_waiter_hears_only_of_its_task(log):
    with Waiter(log.hub, "another") as waiter:
        log.append(status(TaskState.COMPLETED), end=True)
        assert not waiter.wait(0)


def test_a_closed_subscription_is_removed(log):
    waiter = Waiter(log.hub, TASK)
    stream = log.stream()
    waiter.close()
    waiter.close()
    stream.close()
    assert log.hub._listeners == {}


def test_a_waiter_that_heard_a_task_from_its_first_entry_knows_it_as_the_store_does():
    log = Log()
    with Waiter(log.hub, TASK) as waiter:
        assert waiter.task() is None
        log.start()
        log.append(chunk("a"), chunk("b"))
        log.append(status(TaskState.COMPLETED), end=True)
        assert waiter.task() == log.store.load(SCOPE, TASK).task


def test_a_waiter_that_missed_entries_does_not_guess(log):
    with Waiter(log.hub, TASK) as late:
        log.append(status(TaskState.COMPLETED), end=True)
        assert late.task() is None
    gap = Log()
    with Waiter(gap.hub, TASK) as waiter:
        gap.start()
        gap.append(chunk("a"), publish=False)
        gap.append(status(TaskState.COMPLETED), end=True)
        assert waiter.task() is None


def test_a_waiter_keeps_no_long_run_in_memory():
    log = Log()
    with Waiter(log.hub, TASK) as waiter:
        log.start()
        for _ in range(100):
            log.append(chunk())
        log.append(status(TaskState.COMPLETED), end=True)
        assert waiter.task().state is TaskState.WORKING
        assert len(waiter._entries) < 100


# -- streams ------------------------------------------------------------------------------------------------------------


def test_a_stream_shows_what_is_published_and_ends_with_the_run(log):
    stream = log.stream()
    log.append(chunk("a"))
    log.append(status(TaskState.COMPLETED), end=True)
    assert [(item.event, item.number) for item in collect(stream)] == [
        (chunk("a"), 4),
        (status(TaskState.COMPLETED), 5),
    ]
    assert stream.closed


def test_messages_take_numbers_and_are_not_streamed(log):
    stream = log.stream()
    said = Message(role=Role.AGENT, parts=(TextPart("hi"),))
    log.append(chunk(), said, status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == [4, 6]


def test_while_the_numbers_join_on_the_store_is_not_read(log, monkeypatch):
    stream = log.stream()
    monkeypatch.setattr(log.store, "log", None)
    for _ in range(10):
        log.append(chunk())
    log.append(status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == list(range(4, 15))


def test_listeners_share_the_entry_so_that_it_is_encoded_once(log):
    first, second = log.stream(), log.stream()
    (entry,) = log.append(chunk())
    items = [stream.poll(0)[0] for stream in (first, second)]
    items[0].encoded["1.0"] = b"bytes"
    assert items[1].encoded is entry.encoded
    assert entry.encoded == {"1.0": b"bytes"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
def test_a_burst_larger_than_the_queue_reaches_every_subscriber_once_and_in_order(log, size):
    streams = [log.stream(size=size) for _ in range(4)]
    readers = [Background(lambda s=stream: numbers(list(s))) for stream in streams]
    for _ in range(201):
        log.append(chunk())
    log.append(status(TaskState.COMPLETED), end=True)
    for reader in readers:
        assert reader.result() == list(range(4, 4 + 202))


def test_a_subscriber_that_reads_only_at_the_end_gets_all_of_it(log):
    stream = log.stream(size=1)
    for _ in range(201):
        log.append(chunk())
    log.append(status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == list(range(4, 4 + 202))


def test_an_overflow_that_nothing_follows_is_noticed_at_once(log):
    stream = log.stream(size=1)
    log.append(chunk())
    reading = Background(lambda: numbers(stream.poll(0)) + numbers(stream.poll(TIMEOUT)))
    log.append(status(TaskState.COMPLETED), end=True)
    assert reading.result(TIMEOUT / 2) == [4, 5]


def test_a_queue_that_was_emptied_in_the_moment_it_overflowed_wakes_its_reader(log):
    stream = log.stream(size=1)

    subscription, reading, waits = stream._subscription, [], threading.Event()
    writer = threading.current_thread()

    class EmptiedBehindTheLook(list):
        """It looks full once; its reader has emptied it before that answer is used, and waits."""

        def __len__(self):
            if threading.current_thread() is not writer or reading:
                return super().__len__()
            reading.append(Background(lambda: stream.poll(TIMEOUT)))
            assert waits.wait(TIMEOUT)
            return 1

    class Signal:
        """Says when the reader waits."""

        locked, release = subscription._signal.locked, subscription._signal.release

        def acquire(self, *, timeout):
            waits.set()
            return signal.acquire(timeout=timeout)

    signal, subscription._signal = subscription._signal, Signal()
    subscription._batches = EmptiedBehindTheLook()
    log.append(chunk())
    items = reading[0].result(TIMEOUT / 2)
    assert numbers(items or stream.poll(0)) == [4]


def test_a_log_longer_than_a_page_is_read_page_by_page(log):
    stream = log.stream(size=1)
    for _ in range(2500):
        log.append(chunk(), publish=False)
    log.append(status(TaskState.COMPLETED), end=True)
    first = stream.poll(0)
    assert len(first) <= 1000
    assert numbers(first) + numbers(collect(stream)) == list(range(4, 4 + 2501))


def test_entries_published_in_the_wrong_order_are_put_right_from_the_log(log):
    stream = log.stream()
    early = log.append(chunk("first"), publish=False)
    late = log.append(chunk("second"), publish=False)
    log.hub.publish(SCOPE, TASK, late, ended=False)
    log.hub.publish(SCOPE, TASK, early, ended=False)
    assert numbers(drain(stream)) == [4, 5]


def test_what_is_published_between_subscribing_and_the_snapshot_is_shown_once(log):
    subscription = Subscription(log.hub, TASK, size=16)
    log.append(chunk("before the snapshot"))
    stored = log.store.load(SCOPE, TASK)
    stream = TaskEventStream(log.store, SCOPE, TASK, subscription, cursor=stored.version, running=True)
    log.append(chunk("after it"))
    assert [item.event.artifact.text for item in drain(stream)] == ["after it"]


def test_a_slow_stream_keeps_few_bytes_of_events_and_shows_all_of_them(log):
    """It kept up to 256 batches of any size: the memory of a process grew by 20 MB for each unread stream of 10 MB."""
    subscription = Subscription(log.hub, TASK, size=256)
    stream = TaskEventStream(log.store, SCOPE, TASK, subscription, cursor=log.version, running=True)
    expected = [log.append(chunk("x" * size))[0].number for size in [10, 20_000] * 50]
    entries, _, missed = subscription.take(0)
    assert sum(entry.size for entry in entries) < 64 * 1024
    assert missed
    subscription.hint()
    assert numbers(drain(stream)) == expected


def test_a_stream_that_waits_gets_a_large_event_without_the_log(log):
    stream = log.stream()
    for _ in range(3):
        assert stream.poll(0) == []
        log.append(chunk("x" * 1_000_000), publish=False)
        log.hub.publish(SCOPE, TASK, log.store.log(SCOPE, TASK, after=log.version - 1).entries)
        log.store.log, kept = None, log.store.log
        assert numbers(stream.poll(0)) == [log.version]
        log.store.log = kept


def test_the_snapshot_comes_first_even_when_events_wait():
    log = Log()
    started = log.start()
    subscription = Subscription(log.hub, TASK, size=16)
    task = log.store.load(SCOPE, TASK).task
    stream = TaskEventStream(
        log.store, SCOPE, TASK, subscription, cursor=started.head.version, running=True, first=StreamItem(task, 3)
    )
    log.append(status(TaskState.COMPLETED), end=True)
    items = collect(stream)
    assert items[0].event is task
    assert numbers(items) == [3, 4]


def test_a_hint_without_entries_has_the_log_read(log):
    stream = log.stream()
    log.append(chunk(), publish=False)
    log.hub.publish(SCOPE, TASK, (), ended=True)
    assert numbers(stream.poll(0)) == [4]
    assert not stream.closed
    log.append(status(TaskState.COMPLETED), end=True, publish=False)
    log.hub.publish(SCOPE, TASK, (), ended=True)
    assert numbers(collect(stream)) == [5]


def test_closing_from_another_thread_ends_a_stream_that_waits(log):
    stream = log.stream()
    reading = Background(lambda: [items for items in iter(lambda: stream.poll(TIMEOUT), None) if items])
    stream.close()
    assert reading.result(TIMEOUT / 2) == []


def test_one_stream_that_closes_or_stalls_delays_no_other(log):
    closed, still, reading = log.stream(size=1), log.stream(size=1), log.stream(size=1)
    closed.close()
    reader = Background(lambda: numbers(list(reading)))
    for _ in range(50):
        log.append(chunk())
    log.append(status(TaskState.COMPLETED), end=True)
    assert reader.result() == list(range(4, 55))
    assert numbers(collect(still)) == list(range(4, 55))


def test_a_deleted_task_ends_its_streams(log):
    stream = log.stream()
    log.append(chunk())
    log.store.delete(SCOPE, TASK)
    log.hub.publish(SCOPE, TASK, (), ended=True)
    assert len(collect(stream)) <= 1


# -- runs that follow each other ----------------------------------------------------------------------------------------


def test_a_stream_ends_behind_the_question_though_the_next_run_has_begun(log):
    stream = log.stream()
    log.append(status(TaskState.INPUT_REQUIRED), end=True)
    log.start()
    log.append(chunk())
    log.append(status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == [4]


@pytest.mark.parametrize("size", [1, 16])
def test_it_ends_there_however_it_learns_of_it(log, size):
    stream = log.stream(size=size)
    log.append(chunk(), publish=False)
    log.append(status(TaskState.INPUT_REQUIRED), end=True, publish=False)
    log.start()
    log.append(chunk())
    assert numbers(collect(stream)) == [4, 5]


def test_the_subscriber_of_an_idle_task_waits_for_the_next_run(log):
    log.append(status(TaskState.INPUT_REQUIRED), end=True)
    stream = log.stream()
    assert stream.poll(0) == []
    log.start()
    log.append(status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == [6, 7]


def test_the_subscriber_of_an_idle_task_is_not_ended_by_the_end_of_the_run_before(log):
    entries = log.append(status(TaskState.INPUT_REQUIRED), end=True, publish=False)
    stream = log.stream()
    log.hub.publish(SCOPE, TASK, entries, ended=True)
    assert stream.poll(0) == []
    log.hub.publish(SCOPE, TASK, (), ended=True)
    assert stream.poll(0) == []
    log.start()
    log.append(chunk())
    assert numbers(drain(stream)) == [6, 7]


def test_a_late_end_of_the_run_before_does_not_end_the_stream_of_the_next(log):
    log.append(status(TaskState.AUTH_REQUIRED))
    log.append(end=True, publish=False)
    subscription = Subscription(log.hub, TASK, size=16)
    started = log.start()
    stream = TaskEventStream(log.store, SCOPE, TASK, subscription, cursor=started.head.version, running=True)
    log.append(chunk())
    log.hub.publish(SCOPE, TASK, (), ended=True)
    assert numbers(stream.poll(0)) == [7]
    assert stream.poll(0) == []
    log.append(status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == [8]


def test_a_late_end_does_not_end_the_stream_even_beside_new_entries(log):
    log.append(status(TaskState.AUTH_REQUIRED))
    log.append(end=True, publish=False)
    stream = log.stream()
    log.start()
    log.hub.publish(SCOPE, TASK, (), ended=True)
    assert numbers(stream.poll(0)) == [6]
    log.append(chunk())
    assert numbers(drain(stream)) == [7]


def test_a_stream_ends_when_the_run_frees_its_token_without_a_last_entry(log):
    stream = log.stream()
    log.append(status(TaskState.AUTH_REQUIRED))
    assert numbers(stream.poll(0)) == [4]
    assert stream.poll(0) == []
    log.append(end=True)
    assert collect(stream) == []


def test_an_emitted_auth_required_does_not_end_the_stream(log):
    stream = log.stream()
    log.append(status(TaskState.AUTH_REQUIRED))
    log.append(status(TaskState.WORKING))
    log.append(status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == [4, 5, 6]


# -- bad ends -----------------------------------------------------------------------------------------------------------


class BrokenLog(MemoryStore):
    broken = False

    def log(self, *args, **options):
        if self.broken:
            raise StoreError("disk on fire")
        return super().log(*args, **options)


class Unreachable(MemoryStore):
    broken = False

    def log(self, *args, **options):
        if self.broken:
            raise StoreError("gone", transient=True)
        return super().log(*args, **options)


def test_a_log_that_cannot_be_read_ends_the_stream_with_an_error_that_says_nothing(caplog):
    log = Log(BrokenLog())
    log.start()
    stream = log.stream(size=1)
    for _ in range(3):
        log.append(chunk())
    log.store.broken = True
    with pytest.raises(InternalError, match=r"^internal error \(id (\w+)\)$") as failed:
        collect(stream)
    assert failed.value.message.split("id ")[1].rstrip(")") in caplog.text
    assert "disk on fire" in caplog.text
    assert stream.poll(0) is None
    assert log.hub._listeners == {}


def test_a_store_that_cannot_be_reached_for_a_while_ends_no_stream(monkeypatch):
    monkeypatch.setattr(hub, "_PAUSES", (0.0, 0.0))
    log = Log(Unreachable())
    log.start()
    stream = log.stream(size=1)
    for _ in range(3):
        log.append(chunk())
    log.store.broken = True
    assert [stream.poll(0) for _ in range(5)] == [[]] * 5
    log.store.broken = False
    log.append(status(TaskState.COMPLETED), end=True)
    assert numbers(collect(stream)) == [4, 5, 6, 7]


def test_a_store_that_cannot_be_reached_for_long_ends_streams(monkeypatch):
    monkeypatch.setattr(hub, "_OUTAGE", 0.0)
    log = Log(Unreachable())
    log.start()
    stream = log.stream(size=1)
    stream._subscription.catch_up()
    log.store.broken = True
    with pytest.raises(UnavailableError):
        collect(stream)
    assert stream.poll(0) is None


@pytest.mark.parametrize("count", [1, 2, 50])
def test_what_another_process_stores_is_read_once_for_all_streams_of_a_task(log, count, monkeypatch):
    streams = [log.stream() for _ in range(count)]
    reads, read = [], log.store.log
    monkeypatch.setattr(log.store, "log", lambda *args, **options: (reads.append(args), read(*args, **options))[1])
    for number in (4, 5):
        log.append(chunk(), publish=False)
        log.hub.hint(TASK)
        assert [numbers(stream.poll(0)) for stream in streams] == [[number]] * count
        assert [stream.poll(0) for stream in streams] == [[]] * count
    assert len(reads) == 2
    log.append(status(TaskState.COMPLETED), end=True)
    assert [numbers(collect(stream)) for stream in streams] == [[6]] * count
    assert log.hub._tails == {}


def test_what_was_stored_before_an_end_that_could_not_be_is_shown_first(log):
    stream = log.stream()
    log.append(chunk())
    log.hub.fail(TASK, InternalError("id 7"))
    assert numbers(stream.poll(TIMEOUT)) == [4]
    with pytest.raises(InternalError, match="id 7"):
        Background(lambda: stream.poll(TIMEOUT)).result(TIMEOUT / 2)
    assert stream.poll(TIMEOUT) is None


def test_a_blocked_stream_hears_at_once_of_an_end_that_could_not_be_stored(log):
    stream = log.stream()
    reading = Background(lambda: stream.poll(TIMEOUT) or stream.poll(TIMEOUT))
    log.hub.fail(TASK, InternalError("id 8"))
    with pytest.raises(InternalError, match="id 8"):
        reading.result(TIMEOUT / 2)


def test_a_closed_hub_ends_streams_and_wakes_waiters_now_and_later(log):
    log.append(status(TaskState.INPUT_REQUIRED), end=True)
    stream, waiter = log.stream(), Waiter(log.hub, TASK, ended=True)
    reading, waiting = Background(lambda: list(stream)), Background(lambda: waiter.wait(TIMEOUT))
    log.hub.close()
    log.hub.close()
    assert reading.result(TIMEOUT / 2) == []
    assert waiting.result(TIMEOUT / 2) is True
    assert collect(log.stream()) == []
    assert Waiter(log.hub, TASK).wait(TIMEOUT)


def test_a_closed_hub_lets_a_stream_finish_what_is_stored(log):
    stream = log.stream(size=1)
    for _ in range(5):
        log.append(chunk())
    log.hub.close()
    assert numbers(collect(stream)) == [4, 5, 6, 7, 8]


def test_a_forked_child_does_not_inherit_listeners_nor_a_held_lock(log):
    Waiter(log.hub, TASK)

    def child():
        assert log.hub._listeners == {}
        with Waiter(log.hub, TASK) as waiter:
            log.append(status(TaskState.COMPLETED), end=True)
            assert waiter.wait(TIMEOUT)

    with log.hub._lock:
        in_child(child)
    assert len(log.hub._listeners[TASK]) == 1


def test_a_single_item_stream_shows_its_item_once():
    message = Message(role=Role.AGENT, parts=(TextPart("hi"),))
    stream = SingleItemStream(StreamItem(message))
    assert [item.event for item in stream] == [message]
    assert stream.poll(0) is None


# -- races and the state machine ----------------------------------------------------------------------------------------


def test_subscribers_that_come_while_a_run_writes_see_a_gapless_rest():
    for _ in range(20):
        log = Log()
        log.start()
        barrier = threading.Barrier(4)

        def write(log=log, barrier=barrier):
            barrier.wait(TIMEOUT)
            for _ in range(60):
                log.append(chunk())
            log.append(status(TaskState.COMPLETED), end=True)

        def follow(log=log, barrier=barrier):
            barrier.wait(TIMEOUT)
            subscription = Subscription(log.hub, TASK, size=2)
            stored = log.store.load(SCOPE, TASK)
            if not stored.running:
                return None
            stream = TaskEventStream(log.store, SCOPE, TASK, subscription, cursor=stored.version, running=True)
            return stored.version, numbers(list(stream))

        writer, *readers = Background(write), *(Background(follow) for _ in range(3))
        writer.result()
        for reader in readers:
            seen = reader.result()
            if seen is not None:
                cursor, shown = seen
                assert shown == list(range(cursor + 1, 65))


def test_a_cancel_between_appends_is_the_last_thing_a_stream_shows():
    for _ in range(30):
        log = Log()
        log.start()
        stream = log.stream(size=3)
        barrier = threading.Barrier(2)

        def write(log=log, barrier=barrier):
            barrier.wait(TIMEOUT)
            try:
                for _ in range(50):
                    log.append(chunk())
            except RunRevoked:
                pass

        writer = Background(write)
        barrier.wait(TIMEOUT)
        log.cancel()
        items = collect(stream)
        writer.result()
        assert items[-1].event.status.state is TaskState.CANCELED
        assert numbers(items) == list(range(4, 4 + len(items)))


class Followers(RuleBasedStateMachine):
    """Runs come and go, publishing is late, out of order or lost; every follower sees its run gapless and in order."""

    def __init__(self):
        super().__init__()
        self.log = Log()
        self.held = []
        self.followers = []
        self.done = False

    @initialize()
    def begin(self):
        self.log.start()

    @property
    def running(self):
        return self.log.store.head(SCOPE, TASK).running

    @precondition(lambda self: self.running)
    @rule(count=st.integers(1, 30), publish=st.sampled_from(["now", "late", "never"]))
    def write(self, count, publish):
        for _ in range(count):
            self.pass_on(self.log.append(chunk(), publish=False), False, publish)

    @precondition(lambda self: self.running)
    @rule(state=st.sampled_from([TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED]), late=st.booleans())
    def pause(self, state, late):
        entries = self.log.append(status(state), publish=False)
        if state is TaskState.AUTH_REQUIRED:
            self.pass_on(entries, False, "now")
            entries = self.log.append(end=True, publish=False)
        self.pass_on(entries, True, "late" if late else "now")

    @precondition(lambda self: self.running)
    @rule()
    def emit_auth_required(self):
        self.pass_on(self.log.append(status(TaskState.AUTH_REQUIRED), publish=False), False, "now")

    @precondition(lambda self: not self.running and not self.done)
    @rule(publish=st.booleans())
    def next_run(self, publish):
        self.log.start(publish=publish)

    @rule(index=st.integers(0, 9))
    def publish_late(self, index):
        if self.held:
            entries, ended = self.held.pop(index % len(self.held))
            self.log.hub.publish(SCOPE, TASK, entries, ended=ended)

    def pass_on(self, entries, ended, when):
        if when == "late":
            self.held.append((entries, ended))
        elif when == "now":
            self.log.hub.publish(SCOPE, TASK, entries, ended=ended)

    @precondition(lambda self: not self.done)
    @rule(size=st.integers(1, 8))
    def follow(self, size):
        idle = not self.running
        stream = self.log.stream(size=size)
        self.followers.append([stream, stream.cursor, idle, [], False])

    @rule(index=st.integers(0, 9), back=st.integers(0, 20))
    def resume(self, index, back):
        """As a client does whose connection was cut: from the last number it saw, or from an earlier one."""
        cursor = max(0, self.log.version - back)
        stream = TaskEventStream(
            self.log.store, SCOPE, TASK, Subscription(self.log.hub, TASK, size=4), cursor=cursor, running=True
        )
        stream._subscription.hint()
        self.followers.append([stream, cursor, False, [], False])

    @rule(index=st.integers(0, 9))
    def read(self, index):
        if self.followers:
            follower = self.followers[index % len(self.followers)]
            items = follower[0].poll(0)
            follower[3] += numbers(items or [])
            follower[4] = items is None

    @invariant()
    def no_follower_sees_a_gap_or_more_than_one_run(self):
        for _, cursor, _, seen, _ in self.followers:
            expected = self.expected(cursor)
            assert seen == expected[: len(seen)]

    def expected(self, cursor):
        """The streamed entries after a cursor, up to the one that ends its run."""
        found = []
        for entry in self.log.store.log(SCOPE, TASK, after=cursor, limit=10_000).entries:
            if entry.streamed:
                found.append(entry.number)
                if entry.event in (status(TaskState.INPUT_REQUIRED), status(TaskState.COMPLETED)):
                    break
        return found

    def teardown(self):
        """The end of the last run reaches all followers, which have then seen all of its run."""
        if not self.running:
            self.log.start()
        self.log.append(status(TaskState.COMPLETED), end=True)
        self.done = True
        for stream, cursor, _, seen, over in self.followers:
            for _ in range(10_000):
                if over or (items := stream.poll(0)) is None:
                    break
                seen += numbers(items)
            else:
                raise AssertionError("a stream did not end")
            expected = self.expected(cursor)
            # A run that freed its token without a last entry ends the stream there or, unnoticed, later.
            assert seen == expected[: len(seen)]
            if len(seen) < len(expected):
                assert self.ended_early(cursor, seen)

    def ended_early(self, cursor, seen):
        """The stream stopped where a run ended by returning AuthRequired: the next entry is a user's message."""
        last = max([cursor, *seen])
        (following,) = self.log.store.log(SCOPE, TASK, after=last, limit=1).entries
        return isinstance(following.event, Message)


Followers.TestCase.settings = settings(
    max_examples=settings.default.max_examples, stateful_step_count=40, deadline=None
)
TestFollowers = Followers.TestCase
