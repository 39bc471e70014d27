from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from a2a_sync import Client, Task, TaskState
from examples.pizza import Pizzeria, Receipt
from tests.live import gunicorn


@contextmanager
def client(target: Any = None) -> Iterator[Client]:
    with Client(target or Pizzeria(baking=0.0)) as made:
        yield made


def send(client: Client, text: str, task_id: str | None = None) -> Task:
    answer = client.send(text, task_id=task_id)
    assert isinstance(answer, Task)
    return answer


def order(client: Client, *messages: str) -> Task:
    task = send(client, messages[0])
    for text in messages[1:]:
        assert task.state is TaskState.INPUT_REQUIRED, task.text
        task = send(client, text, task.id)
    return task


def check_a_whole_order(client: Client) -> None:
    task = send(client, "A pizza, please")
    assert (task.state, task.text) == (TaskState.INPUT_REQUIRED, "Which size: small, medium, large?")
    task = send(client, "Large", task.id)
    assert task.text.startswith("Which topping: margherita, mushrooms")
    task = send(client, "with mushrooms", task.id)
    assert task.text == "A large pizza with mushrooms for 13.00 EUR: shall I bake it (yes or no)?"
    task = send(client, "yes!", task.id)
    assert task.state is TaskState.COMPLETED
    assert task.artifact("receipt").data_as(Receipt) == Receipt("large", "mushrooms", 13.0)
    assert task.text == "Your large pizza with mushrooms is ready. 13.00 EUR, please."
    history = client.get_task(task.id).history
    assert [message.role for message in history] == ["user", "agent"] * 3 + ["user"]


def test_it_asks_for_size_and_topping_confirms_and_bakes() -> None:
    with client() as pizzeria:
        check_a_whole_order(pizzeria)


def test_it_does_not_ask_for_what_was_said() -> None:
    with client() as pizzeria:
        assert order(pizzeria, "a small pizza with tuna").text.startswith("A small pizza with tuna for 8.00 EUR")
        assert order(pizzeria, "salami please", "medium").text.startswith("A medium pizza with salami")


def test_it_asks_again_when_it_did_not_understand() -> None:
    with client() as pizzeria:
        task = order(pizzeria, "pizza", "enormous")
    assert task.text == "I did not understand 'enormous'. Which size: small, medium, large?"


def test_an_order_can_be_changed_before_it_is_confirmed() -> None:
    with client() as pizzeria:
        task = order(pizzeria, "a small pizza with tuna", "no, make it large", "ok")
    assert task.artifact("receipt").data_as(Receipt) == Receipt("large", "tuna", 13.0)


def test_a_yes_counts_only_for_the_last_question() -> None:
    with client() as pizzeria:
        task = order(pizzeria, "pizza", "yes")
    assert task.state is TaskState.INPUT_REQUIRED
    assert "Which size" in task.text


@pytest.mark.parametrize("text", ["a burger", "", "sushi, large"])
def test_what_is_not_a_pizza_is_rejected(text: str) -> None:
    with client() as pizzeria:
        task = order(pizzeria, text)
    assert (task.state, task.text) == (TaskState.REJECTED, "I only make pizza.")


def test_a_no_at_the_end_drops_the_order() -> None:
    with client() as pizzeria:
        task = order(pizzeria, "small pizza with tuna", "no")
    assert (task.state, task.artifacts) == (TaskState.REJECTED, ())


def test_baking_can_be_cancelled() -> None:
    with client(Pizzeria(baking=60.0)) as pizzeria:
        task = order(pizzeria, "small pizza with tuna")
        with pizzeria.stream("yes", task_id=task.id) as stream:
            for _ in stream:
                if stream.task is not None and "dough" in (getattr(stream.task.status.message, "text", "") or ""):
                    assert pizzeria.cancel_task(task.id, timeout=10).state is TaskState.CANCELED
            assert stream.state is TaskState.CANCELED
        assert pizzeria.get_task(task.id).artifacts == ()


@pytest.mark.live
def test_it_takes_an_order_under_gunicorn() -> None:
    with gunicorn("examples.pizza:app", threads=4) as server, client(server.url) as pizzeria:
        check_a_whole_order(pizzeria)
