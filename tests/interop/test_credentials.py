"""The official client, with its credentials interceptor, against an app whose card requires authentication."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.live import gunicorn
from tests.peers.async_client import run

pytest.importorskip("a2a", reason="the official SDK is not installed (make interop installs it)")

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.client.errors import A2AClientError
from a2a.types import (
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

SECRETS = {"bearer": ("bearer", "t0ken"), "key": ("apiKey", "k3y")}
SESSION = ClientCallContext(state={"sessionId": "s"})


@pytest.fixture(scope="module", params=SECRETS)
def guarded(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, str]]:
    """The URL of the agent, the scheme's name in the card, and a valid secret."""
    with gunicorn("tests.agents.guarded:app", environment={"GUARDED_BY": request.param}) as server:
        yield (server.url, *SECRETS[request.param])


@asynccontextmanager
async def sdk_client(url: str, binding: str, scheme: str, secret: str) -> AsyncIterator[Any]:
    store = InMemoryContextCredentialStore()
    await store.set_credentials("s", scheme, secret)
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card(http_kwargs={"headers": {"A2A-Version": "1.0"}})
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
        yield ClientFactory(config).create(card, interceptors=[AuthInterceptor(store)])


def hello() -> Any:
    return SendMessageRequest(message=Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text="hi")]))


BINDINGS = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@BINDINGS
def test_the_sdk_client_authenticates_as_the_card_describes(guarded: tuple[str, str, str], binding: str) -> None:
    async def conversation(client: Any) -> None:
        received = [event async for event in client.send_message(hello(), context=SESSION)]
        task_id = received[0].task.id
        task = await client.get_task(GetTaskRequest(id=task_id), context=SESSION)
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == "hello ada"
        card = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=SESSION)
        assert card.name == "guarded, for callers"

    run(sdk_client(guarded[0], binding, *guarded[1:]), conversation)


@BINDINGS
@pytest.mark.parametrize("context", [None, SESSION], ids=["none", "wrong"])
def test_wrong_credentials_are_refused(guarded: tuple[str, str, str], binding: str, context: Any) -> None:
    async def conversation(client: Any) -> None:
        with pytest.raises(A2AClientError) as refused:
            async for _ in client.send_message(hello(), context=context):
                pass
        assert "401" in str(refused.value) or "not accepted" in str(refused.value) or "required" in str(refused.value)

    run(sdk_client(guarded[0], binding, guarded[1], "wr0ng"), conversation)
