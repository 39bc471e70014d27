"""One client and many threads, or several processes; and what loading it costs."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from a2a_sync import Client, Task
from tests.client.peer import TIMEOUT, Asked, Line, chunk, peer, status, task


def echo(asked: Asked, line: Line) -> None:
    """Answers each kind of call with the text or id it came with."""
    if asked.method == "GET":
        interface = {"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        line.answer({"name": "x", "supportedInterfaces": [interface], "capabilities": {"streaming": True}})
    elif asked.operation == "GetTask":
        line.result({**task("COMPLETED"), "id": asked.params["id"]})
    else:
        text = asked.params["message"]["parts"][0]["text"]
        line.stream({"task": task()}, chunk(text, append=False), status("COMPLETED"))


def test_twenty_threads_share_a_client() -> None:
    start = threading.Barrier(20)

    def work(number: int) -> list[str]:
        start.wait(TIMEOUT)
        texts = []
        for turn in range(10):
            answer = client.send(f"{number}/{turn}")
            assert isinstance(answer, Task)
            texts.append(answer.text)
            assert client.get_task(f"t-{number}-{turn}").id == f"t-{number}-{turn}"
        return texts

    with peer(echo) as server, Client(server.url, timeout=TIMEOUT) as client, ThreadPoolExecutor(20) as pool:
        found = list(pool.map(work, range(20)))

    assert found == [[f"{number}/{turn}" for turn in range(10)] for number in range(20)]
    assert server.connections <= 20


FORK = """
import os, sys
from a2a_sync import Client
client = Client(sys.argv[1], timeout=60)
assert client.send("before").text == "before"
child = os.fork()
if child == 0:
    ok = client.send("child").text == "child"
    os._exit(0 if ok else 1)
for _ in range(5):
    assert client.send("parent").text == "parent"
assert os.waitpid(child, 0)[1] == 0
assert client.send("after").text == "after"
"""


def test_a_client_may_be_used_on_both_sides_of_a_fork() -> None:
    with peer(echo) as server:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, server.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, "")
    # The child has a connection of its own.
    assert server.connections == 2


LOADED = """
import sys
from a2a_sync.client import Client
heavy = {"werkzeug", "gunicorn", "marshmallow", "dataclasses_json", "requests", "urllib3", "sseclient"} & sys.modules.keys()
assert not heavy, heavy
Client("http://127.0.0.1:9/")
heavy = {"werkzeug", "gunicorn", "marshmallow", "dataclasses_json", "sseclient"} & sys.modules.keys()
assert not heavy, heavy
import threading
assert threading.active_count() == 1
"""


def test_loading_the_client_loads_nothing_of_the_server_and_starts_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
