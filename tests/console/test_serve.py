"""``a2a-sync serve --console`` with two workers: the printed link works with both."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from tests.live import ROOT, free_port

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_spec("nh3") is None, reason="the extra 'console' is not installed"),
]


def test_the_printed_link_logs_one_browser_in_at_any_worker(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "a2a_sync", "serve", "tests.cli.agents:agent", "--console", "--workers", "2"]
    command += ["--port", str(port), "--store", f"sqlite:///{tmp_path / 'tasks.db'}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            link = next(found for line in server.stdout if (found := re.match(r"Console: (http\S+)#(\S+)", line)))
            assert link[1] == f"http://127.0.0.1:{port}/console/login"
            with requests.Session() as browser:
                answer = browser.post(link[1], data={"token": link[2]}, timeout=20)
                assert answer.url.endswith("/console/a/agent/")
                for _ in range(10):
                    page = browser.get(f"http://127.0.0.1:{port}/console/tasks", timeout=20)
                    assert page.url.endswith("/console/tasks")
            assert requests.post(link[1], data={"token": link[2]}, timeout=20).status_code == 401
        finally:
            server.terminate()
            server.wait(30)
