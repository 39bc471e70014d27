"""The service: ``POST /words``, and the same as an agent under ``/agents/words``."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, FastAPI

from a2a_sync import A2AApp, Agent, AgentSkill, Message, RequestContext
from a2a_sync.integrations.asgi import ASGIApp


def count_words(text: str) -> dict[str, int]:
    """How often each word is in the text, the most frequent first."""
    return dict(Counter(text.lower().split()).most_common())


class Words(Agent):
    """Counts the words of a text."""

    name = "words"
    skills = [AgentSkill(id="count", name="Count", description="Counts words", tags=["text"])]

    def handle_message(self, message: Message, context: RequestContext) -> Iterator[str]:
        """Each word and its number as a chunk of its own."""
        for word, number in count_words(message.text).items():
            context.check_cancelled()
            yield f"{word}: {number}\n"


agent = ASGIApp(A2AApp(Words()))


@asynccontextmanager
async def lifespan(service: FastAPI) -> AsyncIterator[None]:
    """A mounted application receives no lifespan events, so the host closes the agent."""
    yield
    await agent.close()


service = FastAPI(lifespan=lifespan)
service.mount("/agents/words", agent)


@service.post("/words")
def words(text: Annotated[str, Body()]) -> dict[str, int]:
    """The service as it was before."""
    return count_words(text)
