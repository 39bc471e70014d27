"""The agent of `tests.agents.large` for callers with client certificates; ``name`` is answered with their subject, ``ask`` with a
question."""

from __future__ import annotations

from a2a_sync import A2AApp, InputRequired, Message, RequestContext
from a2a_sync.auth import MTLSAuth
from tests.agents import large

__all__ = ["app"]


@large.agent.message
def answer_by_name(message: Message, context: RequestContext) -> object:
    """The answer of `tests.agents.large`, the name of the caller, or a question."""
    assert context.user is not None
    if message.text == "ask":
        return InputRequired("And then?")
    return context.user.id if message.text == "name" else large.answer(message, context)


app = A2AApp(large.agent, limits=large.app.limits, auth=MTLSAuth())
