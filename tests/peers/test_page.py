"""The records of the tests against other implementations become a page; missing records are reported."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.peers import page
from tests.peers.record import ERRORS, HTTP_JSON_03, OURS, PUSH, ROWS, THEIRS, Observation, Transport

NEW, OLD = Transport("1.0", "JSONRPC"), Transport("0.3", "JSONRPC")
PEER = page.Peer("peer", "A peer", "It speaks.")


def seen(role: str = OURS, transport: Transport = NEW, row: str = "GetTask", **others: object) -> Observation:
    return replace(Observation("peer", role, str(transport), row, passed=True, release="peer 1"), **others)  # type: ignore[arg-type]


def everything(*transports: Transport) -> list[Observation]:
    return [seen(role, transport, row) for role in (OURS, THEIRS) for transport in transports for row in ROWS]


def test_complete_records_have_no_problems() -> None:
    assert page.Section(PEER, everything(NEW, HTTP_JSON_03)).problems() == []


def test_an_operation_without_a_test_is_reported_for_each_transport() -> None:
    found = page.Section(PEER, [one for one in everything(NEW, OLD) if one.row != "CancelTask"]).problems()
    assert found == [
        f"peer, {role}, {transport}: no test of CancelTask" for role in (OURS, THEIRS) for transport in (NEW, OLD)
    ]


def test_a_role_without_records_is_reported() -> None:
    ours = [one for one in everything(NEW) if one.role == OURS]
    assert page.Section(PEER, ours).problems() == ["peer, their client: no records"]
    assert page.Section(replace(PEER, roles=(OURS,)), ours).problems() == []


def test_one_failed_test_is_reported_beside_passed_ones() -> None:
    found = page.Section(PEER, [*everything(NEW), seen(row=ERRORS, passed=False)]).problems()
    assert found == ["peer, our client, 1.0 JSONRPC: a test of errors failed"]


def test_operations_that_a_version_or_client_lacks_need_no_test() -> None:
    listing = [one for one in everything(OLD) if one.row != "ListTasks" and (one.role, one.row) != (THEIRS, PUSH[2])]
    made = page.Section(replace(PEER, lacks=frozenset({PUSH[2]})), listing)
    assert made.problems() == []
    lines = made.lines()
    assert "| ListTasks | not in 0.3 | not in 0.3 |" in lines
    assert f"| {PUSH[2]} | yes | no such method |" in lines


def test_each_departure_has_one_number() -> None:
    records = [*everything(NEW), seen(row=ERRORS, departure="says no")]
    records += [seen(THEIRS, row="GetTask", departure="says no"), seen(row="GetTask", departure="says maybe")]
    lines = page.Section(PEER, records).lines()
    assert "| GetTask | yes (1) | yes (2) |" in lines
    assert "| errors | yes (2) | yes |" in lines
    assert lines[-3:] == ["1. Says maybe.", "2. Says no.", ""]


def test_an_operation_with_only_a_departure_has_no_yes() -> None:
    records = [one for one in everything(NEW) if (one.role, one.row) != (OURS, "ListTasks")]
    lines = page.Section(PEER, [*records, seen(row="ListTasks", departure="has no list")]).lines()
    assert "| ListTasks | (1) | yes |" in lines


def test_a_run_is_compared_with_the_page_except_for_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "interop.md")
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PEERS", (PEER,))

    def run(records: list[Observation], *options: str) -> int:
        (tmp_path / "1.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in records))
        return page.main([str(tmp_path), *options])

    assert run(everything(NEW), "--write") == 0
    assert run([replace(one, release="peer 2") for one in everything(NEW)]) == 0
    assert run(everything(NEW, OLD)) == 1
    assert "differs from the test results" in capsys.readouterr().out
    assert run(everything(NEW)[:-1]) == 1
    assert "no test of errors" in capsys.readouterr().out


def test_the_page_has_a_table_for_every_peer_with_every_operation() -> None:
    text = page.PAGE.read_text()
    for peer in page.PEERS:
        section = text.split(f"## {peer.title}\n")[1].split("\n## ")[0]
        assert [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][2:] == list(ROWS)


def test_list_tasks_of_0_3_is_not_in_json_rpc_and_not_implemented_over_http() -> None:
    seen_of_all = [one for one in everything(OLD, HTTP_JSON_03) if one.row != "ListTasks"]
    section = page.Section(PEER, seen_of_all)
    assert section.problems() == []
    assert "| ListTasks | not in 0.3 | not implemented | not in 0.3 | not implemented |" in section.lines()
