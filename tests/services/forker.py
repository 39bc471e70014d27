"""A process that forks after its store was used: ``python -m tests.services.forker URL PREFIX``.

One thread goes on writing while it forks. No child closes the sessions of its parent, and each writes to a task of its own.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings

from a2a_sync.stores import PostgresStore
from a2a_sync.stores.base import TaskBatch
from a2a_sync.testing.storecontract.making import MINE, TIMEOUT, begin, chunk


def write(store: PostgresStore, chunks: int = 30) -> None:
    run = begin(store)
    for n in range(chunks):
        store.append(run.token, [chunk(run.head.id, f"{n} ", append=n > 0)], end=n == chunks - 1)
    assert len(store.load(MINE, run.head.id).task.artifacts[0].parts) == chunks


def fork(store: PostgresStore) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            store.workers.beat(60)
            write(store)
            store.close()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def main(url: str, prefix: str) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    store = PostgresStore(url, prefix=prefix, timeout=20)
    pubsub = store.pubsub()
    arrived = threading.Event()
    pubsub.start(lambda task_id, batch: arrived.set(), lambda: None)
    store.workers.beat(60)
    write(store)
    children = [fork(store) for _ in range(2)]
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            write(store, 5)

    writer = threading.Thread(target=go_on, daemon=True)
    writer.start()
    for _ in range(4):
        write(store, 5)
        children.append(fork(store))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    over.set()
    writer.join(TIMEOUT)
    write(store)
    store.workers.beat(60)
    assert codes == [0] * 6, codes
    # The connection that listens has survived, too.
    PostgresStore(url, prefix=prefix).pubsub().publish(TaskBatch(MINE, "t"))
    assert arrived.wait(TIMEOUT)


if __name__ == "__main__":
    main(*sys.argv[1:])
