"""``a2a-sync check`` against this library's server, and against servers with one fault each."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result
from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Request, Response

from a2a_sync import A2AApp, Agent, AgentHost, AgentSkill
from a2a_sync.auth import BearerAuth
from a2a_sync.cli.checks import CARD_CHECKS, CHECKS, checks_of
from tests.cli.agents import HOSTILE
from tests.cli.conftest import served
from tests.cli.test_agents import answers

Run = Callable[..., Result]
INTERFACES = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]


class Parrot(Agent):
    """Answers with the message, or asks."""

    name = "parrot"
    description = "Repeats"
    skills = (AgentSkill(id="repeat", name="Repeat", description="Says it again", tags=("echo",)),)

    def handle_message(self, message: Any, context: Any) -> object:
        return context.ask("which?") if message.text == "ask" else message.text


@pytest.fixture(scope="module")
def parrot_url() -> Iterator[str]:
    with served(A2AApp(Parrot())) as address:
        yield address


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def failures(result: Result) -> set[tuple[str, str]]:
    return {(one["check"], one["interface"]) for one in lines(result) if one["outcome"] == "fail"}


def test_our_own_server_passes_every_check_of_every_interface(run: Run, parrot_url: str) -> None:
    result = run("check", parrot_url, "--json")
    assert failures(result) == set()
    assert result.exit_code == 0
    assert len(lines(result)) == len(CARD_CHECKS) + sum(len(checks_of(*pair)) for pair in INTERFACES)
    for one in lines(result):
        assert one.keys() == {"check", "title", "section", "interface", "outcome", "detail", "seconds"}
        assert one["section"].startswith(("1.0 §", "0.3 §"))
    skipped = {one["check"] for one in lines(result) if one["outcome"] == "skipped"}
    assert skipped == {"card.signature", "error.credentials", "extended-card"}


def test_the_report_names_the_sections_and_counts(run: Run, parrot_url: str) -> None:
    result = run("check", parrot_url)
    assert "pass     JSONRPC 1.0    1.0 §3.1.1   a message is answered with a task or a message: a task, completed" in (
        result.stdout.splitlines()
    )
    assert " passed, 0 failed, " in result.stderr


def test_an_agent_that_asks_skips_what_needs_an_ended_task(run: Run, parrot_url: str) -> None:
    result = run("check", parrot_url, "--json", "--text", "ask")
    assert failures(result) == set()
    details = {one["check"]: one["detail"] for one in lines(result) if one["outcome"] == "skipped"}
    assert details["error.cancel-ended"] == "the task is input-required"


def test_an_agent_with_authentication_is_checked_with_credentials(run: Run) -> None:
    with served(A2AApp(Parrot(), auth=BearerAuth({"s3cret": "ada"}))) as url:
        result = run("check", url, "--json", "--auth", "s3cret")
        refused = run("check", url)
    assert failures(result) == set()
    passed = {
        one["interface"] for one in lines(result) if (one["check"], one["outcome"]) == ("error.credentials", "pass")
    }
    assert passed == {" ".join(pair) for pair in INTERFACES}
    assert refused.exit_code != 0
    assert "pass credentials in A2A_SYNC_AUTH" in refused.stderr


def replacing(old: bytes, new: bytes, method: str = "POST") -> Callable[[Any], Any]:
    """Middleware that changes the bodies of answers to requests with this method."""

    def wrap(inner: Any) -> Any:
        def app(environ: Any, start_response: Any) -> Any:
            if environ["REQUEST_METHOD"] != method:
                return inner(environ, start_response)
            body, status, headers = run_wsgi_app(inner, environ)
            answer = Response(b"".join(body).replace(old, new), status, headers)
            answer.headers.pop("Content-Length", None)
            return answer(environ, start_response)

        return app

    return wrap


FAULTS = {
    "another error code": (replacing(b"-32001", b"-32603"), ("error.code", "JSONRPC 1.0")),
    "no end of the stream": (
        replacing(b'"state":"TASK_STATE_COMPLETED"', b'"state":"TASK_STATE_WORKING"'),
        ("stream", "JSONRPC 1.0"),
    ),
    "a card without a description": (replacing(b'"Repeats"', b'""', "GET"), ("card.rules", "")),
    "streaming that is not announced": (
        replacing(b'"streaming":true', b'"streaming":false', "GET"),
        ("stream", "HTTP+JSON 1.0"),
    ),
    "another error for what is not JSON": (replacing(b"-32700", b"-32600"), ("error.not-json", "JSONRPC 0.3")),
}


@pytest.mark.parametrize(("fault", "found"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found_and_is_exit_code_1(run: Run, fault: Any, found: tuple[str, str]) -> None:
    with served(A2AApp(Parrot()), fault) as url:
        result = run("check", url, "--json", "--timeout", "5")
    assert found in failures(result)
    assert result.exit_code == 1


def streaming(number: int) -> Callable[[Any], Any]:
    """Middleware that answers each streamed send over JSON-RPC with as many snapshots of a megabyte, each with another artifact."""

    def wrap(inner: Any) -> Any:
        def app(environ: Any, start_response: Any) -> Any:
            body = Request(environ).get_data()
            environ["wsgi.input"] = io.BytesIO(body)
            if b'"SendStreamingMessage"' not in body:
                return inner(environ, start_response)
            return Response(events(json.loads(body)["id"]), mimetype="text/event-stream")(environ, start_response)

        return app

    def events(request_id: Any) -> Iterator[str]:
        task: dict[str, Any] = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        for one in range(number):
            task["artifacts"] = [{"artifactId": str(one), "parts": [{"text": "x" * 1_000_000}]}]
            yield f"data: {json.dumps({'jsonrpc': '2.0', 'id': request_id, 'result': {'task': task}})}\n\n"
        task["status"]["state"] = "TASK_STATE_COMPLETED"
        yield f"data: {json.dumps({'jsonrpc': '2.0', 'id': request_id, 'result': {'task': task}})}\n\n"

    return wrap


def test_a_long_stream_of_large_events_is_checked_without_keeping_them(run: Run) -> None:
    app = A2AApp(Parrot(), protocol_versions=["1.0"], protocol_bindings=["JSONRPC"])
    with served(app, streaming(60)) as url:
        tracemalloc.start()
        try:
            result = run("check", url, "--json")
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert {one["check"]: one["detail"] for one in lines(result)}["stream"] == "61 events, completed"
    assert most < 40_000_000


def test_a_junit_report_has_a_suite_for_each_interface(run: Run, tmp_path: Path) -> None:
    with served(A2AApp(Parrot()), replacing(b"-32001", b"-32603")) as url:
        run("check", url, "--junit", "report.xml")
    suites = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert [suite.get("name") for suite in suites] == ["card", *map(" ".join, INTERFACES)]
    case = suites.find(
        "testsuite[@name='JSONRPC 1.0']/testcase[@name='error.code: TaskNotFoundError has its code (1.0 §5.4)']/failure"
    )
    assert case is not None
    assert "expected the error -32001, not -32603" in str(case.get("message"))


def test_without_an_agent_there_is_nothing_to_check(run: Run) -> None:
    assert run("check", "http://127.0.0.1:1").exit_code == 3
    assert run("check", "grpc://127.0.0.1:1").exit_code == 2
    with served(AgentHost({"parrot": Parrot()})) as url:
        refused = run("check", url)
    assert (refused.exit_code, f"{url}/parrot/" in refused.stderr) == (2, True)


def test_each_check_has_a_section_and_a_name_of_its_own() -> None:
    for pair in INTERFACES:
        names = [check.name for check in checks_of(*pair)]
        assert len(set(names)) == len(names)
    assert all(check.v1 for check in CHECKS)


def test_of_very_many_broken_rules_and_interfaces_the_first_are_reported(run: Run, tmp_path: Path) -> None:
    with A2AApp(Parrot(), url="http://127.0.0.1:9/") as app:
        card = app.agent_card().to_dict()
    card["skills"] = [{"id": str(number), "name": "", "description": "d", "tags": ["t"]} for number in range(1000)]
    card["supportedInterfaces"] = [
        {"url": "http://127.0.0.1:9/", "protocolBinding": f"urn:{number}", "protocolVersion": "1.0"}
        for number in range(1000)
    ]
    with answers({"/.well-known/agent-card.json": card}) as url:
        result = run("check", url, "--json", "--junit", str(tmp_path / "report.xml"))
    rules, *others = map(json.loads, result.stdout.splitlines())
    assert rules["detail"].count("is required") == 100
    assert rules["detail"].endswith("; … 900 more")
    skipped = [one for one in others if one["check"] == "interface"]
    assert len(skipped) == 51
    assert skipped[-1]["detail"] == "950 more of the card"


def test_a_card_that_no_client_reads_is_not_checked(run: Run) -> None:
    with answers({"/.well-known/agent-card.json": {"name": "x" * 5_000_000}}) as url:
        result = run("check", url)
    assert (result.exit_code, "larger than 1048576 bytes" in result.stderr) == (3, True)


def test_names_of_a_card_do_not_reach_the_terminal_as_they_are(run: Run, tmp_path: Path) -> None:
    with A2AApp(Parrot(), url="http://127.0.0.1:9/") as app:
        card = app.agent_card().to_dict()
    hostile = {"url": "http://127.0.0.1:9/", "protocolBinding": f"EVIL{HOSTILE}", "protocolVersion": f"9{HOSTILE}"}
    card["supportedInterfaces"] = [hostile]
    with answers({"/.well-known/agent-card.json": card}) as url:
        for output in ((), ("--json",), ("--junit", str(tmp_path / "report.xml"))):
            result = run("check", url, *output)
            assert "EVIL" in result.stdout
            assert not set(result.output) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
    assert ElementTree.parse(tmp_path / "report.xml").getroot().tag == "testsuites"
