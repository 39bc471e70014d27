"""``a2a-sync check``: compare what an agent does with its card and with the specification."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree  # only written, never parsed  # nosec B405

import click

from a2a_sync.bindings.headers import VERSION
from a2a_sync.cli.checks import (
    CARD_CHECKS,
    Capture,
    CheckResult,
    Outcome,
    Probe,
    checks_of,
    interfaces,
    run_check,
)
from a2a_sync.cli.options import Connection, agent_command
from a2a_sync.cli.text import clean_line, print_json, print_status
from a2a_sync.client.cards import MAX_CARD_BYTES, fetch_card
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.request import ErrorContext
from a2a_sync.display import clean

#: Characters that XML cannot hold, besides those that are never printed.
_XML_UNSAFE = re.compile("[\ufffe\uffff]")
#: Seconds for each call, if --timeout is not given.
_TIMEOUT = 60.0
#: Kinds of interfaces of a card that are checked.
_MAX_INTERFACES = 50
_COLORS = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.SKIPPED: None}


@agent_command("check http://127.0.0.1:8000 --junit report.xml")
@click.option("--text", default="Hello", show_default=True, help="The message that is sent, twice to each interface.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each check.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a JUnit report.")
def check(connection: Connection, text: str, as_json: bool, junit: Path | None) -> None:
    """Check whether the agent at URL conforms to its card and to the A2A specification.

    Checks the rules for cards. For each binding and version in the card, tests a send, a stream, tasks, errors and
    limits. Each line names the section of the specification. The agent receives two messages for each interface and
    stores their tasks. The exit code is 1 if a check failed. --timeout limits each call; 60 seconds by default.
    """
    results = []
    for result in run_checks(connection, text):
        results.append(result)
        if as_json:
            print_json(result.to_dict())
        else:
            _print(result)
    if junit is not None:
        _write_junit(junit, connection.url, results)
    counts = {outcome: sum(result.outcome is outcome for result in results) for outcome in Outcome}
    print_status(f"{counts[Outcome.PASS]} passed, {counts[Outcome.FAIL]} failed, {counts[Outcome.SKIPPED]} skipped")
    sys.exit(1 if counts[Outcome.FAIL] else 0)


def run_checks(connection: Connection, text: str) -> Iterator[CheckResult]:
    """The results of all checks of an agent, as they come. `text` is the message that is sent.

    Raises:
        TransportError: there is no card.
    """
    timeout = connection.timeout or _TIMEOUT
    with connection.transport(timeout) as http:
        context, deadline = ErrorContext("card", http.agent), Deadline.after(timeout)
        headers = {"Accept": "application/json", VERSION: "1.0"}
        card, _ = fetch_card(
            lambda url: http.get(
                url, headers=headers, error_context=context, deadline=deadline, max_bytes=MAX_CARD_BYTES
            ),
            http.home,
        )
    for one in CARD_CHECKS:
        yield run_check(one, card)
    listed = list(interfaces(card))
    for binding, version, url, reason in listed[:_MAX_INTERFACES]:
        if reason:
            # A name of the card, which is printed and written as it is.
            name = clean_line(f"{binding} {version}", 60)
            yield CheckResult("interface", "the interface is called", "", name, Outcome.SKIPPED, f"{url}: {reason}", 0)
        else:
            yield from _check_interface(connection, binding, version, url, text, timeout)
    if len(listed) > _MAX_INTERFACES:
        more = f"{len(listed) - _MAX_INTERFACES} more of the card"
        yield CheckResult("interface", "the interface is called", "", "", Outcome.SKIPPED, more, 0)


def _check_interface(
    connection: Connection, binding: str, version: str, url: str, text: str, timeout: float
) -> Iterator[CheckResult]:
    capture = Capture()
    # Each request is sent once: a retry would hide a fault.
    with (
        connection.client(
            protocol_binding=binding, protocol_version=version, interceptors=(capture,), timeout=timeout, retry=None
        ) as client,
        connection.transport(timeout) as http,
    ):
        card = client.card()
        http.apply_card_security(card)
        assert capture.endpoint is not None
        probe = Probe(card, binding, version, url, capture.endpoint, http, text, timeout)
        for one in checks_of(binding, version):
            yield run_check(one, probe)


# -- reports ------------------------------------------------------------------------------------------------------------


def _print(result: CheckResult) -> None:
    outcome = click.style(f"{result.outcome:<7}", fg=_COLORS[result.outcome])
    detail = f": {clean_line(result.detail, 1000)}" if result.detail else ""
    click.echo(f"{outcome}  {result.interface:<13}  {result.section:<11}  {result.title}{detail}")
    sys.stdout.flush()


def _write_junit(path: Path, url: str, results: list[CheckResult]) -> None:
    suites = ElementTree.Element("testsuites", name=f"a2a-sync check {url}")
    for interface in dict.fromkeys(result.interface for result in results):
        own = [result for result in results if result.interface == interface]
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=interface or "card",
            tests=str(len(own)),
            failures=str(sum(result.outcome is Outcome.FAIL for result in own)),
            skipped=str(sum(result.outcome is Outcome.SKIPPED for result in own)),
            time=f"{sum(result.seconds for result in own):.3f}",
        )
        suite.extend(_test_case(result) for result in own)
    try:
        ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None


def _test_case(result: CheckResult) -> ElementTree.Element:
    name = f"{result.name}: {result.title} ({result.section})"
    group, time = result.interface or "card", f"{result.seconds:.3f}"
    case = ElementTree.Element("testcase", classname=group, name=name, time=time)
    kind = {Outcome.FAIL: "failure", Outcome.SKIPPED: "skipped"}.get(result.outcome)
    if kind is not None:
        ElementTree.SubElement(case, kind, message=_XML_UNSAFE.sub("", clean(result.detail)))
    return case
