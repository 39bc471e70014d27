"""Messages over Redis: they arrive with their entries, may be lost with the server or forged, and change nothing but time."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from a2a_sync import A2AApp, Agent, Client, TaskState
from a2a_sync.lifecycle import Entry
from a2a_sync.stores import open_pubsub
from a2a_sync.stores.base import TaskBatch
from a2a_sync.testing.storecontract.making import MINE, TIMEOUT, chunk, message
from tests.services.brokers import private_redis
from tests.services.servers import wait_until

pytest.importorskip("redis", reason="needs the extra redis")

from a2a_sync.stores import redispubsub
from a2a_sync.stores.redispubsub import RedisPubSub, _dump


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    with private_redis(tmp_path_factory.mktemp("redis")) as broker:
        yield broker


def signing(server, key="a key of these tests"):
    return RedisPubSub(server.url, key=key)


class Received:
    """What a `PubSub` got, by task; None where a message carried no batch."""

    def __init__(self, pubsub, *task_ids):
        self.batches, self.gaps, self._came = [], 0, threading.Condition()
        self.pubsub = pubsub
        for task_id in task_ids:
            pubsub.subscribe(task_id)
        pubsub.start(self._take, self._gap)
        # A subscription is confirmed by a message without a batch.
        self.wait_for(lambda: {task_id for task_id, batch in self.batches if batch is None} >= set(task_ids))

    def _take(self, task_id, batch):
        with self._came:
            self.batches.append((task_id, batch))
            self._came.notify_all()

    def _gap(self):
        with self._came:
            self.gaps += 1
            self._came.notify_all()

    def wait_for(self, condition):
        with self._came:
            assert self._came.wait_for(condition, TIMEOUT)

    def of(self, task_id):
        return [batch for one, batch in self.batches if one == task_id and batch is not None]


def test_a_batch_reaches_the_processes_that_follow_its_task_with_its_entries(redis_server):
    with closing(signing(redis_server)) as one, closing(signing(redis_server)) as two:
        sender, got = Received(one, "t"), Received(two, "t")
        entries = tuple(Entry(n, chunk("t", str(n), append=n > 4), at_ms=7) for n in (4, 5))
        one.publish(TaskBatch(MINE, "other", ended=True))
        one.publish(TaskBatch(MINE, "t", entries, TaskState.WORKING, True))
        got.wait_for(lambda: got.of("t"))
        assert got.of("t") == [TaskBatch(MINE, "t", entries, TaskState.WORKING, True, False)]
        assert not got.of("other")
        large = Entry(6, message("t", "x" * 100_000))
        before = len(got.batches)
        one.publish(TaskBatch(MINE, "t", (large,)))
        got.wait_for(lambda: len(got.batches) > before)
        assert got.batches[-1] == ("t", None)
        assert not sender.of("t")


def test_a_task_that_is_written_to_soon_is_subscribed_to_at_once(redis_server, monkeypatch):
    monkeypatch.setattr(redispubsub, "_TICK", 2 * TIMEOUT)
    with closing(RedisPubSub(redis_server.url)) as pubsub:
        got = Received(pubsub)
        for task_id in ("t", "u"):
            pubsub.subscribe(task_id, soon=True)
            got.wait_for(lambda task_id=task_id: (task_id, None) in got.batches)


def test_a_restart_of_redis_is_a_gap_and_messages_arrive_again(redis_server):
    with closing(signing(redis_server)) as one, closing(signing(redis_server)) as two:
        Received(one)
        got = Received(two, "t")
        redis_server.kill()
        wait_until(lambda: not two.healthy)
        one.publish(TaskBatch(MINE, "t"))
        redis_server.start()
        got.wait_for(lambda: got.gaps == 2)

        def arrived():
            one.publish(TaskBatch(MINE, "t", ended=True))
            return got.of("t")

        wait_until(arrived)


@pytest.mark.parametrize("key", ["a key of these tests", None], ids=["key", "no key"])
def test_entries_without_the_signature_of_the_key_are_read_from_the_store(redis_server, key):
    # A program with access to Redis could write into the streams and responses of all callers.
    import redis

    batch = TaskBatch(MINE, "t", (Entry(2, chunk("t", "forged")),), TaskState.WORKING, True)
    other = signing(redis_server, "another key, of another program")
    true = signing(redis_server)
    forged = [
        _dump("evil", batch),
        other._dump(batch),
        true._dump(batch._replace(task_id="u")),
        b"{}",
        b"",
        b"[" * 9999,
    ]
    changed = bytearray(true._dump(batch))
    changed[-3] ^= 1
    with closing(signing(redis_server, key)) as pubsub, closing(redis.Redis.from_url(redis_server.url)) as client:
        got = Received(pubsub, "t")
        for data in (*forged, bytes(changed)):
            before = len(got.batches)
            client.execute_command("SPUBLISH", "a2a:t", data)
            got.wait_for(lambda before=before: len(got.batches) > before)
        assert not got.of("t")
        if key is not None:
            client.execute_command("SPUBLISH", "a2a:t", true._dump(batch))
            got.wait_for(lambda: got.of("t"))


def test_without_a_key_no_content_leaves_the_store(redis_server):
    batch = TaskBatch(MINE, "t", (Entry(2, chunk("t", "confidential")),), TaskState.WORKING, True)
    with closing(signing(redis_server, None)) as one, closing(signing(redis_server, None)) as two:
        got = Received(two, "t")
        before = len(got.batches)
        one.publish(batch)
        got.wait_for(lambda: len(got.batches) > before)
        assert got.batches[-1] == ("t", None)
        assert b"confidential" not in one._dump(batch)


def test_a_key_that_can_be_guessed_is_refused(redis_server):
    with pytest.raises(ValueError, match="the key of RedisPubSub must have at least 16 characters"):
        signing(redis_server, "short")


@pytest.mark.parametrize("signed", [True, False])
def test_a_stream_in_another_process_follows_a_run_over_redis(redis_server, make_postgres_store, signed):
    """Two apps over one database: one runs the agent, the other one streams."""
    gate = threading.Event()
    agent = Agent("counter")

    @agent.message
    def count(message, context):
        for n in range(40):
            yield f"{n} "
            if n == 10:
                assert gate.wait(TIMEOUT)

    pubsubs = [signing(redis_server) if signed else redis_server.url for _ in range(2)]
    apps = [A2AApp(agent, store=make_postgres_store(), pubsub=pubsub) for pubsub in pubsubs]
    with apps[0], apps[1], Client(apps[0]) as caller, Client(apps[1]) as follower:
        task = caller.send("go", return_immediately=True).task
        stream = follower.subscribe(task.id)
        gate.set()
        for _ in stream:
            pass
        assert stream.task.state is TaskState.COMPLETED
        expected = "".join(f"{n} " for n in range(40))
        assert stream.task.artifacts[0].text == follower.get_task(task.id).artifacts[0].text == expected


@pytest.mark.parametrize("url", ["redis://ada:s3cret@h:port/0", "rediss://ada:s3cret@[h/0", "amqp://ada:s3cret@h"])
def test_a_url_that_is_wrong_is_refused_without_showing_it(url):
    with pytest.raises(ValueError, match=r"Redis URL|pubsub must be") as caught:
        open_pubsub(url)
    error = caught.value
    while error is not None:
        assert "s3cret" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
