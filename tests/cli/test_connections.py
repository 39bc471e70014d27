"""The options of a connection, profiles and debugging, against real servers on real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from a2a_sync import A2AApp
from a2a_sync.auth import ApiKeyAuth, BearerAuth
from a2a_sync.cli import main
from tests.certificates import Authority
from tests.cli.agents import Actor
from tests.cli.conftest import served

Run = Callable[..., Result]


def configure(folder: Path, text: str, mode: int = 0o600) -> None:
    (folder / "config.toml").write_text(text)
    (folder / "config.toml").chmod(mode)


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    with served(A2AApp(Actor(), auth=BearerAuth({"s3cret": "ada"}))) as address:
        yield address


# -- certificates --


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_url(authority: Authority) -> Iterator[str]:
    with served(A2AApp(Actor()), certificate=authority.issue("127.0.0.1")) as address:
        yield address


def test_a_certificate_of_an_unknown_authority_is_refused_with_the_options_for_it(run: Run, tls_url: str) -> None:
    refused = run("send", tls_url, "hello")
    assert refused.exit_code == 3
    assert "the certificate is not trusted" in refused.stderr
    assert "--cacert" in refused.stderr
    assert "--insecure" in refused.stderr


def test_a_named_authority_is_trusted_and_without_checks_any_certificate(
    run: Run, tls_url: str, authority: Authority, tmp_path: Path
) -> None:
    assert run("send", tls_url, "hello", "--cacert", authority.ca).stdout == "you said hello\n"
    unchecked = run("send", tls_url, "hello", "--insecure")
    assert unchecked.stdout == "you said hello\n"
    assert "Warning" not in unchecked.stderr
    configure(tmp_path, f'[profile.lab]\nurl = "{tls_url}"\ncacert = "{authority.ca}"\n')
    assert run("--profile", "lab", "send", "hello").stdout == "you said hello\n"


def test_options_that_contradict_each_other_and_missing_files_are_wrong_usage(run: Run, tls_url: str) -> None:
    both = run("card", tls_url, "--cacert", "x.pem", "--insecure")
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
    missing = run("card", tls_url, "--cacert", "x.pem")
    assert (missing.exit_code, "there is no file x.pem" in missing.stderr) == (2, True)


# -- profiles --


def test_a_profile_has_the_address_the_credentials_and_the_headers(run: Run, guarded_url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    configure(
        tmp_path,
        f'[profile.prod]\nurl = "{guarded_url}"\nauth_file = "token"\ntimeout = 50\n[profile.prod.headers]\nX-Team = "a"\n',
    )
    assert run("--profile", "prod", "send", "hello").stdout == "you said hello\n"
    assert run("send", "--profile", "prod", "hello").stdout == "you said hello\n"
    assert run("list", "--profile", "prod", "--limit", "1").exit_code == 0


def test_an_address_on_the_command_line_outweighs_that_of_the_profile(run: Run, url: str, tmp_path: Path) -> None:
    configure(tmp_path, '[profile.prod]\nurl = "http://127.0.0.1:1"\n')
    assert run("--profile", "prod", "send", url, "hello").stdout == "you said hello\n"
    assert run("--profile", "prod", "send", "hello").exit_code == 3


def test_credentials_of_a_profile_are_not_sent_to_another_address(run: Run, url: str, tmp_path: Path) -> None:
    configure(tmp_path, '[profile.prod]\nurl = "https://agents.example"\nauth = "s3cret"\n')
    refused = run("--profile", "prod", "send", url, "hello")
    assert refused.exit_code == 2
    assert "the credentials of profile 'prod' are for https://agents.example" in refused.stderr
    assert "s3cret" not in refused.output


@pytest.mark.parametrize("checks", ["insecure = true", 'cacert = "{authority}"'])
def test_how_a_profile_checks_certificates_is_not_for_another_address(
    run: Run, tls_url: str, authority: Authority, tmp_path: Path, checks: str
) -> None:
    settings = checks.replace("{authority}", str(authority.ca))
    configure(tmp_path, f'[profile.prod]\nurl = "https://agents.example"\n{settings}\n')
    refused = run("--profile", "prod", "send", tls_url, "hello")
    assert (refused.exit_code, "the certificate is not trusted" in refused.stderr) == (3, True)
    configure(tmp_path, f"[profile.prod]\n{settings}\n")
    assert run("--profile", "prod", "send", tls_url, "hello").stdout == "you said hello\n"


def test_a_profile_outweighs_the_environment_and_an_option_the_profile(
    run: Run, guarded_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, f'[profile.prod]\nurl = "{guarded_url}"\nauth = "s3cret"\n')
    monkeypatch.setenv("A2A_SYNC_AUTH", "wr0ng")
    monkeypatch.setenv("A2A_SYNC_PROFILE", "prod")
    assert run("send", "hello").exit_code == 0
    assert run("send", "hello", "--auth", "wr0ng").exit_code == 1


def test_credentials_that_others_can_read_are_reported(run: Run, guarded_url: str, tmp_path: Path) -> None:
    configure(tmp_path, f'[profile.prod]\nurl = "{guarded_url}"\nauth = "s3cret"\n', mode=0o644)
    assert "chmod 600" in run("--profile", "prod", "send", "hello").stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no profile 'prod'; it has none: add [profile.prod]"),
        ("[profile.lab]\n[profile.dev]\n", "has no profile 'prod'; it has dev, lab"),
        ("not toml", "is not TOML"),
        ("[profile.prod]\nurk = 1\n", "unknown key 'urk'; the keys are url, auth"),
        ("[profile.prod]\ntimeout = true\n", "timeout is of type bool, not int or float"),
        ("[profile.prod]\ntimeout = -1\n", "timeout must be positive"),
        ("[profile.prod]\nurl = 1\n", "url is of type int, not str"),
        ('[profile.prod]\nauth = "a"\nauth_file = "b"\n', "auth and auth_file exclude each other"),
        ('[profile.prod]\nauth_file = "b"\n', "cannot read the credentials in"),
        ("[profile.prod.headers]\nA = 1\n", "the values of headers are text"),
    ],
)
def test_a_profile_that_is_wrong_is_wrong_usage(run: Run, tmp_path: Path, text: str, problem: str) -> None:
    configure(tmp_path, text)
    refused = run("--profile", "prod", "card", "http://127.0.0.1:1")
    assert (refused.exit_code, problem in refused.stderr) == (2, True), refused.stderr


def test_a_missing_configuration_is_wrong_usage_only_with_a_profile(run: Run, url: str) -> None:
    assert run("card", url).exit_code == 0
    refused = run("--profile", "prod", "card", url)
    assert (refused.exit_code, "cannot read the profiles in config.toml" in refused.stderr) == (2, True)


# -- debugging and colours --


def test_debug_shows_calls_and_requests_without_credentials(run: Run, guarded_url: str) -> None:
    for command in (["--debug", "send", guarded_url, "hello"], ["send", guarded_url, "hello", "--debug"]):
        shown = run(*command, "--auth", "s3cret")
        assert shown.stdout == "you said hello\n"
        assert "debug: > SendStreamingMessage (1.0) " in shown.stderr
        assert '"POST / HTTP/1.1" 200' in shown.stderr
        assert "s3cret" not in shown.stderr
    assert "debug:" not in run("send", guarded_url, "hello", "--auth", "s3cret").stderr


def test_debug_shows_no_key_in_a_query_and_no_token_of_a_webhook(run: Run) -> None:
    with served(A2AApp(Actor(), auth=ApiKeyAuth({"s3cret": "ada"}, query="key"))) as url:
        shown = run("send", url, "hello", "--debug", "--auth", "s3cret")
        hooked = run(
            "hooks",
            url,
            "x",
            "--add",
            "https://hooks.example/?k=t0ken",
            "--token",
            "t0ken",
            "--debug",
            "--auth",
            "s3cret",
        )
    assert shown.exit_code == 0
    assert "?***" in shown.stderr
    assert '"token": "***"' in hooked.stderr
    assert "s3cret" not in shown.stderr + hooked.stderr
    assert "t0ken" not in hooked.stderr


def test_debug_shows_the_traceback_of_an_error(run: Run) -> None:
    failed = run("card", "http://127.0.0.1:1", "--debug")
    assert failed.exit_code == 3
    assert "Traceback (most recent call last)" in failed.stderr
    assert failed.stderr.rstrip().splitlines()[-1].startswith("Error: could not connect")


@pytest.mark.parametrize("command", main.commands)
def test_every_command_takes_the_global_options_before_and_after_it(run: Run, command: str) -> None:
    for option in ("--profile NAME", "--config FILE", "--debug", "--no-color"):
        assert f"  {option} " in run("--help").stdout
        assert f"  {option} " in run(command, "--help").stdout
    given = ["--profile", "x", "--config", "y.toml", "--debug", "--no-color"]
    for words in ([*given, command, "--help"], [command, *given, "--help"]):
        assert run(*words).exit_code == 0


def test_a_configuration_is_named_before_or_after_the_command(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(f'[profile.prod]\nurl = "{url}"\n[profile.lab]\nurl = "http://127.0.0.1:1"\n')
    given = ["--config", "other.toml", "--profile", "prod"]
    assert run(*given, "send", "hello").stdout == "you said hello\n"
    assert run("send", "hello", *given).stdout == "you said hello\n"
    # What stands after the command outweighs what stands before it.
    assert run("--profile", "lab", "--config", "none.toml", "send", "hello", *given).stdout == "you said hello\n"


def test_a_profile_before_the_command_outweighs_the_environment(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, f'[profile.prod]\nurl = "{url}"\n')
    monkeypatch.setenv("A2A_SYNC_PROFILE", "lab")
    assert run("--profile", "prod", "send", "hello").stdout == "you said hello\n"


def test_debug_of_serve_stands_before_or_after_it_too(run: Run) -> None:
    for words in (["--debug", "serve", "tests.cli.agents:app"], ["serve", "tests.cli.agents:app", "--debug"]):
        refused = run(*words)
        assert (refused.exit_code, "--debug goes with an Agent" in refused.stderr) == (2, True), refused.stderr


def test_json_is_one_line_for_each_document(run: Run, url: str) -> None:
    task = json.loads(run("send", url, "stream", "--json").stdout)["task"]
    for command in (["card", url], ["get", url, task["id"]], ["list", url], ["watch", url, task["id"]]):
        printed = run(*command, "--json").stdout
        assert printed.endswith("\n")
        (line,) = printed.splitlines()
        json.loads(line)
