"""Log records say which call, task and context they belong to."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Message, RequestContext, Task
from a2a_sync.errors import AgentError
from a2a_sync.telemetry.logs import ContextFilter, get_logger, log_context


def test_a_record_of_the_library_says_where_it_was_made(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("a2a_sync.somewhere")
    with caplog.at_level(logging.INFO), log_context(method="GetTask"), log_context(task_id="t1", context_id="c1"):
        logger.info("one")
        logger.info("two", extra={"task_id": "t2"})
    logger.warning("three")
    places = [(record.method, record.task_id, record.context_id) for record in map(_any, caplog.records)]
    assert places == [("GetTask", "t1", "c1"), ("GetTask", "t2", "c1"), ("", "", "")]


def test_a_context_id_of_a_caller_cannot_begin_a_line(caplog: pytest.LogCaptureFixture) -> None:
    user_log = logging.getLogger("code.of.a.user")
    agent = Agent("talker", description="Logs")

    @agent.message
    def answer(message: Message, context: RequestContext) -> str:
        user_log.warning("in a run")
        raise ValueError("the library logs this")

    caplog.handler.addFilter(ContextFilter())
    with A2AApp(agent) as app:
        Client(app).send("hi", context_id="c\nERROR forged\x1b[2J")
    seen = {record.name: record.context_id for record in map(_any, caplog.records) if record.context_id}
    assert set(seen) >= {"code.of.a.user", "a2a_sync.engine"}
    assert set(seen.values()) == {"'c\\nERROR forged\\x1b[2J'"}


def test_the_text_of_an_agent_cannot_begin_a_line(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("a2a_sync.client")
    forged = "x\nERROR forged\x1b[2J"
    logger.warning("%s: %s, %d", forged, AgentError(forged), 5)
    assert caplog.messages == [r"x\nERROR forged\x1b[2J: x\nERROR forged\x1b[2J, 5"]


def _any(record: logging.LogRecord) -> Any:
    return record


def test_a_filter_puts_the_same_on_records_of_user_code_in_a_run() -> None:
    records: list[Any] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keep()
    handler.addFilter(ContextFilter())
    user_log = logging.getLogger("somebodys.code")
    user_log.addHandler(handler)
    agent = Agent("talker", description="Logs")

    @agent.message
    def answer(message: Message, context: RequestContext) -> str:
        user_log.warning("in a run")
        return "done"

    try:
        with A2AApp(agent) as app:
            task = Client(app).send("hi")
    finally:
        user_log.removeHandler(handler)
    assert isinstance(task, Task)
    (record,) = records
    assert (record.method, record.task_id, record.context_id) == ("SendMessage", task.id, task.context_id)


def test_outside_of_any_call_there_is_no_place() -> None:
    record = logging.makeLogRecord({})
    assert ContextFilter().filter(record)
    assert (record.method, record.task_id, record.context_id) == ("", "", "")


def test_an_exception_of_a_handler_is_logged_with_its_task(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("broken", description="Fails")

    @agent.message
    def fail(message: Message, context: RequestContext) -> None:
        raise ValueError("secret")

    with A2AApp(agent) as app:
        task = Client(app).send("hi")
    assert isinstance(task, Task)
    failed: list[Any] = [record for record in caplog.records if record.exc_info]
    assert [record.task_id for record in failed] == [task.id]
    assert task.text.removeprefix("internal error (id ").rstrip(")") in failed[0].getMessage()
