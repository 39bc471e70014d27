"""An agent that takes a table reservation: questions and answers in straight-line code.

Serve it from the root of the repository, and answer; each question names the command that continues the task::

    a2a-sync serve examples.reservation:app        # or: gunicorn examples.reservation:app --threads 32
    a2a-sync send http://127.0.0.1:8000 "A table, please"
    a2a-sync send http://127.0.0.1:8000 --task ID "4"

The handler reads as if it waited for each answer, and waits for none: a question ends the run, and the answer runs it again
from the top, with the answers so far. With tasks in a file (``store="sqlite:///tasks.db"``) the server may be restarted
between any two of them. `examples.pizza` does the same by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2a_sync import A2AApp, Agent, AgentSkill, Failed, Rejected, RequestContext

DAYS = ("Friday", "Saturday", "Sunday")
LARGEST = 8

agent = Agent(
    "reservations",
    description="Reserves a table: asks for how many, which day, and whether it is all right",
    skills=[
        AgentSkill(
            id="reserve",
            name="Reserve a table",
            description="One table on a Friday, Saturday or Sunday",
            tags=["food", "reservation"],
            examples=["A table, please"],
        )
    ],
)


@dataclass(frozen=True)
class Reservation:
    """The data part of the result."""

    people: int
    day: str
    note: str = ""


@agent.message
def reserve(message: object, context: RequestContext) -> object:
    """Ask, then reserve."""
    people = ask_number(context, "For how many people?")
    if people > LARGEST:
        return Rejected(f"Our largest table is for {LARGEST}.")
    day = context.choose("Which day?", DAYS)
    note = str(context.ask("Anything we should know?")) if context.confirm("Any wishes?") else ""
    if not context.confirm(f"A table for {people} on {day}: shall I reserve it?"):
        return Failed("All right, nothing is reserved.")
    # There are no more questions from here on, so the handler may report progress.
    context.update("Writing it into the book")
    return Reservation(people, day, note)


def ask_number(context: RequestContext, question: str) -> int:
    """Ask until the answer is a number above 0."""
    answer = context.ask(question)
    while not (answer.isascii() and answer.isdigit() and int(answer)):
        answer = context.ask(f"A number, please. {question}")
    return int(answer)


app = A2AApp(agent)
