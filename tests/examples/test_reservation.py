from __future__ import annotations

import pytest

from a2a_sync import Client, Task, TaskState
from examples.reservation import Reservation, agent
from tests.live import gunicorn


def talk(client: Client, *messages: str) -> tuple[Task, list[str]]:
    """The task behind the last message, and what the agent said to each."""
    chat, said = client.chat(), []
    for text in messages:
        task = chat.send(text)
        assert isinstance(task, Task)
        said.append(task.text)
    return task, said


def check_a_reservation(client: Client) -> None:
    task, said = talk(client, "A table, please", "4", "saturday", "no", "yes")
    assert said[:-1] == [
        "For how many people?",
        "Which day? (Friday, Saturday, Sunday)",
        "Any wishes?",
        "A table for 4 on Saturday: shall I reserve it?",
    ]
    assert task.state is TaskState.COMPLETED
    assert task.artifacts[0].data_as(Reservation) == Reservation(4, "Saturday")


def test_it_asks_and_reserves() -> None:
    with Client(agent) as client:
        check_a_reservation(client)


def test_it_asks_again_until_it_has_a_number_and_a_day() -> None:
    with Client(agent) as client:
        _, said = talk(client, "A table", "many", "none", "2", "some day", "on Sunday please")
    assert said[1:] == [
        "A number, please. For how many people?",
        "A number, please. For how many people?",
        "Which day? (Friday, Saturday, Sunday)",
        "Please choose one of these. Which day? (Friday, Saturday, Sunday)",
        "Any wishes?",
    ]


def test_a_wish_is_asked_for_only_where_there_is_one() -> None:
    with Client(agent) as client:
        task, said = talk(client, "A table", "2", "Friday", "yes", "By the window", "sure")
    assert said[4] == "A table for 2 on Friday: shall I reserve it?"
    assert task.artifacts[0].data_as(Reservation) == Reservation(2, "Friday", "By the window")


def test_what_cannot_be_and_what_is_not_wanted_ends_early() -> None:
    with Client(agent) as client:
        assert talk(client, "A table", "9")[0].state is TaskState.REJECTED
        task, said = talk(client, "A table", "2", "Friday", "no", "no")
    assert (task.state, said[-1]) == (TaskState.FAILED, "All right, nothing is reserved.")


@pytest.mark.live
def test_it_reserves_under_gunicorn() -> None:
    with gunicorn("examples.reservation:app", threads=4) as server, Client(server.url) as client:
        check_a_reservation(client)
