"""The tests of dialogues and of the values of contexts once more, over PostgreSQL; and a dialogue that Celery executes."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_sync import Client
from tests.agent.test_dialogue import *  # noqa: F403
from tests.agent.test_state import *  # noqa: F403
from tests.agent.test_turns import *  # noqa: F403
from tests.live import gunicorn
from tests.services.brokers import redis_broker
from tests.services.celeryworkers import LONG, a_worker
from tests.services.conftest import serve  # noqa: F401 (in place of the fixture of these modules)

TARGET = "tests.services.site"


@pytest.mark.live
def test_each_answer_of_a_dialogue_is_handled_by_a_job(store_url: str, tmp_path: Path) -> None:
    with redis_broker(tmp_path) as broker:
        environment = {"A2A_TEST_AGENT": "reservation", "A2A_TEST_STORE": store_url, "A2A_TEST_BROKER": broker.url}
        with (
            a_worker(f"{TARGET}:celery", environment, tmp_path, "-c", "2"),
            gunicorn(f"{TARGET}:app", workers=2, environment=environment, wait=LONG) as server,
            Client(server.url, timeout=LONG) as client,
        ):
            chat = client.chat()
            answers = [chat.send(text) for text in ("A table, please", "four", "4", "sunday", "no", "yes")]
    assert [answer.text for answer in answers[:-1]] == [
        "For how many people?",
        "A number, please. For how many people?",
        "Which day? (Friday, Saturday, Sunday)",
        "Any wishes?",
        "A table for 4 on Sunday: shall I reserve it?",
    ]
    assert answers[-1].task.artifacts[0].parts[0].data == {"people": 4, "day": "Sunday", "note": ""}
