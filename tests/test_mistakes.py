"""Frequent mistakes are refused where they are made, by an error that says what was wrong, where, and what to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentHost, Client, Limits, MemoryStore, Message, RequestContext, Role, TaskState
from a2a_sync.auth import BearerAuth, Principal
from a2a_sync.errors import CardNotFoundError, PermissionDeniedError, UnauthenticatedError
from a2a_sync.integrations.asgi import ASGIApp
from a2a_sync.integrations.django import urls
from a2a_sync.integrations.flask import blueprint
from a2a_sync.limits import OwnerQuota
from a2a_sync.testing import client_of, wsgi_session


class Echo(Agent):
    name = "echo"

    def handle_message(self, message: Message, context: RequestContext) -> str:
        return message.text


class NoSelf(Agent):
    def handle_message(message, context):  # type: ignore[no-untyped-def, override]
        return ""


def anything(value: object) -> Any:
    """`value` without its type, as in a program that no type checker has seen."""
    return value


def one_parameter() -> None:
    @Agent("mute").message
    def answer(message: Message) -> str:
        return ""


def cancel_without_context() -> None:
    @Agent("mute").on_cancel
    def stop() -> None:
        pass


def call(method: str, *args: object, **options: object) -> None:
    with Client(Echo()) as client:
        getattr(client, method)(*args, **options)


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (one_parameter, r"a handler is called with \(message, context\), and .*answer\(message.* does not accept"),
        (cancel_without_context, r"a handler is called with \(context\), and .*stop\(.* does not accept"),
        (lambda: A2AApp(NoSelf()), r"called with \(message, context\), and .*NoSelf.handle_message\(context\)"),
        (lambda: A2AApp(Echo(), limits=anything({})), r"limits takes Limits\(…\), not a dict"),
        (lambda: AgentHost(limits=anything(3)), r"limits takes Limits\(…\), not a int"),
        (lambda: A2AApp(Echo(), url="agents.example.com"), "url must begin with http.*; not 'agents.example.com'"),
        (lambda: AgentHost(url="agents.example.com"), "url must begin with http.*; not 'agents.example.com'"),
        (lambda: A2AApp(Echo(), protocol_versions=("2.0",)), "protocol_versions: '2.0' is none of 1.0, 0.3"),
        (lambda: A2AApp(Echo(), protocol_bindings=("grpc",)), "protocol_bindings: 'grpc' is none of JSONRPC, HTTP"),
        (lambda: blueprint(anything(Echo())), r"only an A2AApp or AgentHost .*, not a Echo; for an agent: A2AApp\("),
        (lambda: urls(anything(Echo())), r"only an A2AApp or AgentHost .*, not a Echo; for an agent: A2AApp\("),
        (lambda: ASGIApp(anything(Echo())), r"only an A2AApp or AgentHost .*, not a Echo; for an agent: A2AApp\("),
        (lambda: Limits(run_timeout=anything("3")), "Limits.run_timeout must be a number, not '3'"),
        (lambda: Limits(run_timeout=True), "Limits.run_timeout must be a number, not True"),
        (lambda: Limits(max_open_streams=anything(3.5)), r"Limits.max_open_streams must be a whole number, not 3\.5"),
        (lambda: OwnerQuota(max_tasks=anything(3.5)), r"OwnerQuota.max_tasks must be a whole number, not 3\.5"),
        (lambda: Client("localhost:8000"), "the agent's URL must begin with .*for example, http://127.0.0.1:8000"),
        (lambda: call("send", b"abc"), r"not bytes; send bytes as FilePart\(raw=…\)"),
        (lambda: call("send", {"a": 1}), r"not dict; send a mapping as DataPart\(…\)"),
        (lambda: call("send", Message(role=Role.USER, parts=anything("text"))), "the parts of a Message are .*not str"),
        (lambda: call("send", "text", task="t"), "unexpected argument 'task'; besides its own arguments"),
        (lambda: call("get_task", Echo()), "task_id takes the id of a task, such as task.id; not Echo"),
        (lambda: call("send", "text", task_id=7), "task_id takes the id of a task, such as task.id; not int"),
    ],
)
def test_the_error_names_the_mistake_and_the_remedy(mistake: Callable[[], object], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        mistake()


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (b"raw", "not bytes; send bytes as FilePart(raw=…)"),
        (3, "not int; send values as DataPart(…)"),
        (Principal, "not the class Principal; give an instance"),
        ([object()], "not object"),
    ],
)
def test_the_log_names_what_a_handler_must_not_return(
    returned: object, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent("odd")
    agent.message(lambda message, context: returned)
    with Client(agent) as client, caplog.at_level(logging.ERROR):
        assert client.send("x").task.state is TaskState.FAILED
    assert f"expected text, a part or a list of parts, {text}" in caplog.text


def test_a_closed_client_asks_for_another_one() -> None:
    client = Client(Echo())
    client.close()
    with pytest.raises(RuntimeError, match="the client is closed; create another one"):
        client.send("x")


def test_a_reason_that_all_urls_of_a_card_share_is_given_once() -> None:
    def unavailable(environ: Any, start_response: Any) -> list[bytes]:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"two workers over tasks in memory"]

    client = Client("http://agent.test", session=wsgi_session(unavailable))
    with pytest.raises(CardNotFoundError) as caught:
        client.card()
    text = str(caught.value)
    assert len(re.findall("two workers", text)) == 1
    assert len(re.findall("http://agent.test/.well-known/", text)) == 2


@pytest.mark.parametrize("scopes", [{"SendMessage": "write"}, {"SendStreamingMessage": "write"}])
@pytest.mark.parametrize("stream", [True, False])
def test_scopes_of_a_send_apply_whether_it_streams_or_not(scopes: dict[str, str], stream: bool) -> None:
    auth = BearerAuth({"t": Principal(id="ada", scopes=("read",))})
    app = A2AApp(Echo(), auth=auth, required_scopes={"*": "read", **scopes})
    with client_of(app, "wsgi", auth="t") as client, pytest.raises(PermissionDeniedError, match="scope write"):
        client.send("x", stream=stream)
    app.close()


def test_streams_may_have_scopes_of_their_own() -> None:
    auth = BearerAuth({"t": Principal(id="ada", scopes=("read",))})
    app = A2AApp(Echo(), auth=auth, required_scopes={"SendMessage": "write", "SendStreamingMessage": "read"})
    with client_of(app, "wsgi", auth="t") as client:
        assert client.send("x").text == "x"
        with pytest.raises(PermissionDeniedError):
            client.send("x", stream=False)
    app.close()


def test_a_refused_caller_without_an_address_is_logged_readably(caplog: pytest.LogCaptureFixture) -> None:
    app = A2AApp(Echo(), auth=BearerAuth({"t": "ada"}))
    with client_of(app, "wsgi") as client, pytest.raises(UnauthenticatedError):
        client.send("x")
    assert "refused a caller from an unknown address: no credentials" in caplog.text
    app.close()


class FileStore:
    """A store of another author, for one process."""

    workers = None

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize(("make", "warns"), [(MemoryStore, False), (lambda: FileStore(MemoryStore()), True)])
def test_a_store_that_cannot_recover_runs_says_so(
    make: Callable[[], Any], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    A2AApp(Echo(), store=make()).close()
    assert ("FileStore has no workers: a run that is unfinished" in caplog.text) is warns
