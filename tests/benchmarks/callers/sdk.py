"""Prints the processor seconds per call of a2a-sdk's client: URL, "send" or "streamed send", text, calls per batch.

The best of six batches, as in `ours`.
"""

import asyncio
import sys
import time
import uuid

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest


async def call(client: Client, text: str) -> str:
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
    last = None
    async for event in client.send_message(SendMessageRequest(message=message)):
        last = event
    return str(last)


async def main(url: str, operation: str, text: str, calls: str) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        config = ClientConfig(httpx_client=http, streaming=operation != "send")
        client = ClientFactory(config).create(card)
        await call(client, text)
        batches = []
        for _ in range(6):
            begun = time.process_time()
            for _ in range(int(calls)):
                assert "TASK_STATE_COMPLETED" in await call(client, text)
            batches.append((time.process_time() - begun) / int(calls))
        print(min(batches))


asyncio.run(main(*sys.argv[1:]))
