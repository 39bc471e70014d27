"""Invalid input: the response says what is wrong, the store is unchanged, and the next caller is served.

The tables of `tests.hostile` for each protocol version, against the app in process and a real gunicorn (marked ``live``). Both use
a database file, whose complete dumps are compared.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests
from werkzeug.datastructures import Headers

from tests.agents.strict import make_app
from tests.hostile import Case, http_json, v03, v10
from tests.live import gunicorn
from tests.wsgi import JSON_HEADERS, Answer, Peer, message, rpc

pytestmark = pytest.mark.timeout(60)

CASES = [*v10.cases(), *v03.cases()]
PATH_CASES = list(http_json.cases())


# -- targets ------------------------------------------------------------------------------------------------------------


class Server(Protocol):
    """A server that receives a body."""

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer: ...

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer: ...


class LivePeer:
    """A real server, called with `requests`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        return self.request("POST", "/", body, {**JSON_HEADERS, **(headers or {})})

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        named = {name: value.encode() for name, value in headers.items()}
        response = requests.request(method, self.url + path, data=body, headers=named, timeout=60)
        return Answer(response.status_code, Headers(list(response.headers.items())), response.content)


class Target:
    """A server with a finished, an interrupted and a running task, and its database file."""

    def __init__(self, server: Server, database: Path) -> None:
        self.server = server
        self._database = sqlite3.connect(database)
        self._dumped: tuple[object, list[str]] | None = None
        finished = self.send("echo one")
        asked = self.send("ask")
        busy = self.result("SendMessage", {**message("wait 600"), "configuration": {"returnImmediately": True}})
        self.await_message(busy["task"]["id"])
        token = self.result("ListTasks", {"pageSize": 1})["nextPageToken"]
        self.words = {
            "FINISHED": finished,
            "ASKED": asked,
            "BUSY": busy["task"]["id"],
            "TOKEN": token,
            "FORGED": forged(token, "\ud800"),
            "OTHER": forged(token, 5),
        }

    def result(self, method: str, params: Any) -> Any:
        return self.server.post(rpc(method, params)).result

    def send(self, text: str) -> str:
        task_id: str = self.result("SendMessage", message(text))["task"]["id"]
        return task_id

    def await_message(self, task_id: str) -> None:
        """Wait until the task's run has emitted its last message: after that, nothing else writes."""
        deadline = time.monotonic() + 60
        while "message" not in self.result("GetTask", {"id": task_id})["status"]:
            assert time.monotonic() < deadline, "the run emitted no message"

    def filled(self, body: bytes) -> bytes:
        for word, value in self.words.items():
            body = body.replace(b'"%s"' % word.encode(), json.dumps(value).encode())
        return body

    def dump(self) -> list[str]:
        """All stored data as SQL, except for the servers' heartbeats."""
        # The version changes with each commit of another connection.
        version = self._database.execute("PRAGMA data_version").fetchone()
        if self._dumped is None or self._dumped[0] != version:
            lines = [line for line in self._database.iterdump() if not line.startswith('INSERT INTO "a2a_workers"')]
            self._dumped = version, lines
        return self._dumped[1]

    def close(self) -> None:
        self._database.close()


def forged(token: str, id: Any) -> str:
    """A page token of the server with the id of another task."""
    moment, _, mark = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(json.dumps([moment, id, mark]).encode()).rstrip(b"=").decode()


@pytest.fixture(scope="module", params=["wsgi", pytest.param("gunicorn", marks=pytest.mark.live)])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    database = tmp_path_factory.mktemp("hostile") / "tasks.db"
    store = f"sqlite:///{database}"
    if request.param == "wsgi":
        with make_app(store) as app, closing(Target(Peer(app), database)) as target:
            yield target
    else:
        with gunicorn("tests.agents.strict:app", environment={"STRICT_STORE": store}) as server:
            with closing(Target(LivePeer(server.url), database)) as target:
                yield target
            log = server.log
        assert "Traceback" not in log
        assert "request failed" not in log


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_invalid_input_gets_its_error_and_changes_nothing(case: Case, target: Target) -> None:
    before = target.dump()

    answer = target.server.post(target.filled(case.body), case.headers)

    assert answer.headers["Content-Type"] == "application/json"
    assert (answer.status, answer.error["code"], answer.json["id"]) == (case.status, case.code, case.id)
    assert case.names in answer.error["message"]
    assert answer.error["data"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert len(answer.body) < 1500
    assert target.dump() == before

    good = target.result("GetTask", {"id": target.words["FINISHED"]})
    assert good["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("case", PATH_CASES, ids=lambda case: case.name)
def test_invalid_input_over_http_json_gets_its_error(case: http_json.PathCase, target: Target) -> None:
    before = target.dump()

    headers = {**JSON_HEADERS, **case.headers}
    answer = target.server.request(case.verb, case.path, target.filled(case.body), headers)

    error = answer.error
    assert (answer.status, error["code"]) == (case.http_status, case.http_status)
    if case.path.startswith("/v1/"):
        assert (answer.json["message"], answer.headers["Content-Type"]) == (error["message"], "application/json")
    assert error["details"][0]["reason"] == case.error.reason
    assert case.names in error["message"]
    assert len(answer.body) < 1500
    assert target.dump() == before


def test_the_server_works_after_all_invalid_input(target: Target) -> None:
    before = target.result("ListTasks", {})["totalSize"]
    task_id = target.words["ASKED"]

    done = target.result("SendMessage", message("large", taskId=task_id))["task"]

    assert (done["id"], done["status"]["state"]) == (task_id, "TASK_STATE_COMPLETED")
    assert target.result("CancelTask", {"id": target.words["BUSY"]})["status"]["state"] == "TASK_STATE_CANCELED"
    assert target.result("ListTasks", {})["totalSize"] == before
