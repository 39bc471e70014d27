"""What the models without a network answer, and the dialogue that the examples run."""

from __future__ import annotations

import os
from collections.abc import Iterator

from a2a_sync import A2AApp, Client, Task, TaskState

#: The name of the model, for providers that have a key in the environment.
MODEL = os.environ.get("MODEL", "gpt-5-mini")
OPENAI = "OPENAI_API_KEY" in os.environ
INSTRUCTIONS = "You are a shop that sells boats. Use the tool buy. Answer briefly."


def wish(message: str) -> str:
    """What a message wants to buy; "" if nothing."""
    return message.strip().lower().partition("buy a ")[2].strip(" .!")


def answer(message: str, bought: str = "") -> Iterator[str]:
    """The words of the answer to a message, or to what the tool has returned."""
    text = f"Well, {bought}. Enjoy it!" if bought else "I sell boats. Say: buy a boat."
    for word in text.split():
        yield word + " "


def talk(app: A2AApp) -> None:
    """Buy a boat: prints the pieces of each answer as they arrive, and approves the call of the tool."""
    with app, Client(app) as client:
        _say(client, "Hello")
        asked = _say(client, "Buy a boat")
        if asked.state is TaskState.INPUT_REQUIRED:
            _say(client, "yes", task_id=asked.id)


def _say(client: Client, text: str, task_id: str | None = None) -> Task:
    print(f"you: {text}\nagent: ", end="")
    with client.stream(text, task_id=task_id) as stream:
        for _ in stream:
            print(stream.new_text, end="", flush=True)
    task = client.get_task(stream.task_id)
    if task.state is not TaskState.COMPLETED:
        print(f"[{task.state.value}] {task.text}", end="")
    print()
    return task
