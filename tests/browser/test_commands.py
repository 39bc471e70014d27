"""Commands that the pages copy, executed: with signed tokens, and with client certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jwt", reason="PyJWT is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed")

from a2a_sync import A2AApp
from a2a_sync.auth import ApiKeyAuth, BearerAuth, MTLSAuth
from tests.auth.test_certificates import require_certificates, serving
from tests.browser.agents import Story
from tests.browser.conftest import Visit, console_for, copied_commands, listening, run_command, served
from tests.browser.test_access import token
from tests.browser.test_console import log_in_with
from tests.certificates import Authority
from tests.console.payloads import SECRET, leading_to

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]


@pytest.mark.parametrize("agent", ["oauth", "openid"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_copied_commands_work_with_signed_tokens(
    visit: Window, request: pytest.FixtureRequest, agent: str, elsewhere: bool
) -> None:
    url = request.getfixturevalue(agent)
    secret = token(600)
    for address in console_for(url, "--auth", secret) if elsewhere else [url]:
        window = visit(address)
        if elsewhere:
            window.log_in()
        else:
            log_in_with(window, agent, {"secret": secret})
        window.send("ask")
        window.wait_state("input-required")
        window.page.reload()
        log, rows = ("#wire", "#frames > tr:first-child") if elsewhere else ("#log", "#rows > tr:first-child")
        window.page.click(f"{log} > summary")
        copied = copied_commands(window, rows)
        assert len(copied) == 4
        for label, command in copied:
            assert secret not in command
            assert "What is your name?" in run_command(label, command, A2A_SYNC_AUTH=secret)
        window.check()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_copied_commands_work_with_a_client_certificate(visit: Window, tmp_path: Path, elsewhere: bool) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("ada")
    both = tmp_path / "both.pem"
    both.write_text("".join(Path(one).read_text() for one in certificate))
    app = A2AApp(Story(), auth=MTLSAuth(), console=True)
    with app, serving(app, authority, prepare=require_certificates) as url:
        shown = [{"origin": url, "certPath": certificate[0], "keyPath": certificate[1]}]
        for address in console_for(url, "--cert", str(both), "--cacert", authority.ca) if elsewhere else [url]:
            window = visit(address, ignore_https_errors=True, client_certificates=shown)
            window.log_in() if elsewhere else window.go("/console/")
            window.send("ask")
            window.wait_state("input-required")
            window.page.reload()
            log, rows = ("#wire", "#frames > tr:first-child") if elsewhere else ("#log", "#rows > tr:first-child")
            window.page.click(f"{log} > summary")
            copied = copied_commands(window, rows)
            assert len(copied) == 4
            trust = {"CURL_CA_BUNDLE": authority.ca, "REQUESTS_CA_BUNDLE": authority.ca}
            for label, command in copied:
                text = run_command(label, command, A2A_SYNC_CERT=str(both), **trust)
                assert "What is your name?" in text, (command, text)
            window.check()


def test_copied_commands_name_credentials_for_the_origin_of_the_agent_only(visit: Window) -> None:
    with (
        served(A2AApp(Story())) as other,
        served(leading_to(other, A2AApp(Story(), auth=BearerAuth({SECRET: "ada"})))) as home,
    ):
        for address in console_for(home, "--auth", SECRET):
            window = visit(address)
            window.log_in()
            window.send("ask")
            window.wait_state("input-required")
            window.page.reload()
            for part in ("#wire", "#log"):
                window.page.click(f"{part} > summary")
            # All but the program with a client, which checks the origin itself.
            shown, _, *more = copied_commands(window, ":is(#frames, #rows) > tr:first-child")
            assert len(more) == 4
            for label, command in (shown, *more):
                assert other in command
                assert "A2A_SYNC_AUTH" not in command
                assert "What is your name?" in run_command(label, command)
            window.check()


def test_a_copied_program_follows_no_redirect_to_another_origin(visit: Window) -> None:
    followed: list[str] = []

    def other(environ: Any, start_response: Any) -> Iterable[bytes]:
        followed.append(environ.get("HTTP_X_KEY", ""))
        start_response("200 OK", [])
        return []

    with listening(other) as elsewhere:
        app = A2AApp(Story(), auth=ApiKeyAuth({SECRET: "ada"}, header="X-Key"))
        inner = app.wsgi_app

        def redirecting(environ: Any, start_response: Any) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "GET":
                return inner(environ, start_response)
            start_response("307 Temporary Redirect", [("Location", elsewhere)])
            return []

        app.wsgi_app = redirecting
        with served(app) as home:
            for address in console_for(home, "--auth", SECRET):
                window = visit(address)
                window.log_in()
                window.send("ask")
                window.wait_state("failed")
                window.page.reload()
                window.page.click("#wire > summary")
                for label, command in copied_commands(window, "#frames > tr:first-child")[2:]:
                    assert "A2A_SYNC_AUTH" in command
                    run_command(label, command, A2A_SYNC_AUTH=SECRET)
                window.check()
    assert followed == []
