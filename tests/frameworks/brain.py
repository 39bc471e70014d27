"""A model without a network, which all frameworks of these tests are given, and the tools that it calls."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

#: In prompts, in what tools are given, and in exceptions. It must appear in nothing that is sent or stored.
CANARY = "canary-93f1"
SYSTEM = f"You are a shop. {CANARY}"
INPUT_TOKENS, OUTPUT_TOKENS = 7, 3
TIMEOUT = 10.0


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


def think(turns: list[tuple[str, str]]) -> str | list[Call]:
    """The answer to a conversation of roles and texts: text, or calls of tools."""
    role, last = turns[-1]
    if role == "tool":
        results = []
        for role, text in reversed(turns):
            if role != "tool":
                break
            results.insert(0, text)
        return f"Done: {' and '.join(results)}."
    match last:
        case "add":
            return [Call("add", {"a": 1, "b": 2})]
        case "buy":
            return [Call("buy", {"what": "boat"})]
        case "buy two":
            return [Call("buy", {"what": "boat"}), Call("buy", {"what": "car"})]
        case "buy and order":
            return [Call("buy", {"what": "boat"}), Call("clerk", {"message": "order"})]
        case "order twice":
            return [Call("clerk", {"message": "order"})] * 2
        case "order" | "order slowly" | "order quickly" | "order badly":
            return [Call("clerk", {"message": last})]
        case "wait" | "whoami" | "doze":
            return [Call(last)]
        case "doze twice":
            return [Call("doze")] * 2
        case "break":
            raise ValueError(CANARY)
    return f"You said: {', '.join(text for role, text in turns if role == 'user')}."


def words(text: str) -> list[str]:
    """The tokens of a text."""
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]


class Price(BaseModel):
    """A structured answer."""

    amount: int


class Tools:
    """What the tools have seen."""

    def __init__(self) -> None:
        self.bought: list[str] = []
        self.deps: list[Any] = []
        #: Further tools, in the form of the framework.
        self.more: list[Any] = []
        self.loops: set[int] = set()
        self.waiting, self.stopped = threading.Event(), threading.Event()
        self.dozing, self.awake = threading.Event(), threading.Event()
        self.dozers = 0

    async def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        self.loops.add(id(asyncio.get_running_loop()))
        return str(a + b)

    def buy(self, what: str) -> str:
        """Buy something."""
        self.bought.append(what)
        return f"bought a {what}"

    async def wait(self) -> str:
        """Wait for a long time."""
        self.waiting.set()
        try:
            await asyncio.sleep(TIMEOUT)
        finally:
            self.stopped.set()
        return "waited"

    def doze(self) -> str:
        """Block a thread."""
        self.dozers += 1
        self.dozing.set()
        self.awake.wait(TIMEOUT * 9)
        return "awake"
