"""Prints the processor seconds per call of this library's client: URL, "send" or "streamed send", text, calls per batch.

The best of six batches: other load on the machine slows a batch down and never speeds it up.
"""

import sys
import time

from a2a_sync import Client


def call(client: Client, operation: str, text: str) -> str:
    if operation == "send":
        return client.send(text).state
    with client.stream(text) as stream:
        for _ in stream:
            pass
    return stream.task.state


url, operation, text, calls = sys.argv[1:]
client = Client(url)
call(client, operation, text)
batches = []
for _ in range(6):
    begun = time.process_time()
    for _ in range(int(calls)):
        assert call(client, operation, text) == "completed"
    batches.append((time.process_time() - begun) / int(calls))
print(min(batches))
