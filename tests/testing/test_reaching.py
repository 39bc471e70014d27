"""Clients over every way to what is tested, and streams that are cut on the way."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Artifact, TaskArtifactUpdateEvent, TextPart, TransportError
from a2a_sync.errors import StreamInterruptedError
from a2a_sync.testing import CutStreams, ScriptedAgent, client_of, outline, socket_server, wsgi_session

WAYS = pytest.mark.parametrize("over", ["local", "wsgi", "socket"])
WHOLE = ["working", "a", "b", "c", "completed"]


def abc() -> ScriptedAgent:
    return ScriptedAgent(["a", "b", "c"])


@WAYS
def test_an_app_is_reached_as_it_is_and_stays_open(over: str) -> None:
    with A2AApp(ScriptedAgent("x", name="mine")) as app:
        for _ in range(2):
            with client_of(app, over) as client:
                assert (client.card().name, client.send("go").text) == ("mine", "x")


@WAYS
def test_what_was_made_for_an_agent_ends_with_the_block(over: str) -> None:
    agent = ScriptedAgent("x")
    with client_of(agent, over) as client:
        task = client.send("go")
    with client_of(agent, over) as client, pytest.raises(Exception, match=r"(?i)not found"):
        client.get_task(task.id)


def test_an_agents_own_calls_are_left_alone() -> None:
    agent = Agent("echo")
    agent.message(lambda message, context: message.text)
    with agent:
        mine = agent.call("mine")
        with client_of(agent) as client:
            client.send("tested")
        assert agent.get_task(mine.id).text == "mine"


def test_any_wsgi_application_can_be_in_front_of_the_agent() -> None:
    with A2AApp(ScriptedAgent("x")) as app:
        seen = []

        def site(environ: Any, start_response: Any) -> Any:
            seen.append(environ["PATH_INFO"])
            return app(environ, start_response)

        with client_of(site, "wsgi") as client:
            assert client.send("go").text == "x"
    assert "/.well-known/agent-card.json" in seen


def test_a_url_is_called_as_it_is() -> None:
    with A2AApp(ScriptedAgent("x")) as app, socket_server(app) as url, client_of(url) as client:
        assert client.send("go").text == "x"
        with pytest.raises(ValueError, match="cut_after"), client_of(url, cut_after=1):
            pass


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="local, wsgi, socket"), client_of(abc(), "pigeon"):
        pass


@WAYS
@pytest.mark.parametrize("after", [1, 2, 4, (1, 1, 1), (3, 0, 1)], ids=str)
def test_streams_go_on_wherever_they_are_cut(over: str, after: Any) -> None:
    with client_of(abc(), over, cut_after=after) as client:
        assert outline(client.stream("go")) == WHOLE
        assert client.send("go").text == "abc"


@pytest.mark.parametrize("over", ["wsgi", "socket"])
def test_a_message_whose_answer_was_cut_off_at_once_is_sent_again_and_run_once(over: str) -> None:
    agent = abc()
    with client_of(agent, over, cut_after=(0, 0)) as client:
        assert outline(client.stream("go")) == WHOLE
    assert len(agent.received) == 1


@WAYS
def test_without_trying_again_a_cut_is_an_error(over: str) -> None:
    with client_of(abc(), over, cut_after=[2, 3], retry=None) as client:
        for sent in ("a", "ab"):
            stream = client.stream("go")
            with pytest.raises(StreamInterruptedError):
                list(stream)
            assert stream.text == sent
        assert outline(client.stream("go")) == WHOLE


@WAYS
def test_a_stream_that_ends_before_its_cut_is_whole(over: str) -> None:
    with client_of(abc(), over, cut_after=100, retry=None) as client:
        assert outline(client.stream("go")) == WHOLE


def test_an_outline_omits_the_repeated_whole_and_nothing_else() -> None:
    def event(text: str, *, append: bool = False, last: bool = False) -> TaskArtifactUpdateEvent:
        artifact = Artifact(artifact_id="x", parts=(TextPart(text),))
        return TaskArtifactUpdateEvent(artifact=artifact, append=append, last_chunk=last)

    begun = [event("a"), event("b", append=True)]
    assert outline([*begun, event("ab", last=True)]) == ["a", "b"]
    assert outline([begun[1], event("ab", last=True)]) == ["b"]
    assert outline([*begun, event("", append=True, last=True)]) == ["a", "b"]
    assert outline([*begun, event("c", last=True)]) == ["a", "b", "c"]
    assert outline([*begun, event("ab")]) == ["a", "b", "ab"]
    assert outline([event("ab", last=True)]) == ["ab"]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["0.3", "1.0"])
def test_every_form_of_the_wire_is_cut(binding: str, version: str, a2a_wsgi_client: Any) -> None:
    client = a2a_wsgi_client(abc(), cut_after=2, protocol_version=version, protocol_binding=binding)
    assert outline(client.stream("go")) == WHOLE


def test_a_broken_body_reaches_the_application_and_the_caller() -> None:
    ended = []

    class Body:
        def __iter__(self) -> Any:
            yield b"data: 1\n\ndata: 2\n\n"
            yield b"data: 3\n\n"

        def close(self) -> None:
            ended.append(True)

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return Body()

    with wsgi_session(CutStreams(app, 1)) as session:
        answer = session.get("http://agent.test/", stream=True)
        pieces = []
        with pytest.raises(Exception, match="cut by the test"):
            pieces += answer.iter_content(None)
        assert ended == [True]
        assert session.get("http://agent.test/").content == b"data: 1\n\ndata: 2\n\ndata: 3\n\n"


def test_what_is_no_stream_is_not_cut() -> None:
    with A2AApp(abc(), card=None) as app, wsgi_session(CutStreams(app, 0)) as session:
        assert session.get("http://agent.test/.well-known/agent-card.json").ok
        with client_of(CutStreams(app, 0), "wsgi", retry=None) as client, pytest.raises(TransportError):
            client.send("go")
