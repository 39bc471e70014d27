"""`a2a-sync console` for agents on the official SDKs: a person talks to them in Chromium."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from a2a_sync import Client
from a2a_sync.types import TaskState
from tests.browser.conftest import Visit, console_for, wait_until, words
from tests.live import ROOT
from tests.peers.servers import python_agent

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]
#: The Python with the SDK of protocol 0.3, which cannot be installed beside the newest one.
PYTHON_03 = Path(ROOT, os.environ.get("VENV_03", ".venv-interop-03"), "bin", "python")
SDKS = {
    "a2a-sdk 1.x": ("tests.interop.sdk_agent", sys.executable, find_spec("a2a") is not None),
    "a2a-sdk 0.3": ("tests.interop03.sdk_agent", str(PYTHON_03), PYTHON_03.exists()),
}


@pytest.fixture(scope="module", params=SDKS)
def elsewhere(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a console for an agent on an SDK."""
    module, python, installed = SDKS[request.param]
    if not installed:
        pytest.skip(f"{request.param} is not installed (make console-tests installs it)")
    with python_agent(module, python) as url:
        yield from console_for(url)


@pytest.fixture
def window(visit: Window, elsewhere: str) -> Visit:
    """A window with the page of the agent."""
    opened = visit(elsewhere)
    opened.log_in()
    assert opened.page.inner_text("h1") == "official"
    return opened


def numbers(window: Visit) -> list[int]:
    """The numbers that the agent has counted up to."""
    return [int(word) for word in words(window).split() if word.isdigit()][1:]


def test_text_streams_and_a_reload_in_the_middle_loses_nothing(window: Visit) -> None:
    assert "card is valid" in window.page.inner_text(".lead + .chips")
    window.send("slowly 60")
    wait_until(window, lambda: 5 in numbers(window))
    assert window.page.inner_text("#live .status .pill") == "working"
    assert 60 not in numbers(window)
    window.page.reload()
    window.wait_state("completed")
    wait_until(window, lambda: numbers(window)[-1] == 60)
    assert numbers(window) == list(range(1, 61))
    window.check()
    window.check_access()


def test_a_question_is_answered(window: Visit) -> None:
    window.send("ask")
    window.wait_state("input-required")
    assert "Which size?" in words(window)
    window.send("large")
    window.wait_state("completed")
    assert words(window).split("Which size?")[1].split()[-1] == "large"
    assert words(window).count("large") == 2
    window.check()


def test_a_task_is_cancelled_in_the_middle_of_its_stream(window: Visit) -> None:
    window.send("slowly 600")
    wait_until(window, lambda: 3 in numbers(window))
    window.page.click("#cancel")
    window.wait_state("canceled")
    counted = numbers(window)
    assert counted == list(range(1, len(counted) + 1))
    window.page.reload()
    agent, task = (
        window.page.inner_text(f"aside dt:text-is('{name}') + dd") for name in ("Agent", "Task at the agent")
    )
    with Client(agent) as client:
        assert client.get_task(task).state is TaskState.CANCELED
    window.check()
