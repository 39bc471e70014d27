"""Extensions, media types, references to other tasks, and tenants: equal in every version and binding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from a2a_sync import Client, FilePart, Message, Role, Task, TaskNotFoundError, TextPart
from a2a_sync.agent import Timestamps
from a2a_sync.errors import ContentTypeNotSupportedError, UnsupportedOperationError
from tests.scenarios.agent import LOUD

pytestmark = pytest.mark.timeout(60)

MakeClient = Callable[[], Client]


@pytest.fixture
def client(make_client: MakeClient) -> Iterator[Client]:
    with make_client() as client:
        yield client


def send(client: Client, content: Any, **options: Any) -> Task:
    answer = client.send(content, **options)
    assert isinstance(answer, Task)
    return answer


def referring(text: str, *tasks: str) -> Message:
    return Message(role=Role.USER, parts=(TextPart(text),), reference_task_ids=tasks)


# -- extensions ---------------------------------------------------------------------------------------------------------


def test_an_extension_is_active_for_calls_that_request_it(client: Client) -> None:
    assert LOUD in [extension.uri for extension in client.card().capabilities.extensions]
    assert send(client, "echo hi").text == "echo: hi"
    assert send(client, "echo hi", extensions=[LOUD]).text == "ECHO: HI"
    assert send(client, "echo hi", extensions=[LOUD + "2", "urn:unknown"]).text == "echo: hi"
    with client.stream("echo hi", extensions=[LOUD]) as stream:
        list(stream)
    assert stream.text == "ECHO: HI"


def test_metadata_that_an_extension_adds_is_part_of_the_task(client: Client) -> None:
    task = send(client, "count 3", extensions=[Timestamps.uri])
    stored = client.get_task(task.id)
    stamped = [*stored.history, *stored.artifacts]
    assert all(Timestamps.member in item.metadata and item.extensions == (Timestamps.uri,) for item in stamped)
    assert task.artifacts == stored.artifacts


# -- media types --------------------------------------------------------------------------------------------------------


def test_a_media_type_outside_the_input_modes_is_refused(client: Client) -> None:
    picture = FilePart(raw=b"x", media_type="image/png")
    assert send(client, [TextPart("file"), picture]).artifact("copy").files[0].raw == b"x"
    sound = FilePart(raw=b"x", media_type="audio/x")
    with pytest.raises(ContentTypeNotSupportedError, match="audio/x is not accepted"):
        client.send([TextPart("file"), sound])
    with pytest.raises(ContentTypeNotSupportedError), client.stream([TextPart("file"), sound]) as stream:
        list(stream)


def test_the_handler_receives_the_accepted_output_modes(client: Client) -> None:
    assert send(client, "modes").text == "any"
    assert send(client, "modes", accepted_output_modes=["image/png", "text/csv"]).text == "image/png, text/csv"


# -- history ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 3, None])
def test_history_length_limits_the_answer_but_not_the_stored_task(client: Client, length: int | None) -> None:
    asked = send(client, "ask")
    done = send(client, "large", task_id=asked.id, history_length=length)
    stored = [turn.text for turn in client.get_task(done.id).history]
    assert stored == ["ask", "Which size?", "large", "ask / Which size? / large"]
    if length is not None:
        assert [turn.text for turn in done.history] == stored[len(stored) - length :]


# -- other tasks --------------------------------------------------------------------------------------------------------


def test_the_handler_can_read_referenced_tasks(client: Client, supports_references: bool) -> None:
    one, two = send(client, "echo one"), send(client, "echo two")
    answer = send(client, referring("references", two.id, "no-such-task", one.id, two.id))
    assert answer.text == ("echo: two, echo: one" if supports_references else "")
    assert send(client, "references").text == ""


# -- tenants ------------------------------------------------------------------------------------------------------------


def test_protocol_0_3_has_no_tenants(client: Client, version: str) -> None:
    if version == "0.3":
        with pytest.raises(UnsupportedOperationError, match="no tenants"):
            client.send("tenant", tenant="acme")


@pytest.mark.parametrize("tenant", ["acme", "with blank/and slash", "tasks", "..", "ümlaut", "message:send"])
def test_the_handler_receives_the_tenant_unchanged(client: Client, version: str, tenant: str) -> None:
    if version == "1.0":
        assert send(client, "tenant", tenant=tenant).text == f"for {tenant}"
        with client.stream("tenant", tenant=tenant) as stream:
            list(stream)
        assert stream.text == f"for {tenant}"


#: Every operation on a task by its id, for a tenant.
USES: dict[str, Callable[..., Any]] = {
    "get": lambda client, task, **tenant: client.get_task(task.id, **tenant),
    "cancel": lambda client, task, **tenant: client.cancel_task(task.id, **tenant),
    "subscribe": lambda client, task, **tenant: list(client.subscribe(task.id, **tenant)),
    "resume": lambda client, task, **tenant: list(client.subscribe(task.id, last_event_id=1, **tenant)),
    "send": lambda client, task, **tenant: client.send("more", task_id=task.id, **tenant),
    "stream": lambda client, task, **tenant: list(client.stream("more", task_id=task.id, **tenant)),
    "wait": lambda client, task, **tenant: client.wait(task.id, timeout=60, **tenant),
}


@pytest.mark.parametrize("use", USES)
def test_a_task_of_another_tenant_is_not_found(client: Client, version: str, use: str) -> None:
    if version == "0.3":
        return
    task = send(client, "ask", tenant="acme")
    for other in ("", "globex", "ACME", "acme "):
        with pytest.raises(TaskNotFoundError) as foreign:
            USES[use](client, task, tenant=other)
        with pytest.raises(TaskNotFoundError) as unknown:
            USES[use](client, Task(id="x" * len(task.id), context_id="", status=task.status), tenant=other)
        assert foreign.value.message.replace(task.id, "…") == unknown.value.message.replace("x" * len(task.id), "…")
    assert client.get_task(task.id, tenant="acme").state is task.state


def test_lists_contexts_keys_and_references_are_separate_for_each_tenant(client: Client, version: str) -> None:
    if version == "0.3":
        return
    # The agent is shared with the other versions and bindings of the transport.
    shared = str(uuid4())
    mine = send(client, "echo mine", tenant="acme", context_id=shared)
    assert client.list_tasks(context_id=shared, tenant="globex").tasks == ()
    yours = send(client, "echo yours", tenant="globex", context_id=shared)
    for tenant, task in (("acme", mine), ("globex", yours)):
        assert [one.id for one in client.list_tasks(context_id=shared, tenant=tenant).tasks][:1] == [task.id]
    assert mine.id not in {one.id for one in client.iter_tasks(tenant="globex")}
    assert send(client, referring("references", mine.id), tenant="globex").text == ""
    assert send(client, referring("references", mine.id), tenant="acme").text == "echo: mine"
    first = send(client, "echo once", tenant="acme", idempotency_key=shared)
    assert send(client, "echo once", tenant="acme", idempotency_key=shared).id == first.id
    assert send(client, "echo once", tenant="globex", idempotency_key=shared).id != first.id
