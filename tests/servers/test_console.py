"""``a2a-sync serve --console`` with two workers, whose link works with both, and the options of ``a2a-sync console``."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from a2a_sync import A2AApp
from a2a_sync.auth import BearerAuth
from tests.cli.agents import Actor
from tests.cli.conftest import served
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


def test_the_console_of_agents_elsewhere_takes_a_profile_a_time_limit_and_debug(tmp_path: Path) -> None:
    port = free_port()
    app = A2AApp(Actor(), auth=BearerAuth({"s3cret": "ada"}))
    with served(app) as url:
        (tmp_path / "config.toml").write_text(f'[profile.prod]\nurl = "{url}"\nauth = "s3cret"\n')
        (tmp_path / "config.toml").chmod(0o600)
        command = [sys.executable, "-m", "a2a_sync", "--debug", "console", "--profile", "prod", "--timeout", "1"]
        command += ["--config", str(tmp_path / "config.toml"), "--port", str(port)]
        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as server,
        ):
            try:
                assert server.stdout is not None
                link = next(found for line in server.stdout if (found := re.match(r"Console: (http\S+)#(\S+)", line)))
                with requests.Session() as browser:
                    agent = browser.post(link[1], data={"token": link[2]}, timeout=20).url
                    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "slow"}]}
                    headers = {"Origin": agent.partition("/console")[0]}
                    # The agent would take as long as it is allowed to.
                    answer = browser.post(
                        f"{agent}api/message:send", json={"message": message}, headers=headers, timeout=60
                    )
            finally:
                server.terminate()
                server.wait(30)
        status = answer.json()["task"]["status"]
        assert status["state"] == "TASK_STATE_FAILED"
        assert "the total timeout expired" in status["message"]["parts"][0]["text"]
        shown = (tmp_path / "log").read_text()
        assert "debug: > SendStreamingMessage (1.0) " in shown
        assert "s3cret" not in shown
