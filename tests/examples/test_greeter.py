from __future__ import annotations

import subprocess
import sys

import pytest

from a2a_sync import Client
from examples.greeter import Greeter
from tests.live import ROOT, gunicorn


def test_it_greets() -> None:
    with Client(Greeter()) as client:
        assert client.send("Ada").text == "Hello, Ada!"


@pytest.mark.live
def test_it_greets_under_gunicorn_and_its_client_prints_the_greeting() -> None:
    with gunicorn("examples.greeter:app", threads=4) as server:
        command = [sys.executable, str(ROOT / "examples" / "greeter_client.py"), server.url, "Ada", "Lovelace"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, Ada Lovelace!\n", "")
