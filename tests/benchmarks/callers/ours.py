"""Prints the processor seconds per call of this library's client: URL, "send" or "streamed send", text, number of calls."""

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
begun = time.process_time()
for _ in range(int(calls)):
    assert call(client, operation, text) == "completed"
print((time.process_time() - begun) / int(calls))
