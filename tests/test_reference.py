"""What the documentation lists is what the code has: names, errors, limits, commands, operations, layers."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import a2a_sync
from a2a_sync import A2AApp, Agent, Limits, errors
from a2a_sync import gunicorn as gunicorn_settings
from a2a_sync.bindings.http_json import write_request
from a2a_sync.cli import main
from a2a_sync.codec import by_version
from a2a_sync.errors import A2AError, AgentError, TransportError, UnsupportedOperationError
from a2a_sync.limits import OwnerQuota
from a2a_sync.operations import OPERATIONS, Operation
from a2a_sync.push import PushOptions
from a2a_sync.testing import wsgi_session
from tests.frameworks import without_framework
from tests.live import ROOT
from tests.pages import read
from tests.test_layers import LAYERS

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"


def table(page: Path, *head: str) -> list[list[str]]:
    """The rows of the table with these column heads, without its backquotes."""
    lines = iter(page.read_text().splitlines())
    wanted = f"| {' | '.join(head)} |"
    assert any(line == wanted for line in lines), f"{page.name} has no table {wanted}"
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split(" |")])
    assert rows
    return rows


def documented() -> set[str]:
    """Every name that a page of the reference describes, with its module."""
    found = re.findall(
        r"^\.\. (?:autoclass|autoexception|autofunction|py:class):: ([\w.]+)",
        "\n".join(path.read_text() for path in REFERENCE.glob("*.md")),
        re.MULTILINE,
    )
    return set(found)


def below(cls: type) -> Iterator[type]:
    for child in cls.__subclasses__():
        if child.__module__ == "a2a_sync.errors":
            yield child
            yield from below(child)


# -- names --------------------------------------------------------------------------------------------------------------


def test_every_public_name_is_in_the_reference() -> None:
    # The union of the parts has no page of its own, and the classes of errors are rows of a table.
    tables = {row[0] for head in (("class", "raised when"), ("class", "raised by")) for row in errors_in(*head)}
    tables |= {row[0] for row in errors_in("class", "code", "reason", "HTTP", "raised when")} | {"Part"}
    missing = {name for name in a2a_sync.__all__ if f"a2a_sync.{name}" not in documented()}
    assert missing <= tables


def errors_in(*head: str) -> list[list[str]]:
    return table(REFERENCE / "errors.md", *head)


@pytest.mark.parametrize("name", sorted(documented()))
def test_every_name_in_the_reference_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if module == "a2a_sync.grpc":
        pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")
    # Where its framework is absent, the name is looked up in the source; `make frameworks` imports it.
    if module in without_framework():
        source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
        assert re.search(rf"^(class|def) {attribute}\b", source, re.MULTILINE)
    else:
        assert hasattr(import_module(module), attribute)


# -- errors -------------------------------------------------------------------------------------------------------------


def test_the_table_of_errors_is_that_of_the_classes() -> None:
    rows = errors_in("class", "code", "reason", "HTTP", "raised when")
    shown = {(name, int(code), reason, int(http)) for name, code, reason, http, _ in rows}
    assert shown == {(cls.__name__, cls.jsonrpc_code, cls.reason, cls.rpc_http_status) for cls in below(AgentError)}


def test_every_error_of_the_transport_is_in_its_table() -> None:
    shown = {name for name, _ in errors_in("class", "raised when")}
    assert shown == {cls.__name__ for cls in below(TransportError)}


def test_every_other_error_is_in_a_table_too() -> None:
    rest = {
        name
        for name, cls in vars(errors).items()
        if isinstance(cls, type)
        and issubclass(cls, Exception)
        and cls is not A2AError
        and not issubclass(cls, (AgentError, TransportError))
    }
    assert rest <= {name for name, _ in errors_in("class", "raised by")}


# -- numbers ------------------------------------------------------------------------------------------------------------


def test_every_limit_is_listed_with_its_default() -> None:
    rows = table(REFERENCE / "limits.md", "field", "default", "unit", "bounds")
    assert [(name, default) for name, default, _, _ in rows] == [
        (item.name, str(item.default)) for item in fields(Limits)
    ]


def test_every_owner_quota_is_listed_with_its_default() -> None:
    rows = table(REFERENCE / "limits.md", "owner quota", "default", "unit", "bounds for each owner")
    assert [(name, default) for name, default, _, _ in rows] == [
        (item.name, str(item.default)) for item in fields(OwnerQuota)
    ]


def test_every_number_of_the_push_options_is_listed_with_its_default() -> None:
    rows = table(REFERENCE / "limits.md", "push option", "default", "unit", "bounds")
    assert [(name, default) for name, default, _, _ in rows] == [
        (item.name, str(item.default)) for item in fields(PushOptions) if item.type in ("int", "float")
    ]


def test_the_settings_for_gunicorn_are_listed_with_their_values() -> None:
    rows = table(REFERENCE / "server.md", "setting", "value")
    settings = {
        name: str(value)
        for name, value in vars(gunicorn_settings).items()
        if not name.startswith("_") and isinstance(value, (bool, int, str))
    }
    assert dict(rows) == settings


# -- the command line ---------------------------------------------------------------------------------------------------


def help_of(*words: str) -> str:
    runner = CliRunner()
    return runner.invoke(main, [*words, "--help"], prog_name="a2a-sync", terminal_width=80).output.rstrip() + "\n"


def test_every_command_is_shown_with_all_it_says_of_itself() -> None:
    shown = [block.text for block in read(REFERENCE / "command-line.md")]
    assert shown == [help_of(), *(help_of(name) for name in main.commands)]


def test_every_environment_variable_is_listed() -> None:
    listed = {name for name, _ in table(REFERENCE / "command-line.md", "variable", "stands for")}
    read_by_options = {
        option.envvar
        for command in (main, *main.commands.values())
        for option in command.params
        if isinstance(option.envvar, str)
    }
    assert listed == read_by_options


# -- the protocol -------------------------------------------------------------------------------------------------------

PUSH = {"url": "https://example.com/"}
PARAMS: dict[str, dict[str, Any]] = {
    "1.0": {
        "SendMessage": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
        "CreateTaskPushNotificationConfig": {"taskId": "t", **PUSH},
        "GetTaskPushNotificationConfig": {"taskId": "t", "id": "c"},
        "ListTaskPushNotificationConfigs": {"taskId": "t"},
        "DeleteTaskPushNotificationConfig": {"taskId": "t", "id": "c"},
    },
    "0.3": {
        "SendMessage": {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}},
        "CreateTaskPushNotificationConfig": {"taskId": "t", "pushNotificationConfig": PUSH},
        "DeleteTaskPushNotificationConfig": {"id": "t", "pushNotificationConfigId": "c"},
    },
}


def outcome(app: A2AApp, operation: Operation, version: str) -> str:
    """``yes``, or the reason of the error that the operation is answered with. An unknown task counts as yes."""
    try:
        method = by_version(version).method(operation)
    except UnsupportedOperationError:
        return f"not in {version}"
    some = PARAMS[version]
    params = some.get(operation.name, some["SendMessage"] if "Send" in operation.name else {"id": "unknown"})
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = wsgi_session(app).post("http://agent.test/", json=body, headers={"A2A-Version": version}, timeout=60)
    if answer.headers["Content-Type"] == "text/event-stream":
        return "yes"
    error = json.loads(answer.content).get("error")
    reason = error["data"][0]["reason"] if error else "yes"
    return "yes" if reason == "TASK_NOT_FOUND" else reason


def outcome_in_http_json(app: A2AApp, operation: Operation, version: str) -> str:
    """The same over HTTP+JSON, where the params of 1.0 do for both: sends of 0.3 are read in its other dialect too."""
    some = {**PARAMS["1.0"], "SendMessage": PARAMS[version]["SendMessage"]}
    params = some.get(operation.name, some["SendMessage"] if "Send" in operation.name else {"id": "unknown"})
    if (version, operation.name) == ("0.3", "CreateTaskPushNotificationConfig"):
        params = PARAMS["0.3"][operation.name]
    bare = "Card" in operation.name or operation.name == "ListTasks"
    request = write_request(operation, {} if bare else params, version)
    answer = wsgi_session(app).request(
        request.verb,
        f"http://agent.test{request.path}?{request.query}",
        data=request.body,
        headers={"A2A-Version": version, "Content-Type": "application/json"},
        timeout=60,
    )
    if answer.headers.get("Content-Type") == "text/event-stream":
        return "yes"
    error = json.loads(answer.content).get("error")
    reason = error["details"][0]["reason"] if error else "yes"
    return "yes" if reason == "TASK_NOT_FOUND" else reason


def coverage() -> list[list[str]]:
    """The rows of the operations."""
    return table(
        REFERENCE / "coverage.md",
        "operation",
        "`Client`",
        "JSON-RPC 1.0",
        "JSON-RPC 0.3",
        "HTTP+JSON 1.0",
        "HTTP+JSON 0.3",
        "gRPC 1.0",
        "gRPC 0.3",
    )


def test_the_coverage_of_operations_is_as_listed() -> None:
    """Over HTTP; `tests.grpc` compares the columns of gRPC."""
    agent = Agent("covered")
    agent.message(lambda message, context: "yes")
    rows = coverage()
    with A2AApp(agent, push=True) as app:
        for place, version in ((2, "1.0"), (3, "0.3")):
            found = {name: outcome(app, operation, version) for name, operation in OPERATIONS.items()}
            assert {row[0]: row[place] for row in rows} == found
        for place, version in ((4, "1.0"), (5, "0.3")):
            found = {name: outcome_in_http_json(app, operation, version) for name, operation in OPERATIONS.items()}
            assert {row[0]: row[place] for row in rows} == found
    assert all(hasattr(a2a_sync.Client, name.strip()) for row in rows if row[1] for name in row[1].split(","))


# -- the house ----------------------------------------------------------------------------------------------------------


def test_the_layers_of_the_page_are_those_of_the_code() -> None:
    rows = table(DOCS / "explanation" / "layout.md", "layer", "folders")
    assert [folders.split(", ") for _, folders in rows] == LAYERS
    assert [int(number) for number, _ in rows] == list(range(len(LAYERS)))


def test_every_folder_is_explained() -> None:
    rows = table(DOCS / "explanation" / "layout.md", "folder", "holds", "leaves to others")
    explained = sorted(name.strip() for folders, *_ in rows for name in folders.split(","))
    assert explained == sorted(name for names in LAYERS for name in names if name != "__main__")


# -- the pages ----------------------------------------------------------------------------------------------------------


def test_every_snippet_that_is_left_out_is_python_all_the_same() -> None:
    for path in DOCS.rglob("*.md"):
        for block in read(path):
            if block.language == "python":
                ast.parse(block.text, f"{path.name}:{block.line}")


def test_every_page_is_in_the_contents() -> None:
    listed = set()
    for path in DOCS.rglob("*.md"):
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(path.parent / name).resolve() for name in names}
    pages = {path.with_suffix("").resolve() for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    assert pages - listed == {(DOCS / "index").resolve()}
