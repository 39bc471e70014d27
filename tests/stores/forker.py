"""A process that forks after its store was used: ``python -m tests.stores.forker PATH``.

One thread goes on writing while it forks. No child has the file open, and each writes to a task of its own.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings

from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.testing.storecontract.making import MINE, TIMEOUT, begin, chunk


def write(store: SQLiteStore, chunks: int = 50) -> None:
    run = begin(store)
    for n in range(chunks):
        store.append(run.token, [chunk(run.head.id, f"{n} ", append=n > 0)], end=n == chunks - 1)
    assert len(store.load(MINE, run.head.id).task.artifacts[0].parts) == chunks


def in_child(store: SQLiteStore) -> None:
    if os.path.isdir("/proc/self/fd"):
        opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        assert not [name for name in opened if name.startswith(sys.argv[1])], opened
    write(store)
    store.close()


def fork(store: SQLiteStore) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            in_child(store)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def main(path: str) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    store = SQLiteStore(path, busy_timeout=20)
    write(store)
    children = [fork(store) for _ in range(2)]
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            write(store, 5)

    writer = threading.Thread(target=go_on, daemon=True)
    writer.start()
    for _ in range(6):
        write(store, 5)
        children.append(fork(store))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    over.set()
    writer.join(TIMEOUT)
    write(store)
    assert codes == [0] * 8, codes


if __name__ == "__main__":
    main(*sys.argv[1:])
