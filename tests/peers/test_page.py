"""What the tests against other implementations saw becomes a page, and what they did not see is found out."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.peers import page
from tests.peers.record import ERRORS, OLD_REST, OURS, PUSH, ROWS, THEIRS, Seen, Way

NEW, OLD = Way("1.0", "JSONRPC"), Way("0.3", "JSONRPC")
PEER = page.Peer("peer", "A peer", "It speaks.")


def seen(role: str = OURS, way: Way = NEW, row: str = "GetTask", **others: object) -> Seen:
    return replace(Seen("peer", role, str(way), row, passed=True, release="peer 1"), **others)  # type: ignore[arg-type]


def everything(*ways: Way) -> list[Seen]:
    return [seen(role, way, row) for role in (OURS, THEIRS) for way in ways for row in ROWS]


def test_a_page_of_which_everything_was_seen_has_no_problems() -> None:
    assert page.Section(PEER, everything(NEW, OLD_REST)).problems() == []


def test_an_operation_without_a_test_is_named_in_each_way() -> None:
    found = page.Section(PEER, [one for one in everything(NEW, OLD) if one.row != "CancelTask"]).problems()
    assert found == [f"peer, {role}, {way}: no test of CancelTask" for role in (OURS, THEIRS) for way in (NEW, OLD)]


def test_a_role_of_which_nothing_was_seen_is_named() -> None:
    ours = [one for one in everything(NEW) if one.role == OURS]
    assert page.Section(PEER, ours).problems() == ["peer, their client: nothing was seen"]
    assert page.Section(replace(PEER, roles=(OURS,)), ours).problems() == []


def test_one_failure_spoils_what_others_have_shown() -> None:
    found = page.Section(PEER, [*everything(NEW), seen(row=ERRORS, passed=False)]).problems()
    assert found == ["peer, our client, 1.0 JSONRPC: a test of errors failed"]


def test_what_a_version_or_a_client_lacks_needs_no_test() -> None:
    listing = [one for one in everything(OLD) if one.row != "ListTasks" and (one.role, one.row) != (THEIRS, PUSH[2])]
    made = page.Section(replace(PEER, lacks=frozenset({PUSH[2]})), listing)
    assert made.problems() == []
    lines = made.lines()
    assert "| ListTasks | not in 0.3 | not in 0.3 |" in lines
    assert f"| {PUSH[2]} | yes | no such method |" in lines


def test_departures_are_numbered_and_told_once() -> None:
    records = [*everything(NEW), seen(row=ERRORS, departure="says no")]
    records += [seen(THEIRS, row="GetTask", departure="says no"), seen(row="GetTask", departure="says maybe")]
    lines = page.Section(PEER, records).lines()
    assert "| GetTask | yes (1) | yes (2) |" in lines
    assert "| errors | yes (2) | yes |" in lines
    assert lines[-3:] == ["1. Says maybe.", "2. Says no.", ""]


def test_what_was_only_seen_to_be_different_is_not_said_to_work() -> None:
    records = [one for one in everything(NEW) if (one.role, one.row) != (OURS, "ListTasks")]
    lines = page.Section(PEER, [*records, seen(row="ListTasks", departure="has no list")]).lines()
    assert "| ListTasks | (1) | yes |" in lines


def test_a_run_is_compared_with_the_page_but_for_the_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "interop.md")
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PEERS", (PEER,))

    def run(records: list[Seen], *options: str) -> int:
        (tmp_path / "1.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in records))
        return page.main([str(tmp_path), *options])

    assert run(everything(NEW), "--write") == 0
    assert run([replace(one, release="peer 2") for one in everything(NEW)]) == 0
    assert run(everything(NEW, OLD)) == 1
    assert "does not say what was seen" in capsys.readouterr().out
    assert run(everything(NEW)[:-1]) == 1
    assert "no test of errors" in capsys.readouterr().out


def test_the_page_has_a_table_for_every_peer_with_every_operation() -> None:
    text = page.PAGE.read_text()
    for peer in page.PEERS:
        section = text.split(f"## {peer.title}\n")[1].split("\n## ")[0]
        assert [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][2:] == list(ROWS)


def test_a_list_of_tasks_in_0_3_is_missing_from_json_rpc_and_not_implemented_by_others_over_http() -> None:
    seen_of_all = [one for one in everything(OLD, OLD_REST) if one.row != "ListTasks"]
    section = page.Section(PEER, seen_of_all)
    assert section.problems() == []
    assert "| ListTasks | not in 0.3 | not implemented | not in 0.3 | not implemented |" in section.lines()
