"""The agent for slow clients: ``gunicorn tests.agents.large:app``. ``large N`` is answered with N bytes.

`LARGE_LIMITS` holds fields of `Limits` as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from a2a_sync import A2AApp, Agent, Limits, Message, RequestContext

agent = Agent("large")


@agent.message
def answer(message: Message, context: RequestContext) -> Iterator[str]:
    """The requested number of bytes in chunks of at most a megabyte, or the text."""
    word, _, size = message.text.partition(" ")
    left = int(size) if word == "large" else 0
    if not left:
        yield message.text
    while left > 0:
        yield "y" * min(left, 1_000_000)
        left -= 1_000_000


app = A2AApp(agent, limits=Limits(**json.loads(os.environ.get("LARGE_LIMITS", "{}"))))
