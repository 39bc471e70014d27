"""The agent of `tests.agents.large` for callers with client certificates; ``name`` is answered with their subject."""

from __future__ import annotations

from a2a_sync import A2AApp, Message, RequestContext
from a2a_sync.auth import MTLSAuth
from tests.agents import large

__all__ = ["app"]


@large.agent.message
def answer_by_name(message: Message, context: RequestContext) -> object:
    """The answer of `tests.agents.large`, or the name of the caller."""
    assert context.user is not None
    return context.user.id if message.text == "name" else large.answer(message, context)


app = A2AApp(large.agent, limits=large.app.limits, auth=MTLSAuth())
