"""`AgentService` without any transport: callers are authenticated, calls are answered, and everything stops."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Limits
from a2a_sync.auth.request import AuthRequest
from a2a_sync.auth.schemes import BearerAuth
from a2a_sync.errors import InternalError, PermissionDeniedError, UnauthenticatedError
from a2a_sync.operations import GET_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE, Call, CallContext, Principal
from a2a_sync.server.engine import Mount, ServerEngine
from a2a_sync.server.service import AgentService
from a2a_sync.types import GetTaskRequest, Message, Role, SendMessageRequest, Task, TextPart

ADA = Principal(id="ada", scopes=("write",))


def make(agent: Agent, **options: Any) -> AgentService:
    return AgentService(agent, Mount(ServerEngine(None, Limits())), **options)


def echo() -> Agent:
    agent = Agent("echo")
    agent.message(lambda message, context: f"{context.user.id if context.user else 'anonymous'}: {message.text}")
    return agent


def call(operation: Any = SEND_MESSAGE, principal: Principal | None = None, text: str = "hi") -> Call:
    message = Message(message_id="m", role=Role.USER, parts=(TextPart(text),))
    return Call(operation, SendMessageRequest(message=message), CallContext(principal=principal))


@pytest.fixture
def service() -> Iterator[AgentService]:
    with make(echo(), auth=BearerAuth({"t": ADA}), required_scopes={"GetTask": "read"}) as made:
        yield made


def test_a_transport_needs_only_authenticate_and_call(service: AgentService) -> None:
    principal = service.authenticate(AuthRequest({"authorization": "Bearer t"}))
    task = service.call(call(principal=principal))
    assert isinstance(task, Task)
    assert task.text == "ada: hi"


def test_a_request_without_credentials_is_refused(service: AgentService) -> None:
    with pytest.raises(UnauthenticatedError):
        service.authenticate(AuthRequest({}))


def test_without_auth_the_caller_is_the_one_of_the_framework() -> None:
    with make(echo()) as service:
        assert service.authenticate(AuthRequest({})) is None
        assert service.authenticate(AuthRequest({}, principal="ada")) == Principal(id="ada")


def test_operations_need_their_scopes(service: AgentService) -> None:
    with pytest.raises(PermissionDeniedError):
        service.call(Call(GET_TASK, GetTaskRequest(id="x"), CallContext(principal=ADA)))


def test_a_stream_is_returned_as_one(service: AgentService) -> None:
    stream = service.call(call(SEND_STREAMING_MESSAGE, ADA))
    try:
        assert any("ada: hi" in str(item.event) for item in stream)
    finally:
        stream.close()


def test_an_unexpected_exception_is_an_internal_error_with_an_id(caplog: pytest.LogCaptureFixture) -> None:
    def broken(endpoint: Any) -> Any:
        def fail(call: Call) -> Any:
            raise RuntimeError("s3cret")

        return fail

    with make(echo(), interceptors=[broken]) as service, pytest.raises(InternalError) as caught:
        service.call(call())
    assert "s3cret" not in str(caught.value)
    assert str(caught.value)[-9:-1] in caplog.text


def test_a_service_that_stops_is_not_ready() -> None:
    service = make(echo())
    service.call(call())
    assert service.not_ready_reason() == ""
    service.close(0)
    assert service.not_ready_reason() == "stopping"


def test_an_app_and_its_service_have_the_same_card() -> None:
    with make(echo(), url="https://agent.example/") as service, A2AApp(echo(), url="https://agent.example/") as app:
        assert service.card() == app.agent_card()


def test_the_service_loads_no_transport() -> None:
    code = (
        "import sys, a2a_sync.server.service\n"
        "assert not {name for name in sys.modules if name.startswith(('werkzeug', 'a2a_sync.wsgi', 'requests'))}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
