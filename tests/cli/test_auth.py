"""Credentials on the command line, against a real server on a real socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result

from a2a_sync import A2AApp
from a2a_sync.auth import ApiKeyAuth, BearerAuth
from tests.cli.agents import Actor
from tests.cli.conftest import served
from tests.push.receiver import LOOPBACK

Run = Callable[..., Result]


@pytest.fixture(scope="module", params=["token", "key"])
def guarded_url(request: pytest.FixtureRequest) -> Iterator[str]:
    auth = BearerAuth({"s3cret": "ada"}) if request.param == "token" else ApiKeyAuth({"s3cret": "ada"}, header="X-Key")
    with served(A2AApp(Actor(), auth=auth, push=LOOPBACK)) as address:
        yield address


def test_every_command_calls_with_the_credentials(run: Run, guarded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = run("send", guarded_url, "ask", "--auth", "s3cret")
    task = re.findall(r"task ([0-9a-f-]{36})", sent.stderr)[0]
    monkeypatch.setenv("A2A_SYNC_AUTH", "s3cret")
    assert task in run("list", guarded_url).stdout
    for command in (("get",), ("hooks",), ("cancel",)):
        assert run(*command, guarded_url, task).exit_code == 0
    assert run("card", guarded_url).exit_code == 0


def test_missing_or_wrong_credentials_are_reported_with_the_options_to_give_them(run: Run, guarded_url: str) -> None:
    for options in ((), ("--auth", "wr0ng")):
        refused = run("list", guarded_url, *options)
        assert refused.exit_code == 1
        assert "pass credentials in A2A_SYNC_AUTH, with --auth, or in the URL" in refused.stderr
        assert "wr0ng" not in refused.output


@pytest.mark.parametrize("secret", ["", "naïve", "two\nlines"])
def test_what_cannot_be_sent_is_refused_and_not_shown(run: Run, guarded_url: str, secret: str) -> None:
    refused = run("list", guarded_url, "--auth", secret)
    assert (refused.exit_code, "printable" in refused.stderr) == (2, True)
    assert not secret or secret not in refused.output
