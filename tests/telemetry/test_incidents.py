"""Exceptions of handlers: an id for the caller, a traceback with ``debug=True``, the exception itself with ``raises=True``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentHost, Client, Message, PublicError, RequestContext, Task, TaskState
from a2a_sync.errors import InternalError
from a2a_sync.testing import client_of, wsgi_session

TRANSPORTS = pytest.mark.parametrize("over", ["local", "wsgi", "socket"])
ONLY_AN_ID = re.compile(r"internal error \(id [0-9a-f]{8}\)")


class Secret(Exception):
    """What a handler raises."""


class Broken(Agent):
    """Raises, at the moment that the message names."""

    name = "broken"
    description = "Raises"

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        if message.text == "chunks":
            return self._chunks()
        if message.text == "async":
            return self._async()
        if message.text == "public":
            raise PublicError("out of flour")
        raise Secret("the password is 1234")

    def _chunks(self) -> Iterator[str]:
        yield "one"
        raise Secret("the password is 1234")

    async def _async(self) -> str:
        raise Secret("the password is 1234")


class Direct(Broken):
    """Raises where an answer without a task is possible."""

    direct = True


class Illegal:
    """Yields what no run may yield."""

    def execute(self, context: RequestContext) -> Iterator[Any]:
        yield "no event"


def failure(client: Client, word: str, *, stream: bool = False) -> str:
    """What the client is shown of a run that failed."""
    try:
        if stream:
            events = client.stream(word)
            list(events)
            answer = events.result
        else:
            answer = client.send(word)
    except InternalError as error:
        return error.message
    assert isinstance(answer, Task)
    assert answer.state is TaskState.FAILED
    assert answer.status.message is not None
    return answer.status.message.text


@TRANSPORTS
@pytest.mark.parametrize("agent", [Broken, Direct])
@pytest.mark.parametrize("word", ["plain", "chunks", "async"])
def test_a_traceback_reaches_the_caller_with_debug_only(over: str, agent: type[Agent], word: str) -> None:
    with client_of(agent(), over) as client:
        assert ONLY_AN_ID.fullmatch(failure(client, word))
        assert ONLY_AN_ID.fullmatch(failure(client, word, stream=True))
    with client_of(agent(), over, debug=True) as client:
        for stream in (False, True):
            shown = failure(client, word, stream=stream)
            assert ONLY_AN_ID.match(shown)
            assert "Traceback (most recent call last)" in shown
            assert "in handle_message" in shown or "in _chunks" in shown or "in _async" in shown
            assert shown.endswith("Secret: the password is 1234")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("agent", [Broken, Direct])
def test_a_traceback_passes_every_binding_and_version(version: str, binding: str, agent: type[Agent]) -> None:
    with client_of(agent(), "wsgi", debug=True, protocol_version=version, protocol_binding=binding) as client:
        for stream in (False, True):
            assert failure(client, "plain", stream=stream).endswith("Secret: the password is 1234")


def test_an_event_that_no_run_may_emit_is_shown_too() -> None:
    card = Broken().describe()
    for debug in (False, True):
        with A2AApp(Illegal(), card=card, debug=debug) as app, client_of(app) as client:
            assert ("Traceback" in failure(client, "go")) is debug


def test_what_an_interceptor_raises_is_shown_too() -> None:
    def interceptor(endpoint: Any) -> Any:
        def intercepted(call: Any) -> Any:
            raise Secret("in the interceptor")

        return intercepted

    for debug in (False, True):
        with A2AApp(Broken(), interceptors=[interceptor], debug=debug) as app, client_of(app, "wsgi") as client:
            assert ("in the interceptor" in failure(client, "go")) is debug


def test_a_host_shows_the_tracebacks_of_all_its_agents_or_of_none() -> None:
    for debug in (False, True):
        with AgentHost({"one": Broken()}, debug=debug) as host, client_of(host["one"]) as client:
            assert ("Traceback" in failure(client, "go")) is debug
            with pytest.raises(TypeError, match="share debug"):
                host.add("two", Broken(), debug=True)


def test_what_is_meant_for_the_caller_comes_as_it_is() -> None:
    with client_of(Broken(), debug=True) as client:
        assert failure(client, "public") == "out of flour"


def test_a_long_traceback_is_cut_at_its_beginning() -> None:
    class Long(Broken):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            raise Secret("x" * 100_000 + " the end")

    with client_of(Long(), debug=True) as client:
        shown = failure(client, "go")
    assert ONLY_AN_ID.match(shown)
    assert len(shown) < 20_000
    assert shown.endswith("the end")


def test_an_app_that_shows_tracebacks_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    A2AApp(Broken()).close()
    assert not caplog.records
    A2AApp(Broken(), debug=True).close()
    assert "debug=True" in caplog.text


# -- raises=True --------------------------------------------------------------------------------------------------------


@TRANSPORTS
@pytest.mark.parametrize("agent", [Broken, Direct])
@pytest.mark.parametrize("word", ["plain", "chunks", "async"])
def test_an_exception_of_a_handler_is_raised_in_the_test(over: str, agent: type[Agent], word: str) -> None:
    with client_of(agent(), over, raises=True) as client:
        with pytest.raises(Secret, match="1234") as caught:
            client.send(word)
        assert any(
            entry.path.name == "test_incidents.py" and entry.name != caught.traceback[0].name
            for entry in caught.traceback
        )
        with pytest.raises(Secret):
            list(client.stream(word))


def test_an_exception_is_raised_once_and_its_task_can_be_read_then(a2a_client: Any) -> None:
    client = a2a_client(Broken(), raises=True)
    with pytest.raises(Secret):
        client.send("plain")
    (task,) = client.list_tasks().tasks
    assert client.get_task(task.id).state is TaskState.FAILED


def test_an_app_is_tested_in_the_same_way() -> None:
    with A2AApp(Broken()) as app, client_of(app, "wsgi", raises=True) as client, pytest.raises(Secret):
        client.send("plain")


def test_an_assertion_in_a_handler_fails_the_test() -> None:
    class Asserts(Broken):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            assert message.text == "expected"

    with client_of(Asserts(), raises=True) as client:
        assert client.send("expected").state is TaskState.COMPLETED
        with pytest.raises(AssertionError):
            client.send("other")


def test_errors_that_are_meant_for_the_caller_are_not_raised() -> None:
    with client_of(Broken(), raises=True) as client:
        assert failure(client, "public") == "out of flour"


def test_interceptors_of_the_test_are_kept() -> None:
    seen = []

    def interceptor(endpoint: Any) -> Any:
        return lambda call: (seen.append(call.operation.name), endpoint(call))[1]

    with client_of(Broken(), raises=True, interceptors=[interceptor]) as client, pytest.raises(Secret):
        client.send("plain")
    assert seen


def test_what_runs_elsewhere_raises_nothing_here() -> None:
    with pytest.raises(ValueError, match="raises"), client_of("http://agent.test", raises=True):
        pass
    with pytest.raises(ValueError, match="debug"), A2AApp(Broken()) as app, client_of(app, debug=True):
        pass


def test_nothing_is_kept_after_the_client() -> None:
    from a2a_sync.telemetry import incidents

    before = list(incidents.observers)
    with client_of(Broken(), raises=True):
        assert len(incidents.observers) == len(before) + 1
    assert incidents.observers == before
    with A2AApp(Broken()) as app, wsgi_session(app):
        pass
