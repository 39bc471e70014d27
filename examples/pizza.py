"""An agent that takes a pizza order over several turns: the size, then the topping, then a yes.

Serve it from the root of the repository, and order; each answer names the command that continues the task::

    a2a-sync serve examples.pizza:app              # or: gunicorn examples.pizza:app --threads 32
    a2a-sync send http://127.0.0.1:8000 "A pizza, please"
    a2a-sync send http://127.0.0.1:8000 --task ID "large"

Nothing is kept between turns but the task itself: each turn reads the conversation again. While the pizza bakes the task
can be cancelled (Ctrl-C in the client); what is not a pizza is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from a2a_sync import (
    A2AApp,
    Agent,
    AgentSkill,
    Artifact,
    DataPart,
    InputRequired,
    Message,
    Rejected,
    RequestContext,
    Role,
    TextPart,
)

PRICES = {"small": 8.0, "medium": 10.5, "large": 13.0}
TOPPINGS = ("margherita", "mushrooms", "salami", "spinach", "tuna")
YES, NO = {"yes", "y", "ok", "okay", "sure", "please"}, {"no", "n", "nope", "stop"}


@dataclass(frozen=True)
class Order:
    """What has been said so far; this is also the data of the receipt."""

    size: str = ""
    topping: str = ""
    confirmed: bool = False
    refused: bool = False

    @property
    def price(self) -> float:
        """In euros."""
        return PRICES[self.size]

    def after(self, text: str) -> Order:
        """The order after one more message of the customer."""
        words = set(re.findall(r"[a-z]+", text.lower()))
        # A yes answers the last question only: it counts when everything was known before it was said.
        if self.size and self.topping and not words & {*PRICES, *TOPPINGS}:
            return Order(self.size, self.topping, confirmed=bool(words & YES), refused=bool(words & NO))
        size = next((size for size in PRICES if size in words), self.size)
        topping = next((topping for topping in TOPPINGS if topping in words), self.topping)
        return Order(size, topping)


@dataclass(frozen=True)
class Receipt:
    """The data part of the result."""

    size: str
    topping: str
    price_eur: float


class Pizzeria(Agent):
    """Takes orders for pizza."""

    name = "pizza"
    description = "Takes an order for a pizza: asks for size and topping, confirms, bakes"
    skills = [
        AgentSkill(
            id="order",
            name="Order a pizza",
            description="One pizza, small, medium or large, with one topping",
            tags=["food", "order"],
            examples=["A pizza, please", "A large pizza with mushrooms"],
        )
    ]

    def __init__(self, *, baking: float = 1.0) -> None:
        """`baking` is how long each step in the kitchen takes, in seconds."""
        super().__init__()
        self.baking = baking

    def handle_message(self, message: Message, context: RequestContext) -> object:
        """The next question, or the finished pizza."""
        said = [turn.text for turn in context.history if turn.role is Role.USER]
        if not is_pizza(said[0]):
            return Rejected("I only make pizza.")
        before, order = read_order(said[:-1]), read_order(said)
        if order.refused:
            return Rejected("All right, no pizza then.")
        if order.confirmed:
            return self._bake(order, context)
        # The first message is the wish itself; later ones answer a question, or they do not.
        missed = f"I did not understand {message.text[:80]!r}. " if len(said) > 1 and order == before else ""
        return InputRequired(missed + question(order))

    def _bake(self, order: Order, context: RequestContext) -> Iterator[Artifact]:
        for step in ("Rolling out the dough", f"Adding {order.topping}", "Baking"):
            context.update(step)
            context.sleep(self.baking)
        receipt = Receipt(order.size, order.topping, order.price)
        text = f"Your {order.size} pizza with {order.topping} is ready. {order.price:.2f} EUR, please."
        yield Artifact(name="receipt", parts=(TextPart(text), DataPart.of(receipt)))


def is_pizza(text: str) -> bool:
    """The first message asks for a pizza, by name or by one of its toppings."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    return bool(words & {"pizza", "pizzas", *TOPPINGS})


def read_order(said: Sequence[str]) -> Order:
    """The order that these messages of the customer add up to."""
    order = Order()
    for text in said:
        order = order.after(text)
    return order


def question(order: Order) -> str:
    """What to ask next."""
    if not order.size:
        return f"Which size: {', '.join(PRICES)}?"
    if not order.topping:
        return f"Which topping: {', '.join(TOPPINGS)}?"
    return f"A {order.size} pizza with {order.topping} for {order.price:.2f} EUR: shall I bake it (yes or no)?"


app = A2AApp(Pizzeria())
