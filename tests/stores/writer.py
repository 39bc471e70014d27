"""A process that writes: ``python -m tests.stores.writer PATH TASKS CHUNKS``.

It says ``ready``, waits for a line, makes tasks with so many chunks each, and prints their ids.
"""

from __future__ import annotations

import sys

from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.testing.storecontract.making import begin, chunk


def main(path: str, tasks: str, chunks: str) -> None:
    store = SQLiteStore(path, busy_timeout=20)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(tasks)):
        run = begin(store)
        for n in range(int(chunks)):
            store.append(run.token, [chunk(run.head.id, f"{n} ", append=n > 0)])
        print(run.head.id, flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
