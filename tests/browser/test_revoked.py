"""Credentials that expire or are revoked while a page is open: the page says so, and continues after new ones without a loss."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

pytest.importorskip("jwt", reason="PyJWT is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed")

from a2a_sync import A2AApp, Client
from a2a_sync.auth import ApiKeyAuth, Authenticator, BasicAuth, BearerAuth, MTLSAuth
from a2a_sync.console.access import _write_credentials
from tests.auth.test_certificates import serving
from tests.browser.agents import BRIEF, Story
from tests.browser.conftest import Visit, console_for, listening, served, wait_until, words
from tests.browser.test_access import replace_cookie, token
from tests.certificates import Authority

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]
ENDED = "#ended:has-text('Your login has ended: it has expired, or it was revoked.')"


def log_in(window: Visit, secret: str) -> None:
    """Fill the form; as Ada, where it asks for a user."""
    for field in window.page.locator("[name=user]").all():
        field.fill("ada")
    window.page.fill("[name=secret]", secret)
    window.page.press("[name=secret]", "Enter")


def log_in_first(window: Visit) -> None:
    """Open the console with the token "first"."""
    window.go("/console/")
    log_in(window, "first")
    window.page.wait_for_selector("h1:text-is('storyteller')")


def pieces(window: Visit) -> list[str]:
    """The pieces of the story on the page."""
    return [word for word in words(window).split() if word.startswith("piece-")]


def begin(window: Visit) -> None:
    """Begin a task that lasts longer than a test, and wait for its first pieces."""
    window.send("wait 4000")
    window.page.wait_for_selector("#live .talk:has-text('piece-5 ')")
    assert window.page.inner_text("#live .status .pill") == "working"


def check_whole(window: Visit) -> None:
    """More pieces come; the page has each piece and each entry once, and the task is cancelled."""
    window.page.wait_for_selector("#live .talk:has-text('piece-5 ')")
    before = len(pieces(window))
    wait_until(window, lambda: len(pieces(window)) > before + 5)
    window.page.click("#cancel")
    window.wait_state("canceled")
    found = pieces(window)
    assert found == [f"piece-{number}" for number in range(len(found))]
    numbers = [int(text) for text in window.page.locator("#rows tr > td:first-child").all_text_contents()]
    assert numbers == list(range(1, len(numbers) + 1))
    window.check()


# -- the console of an app ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_auth",
    [
        lambda accepted: BearerAuth(accepted.get),
        lambda accepted: ApiKeyAuth(accepted.get, header="X-Key"),
        lambda accepted: BasicAuth(lambda user, password: accepted.get(password)),
    ],
    ids=["token", "key", "password"],
)
def test_a_revoked_credential_ends_an_open_page_at_once_and_another_one_leads_back_to_it(
    visit: Window, make_auth: Callable[[dict[str, str]], Authenticator]
) -> None:
    accepted = {"first": "ada"}
    with served(A2AApp(Story(), auth=make_auth(accepted), console=True)) as url:
        window = visit(url)
        log_in_first(window)
        begin(window)
        window.page.fill("#text", "a draft")
        page = window.page.url
        # Its stream stays open, as those of clients do.
        accepted.clear()
        window.page.wait_for_selector(ENDED)
        assert "#" not in window.page.url
        window.check_access()
        window.shoot("ended-desktop")
        log_in(window, "first")
        window.page.wait_for_selector("[role=alert]:has-text('The credentials were not accepted.')")
        accepted["second"] = "ada"
        log_in(window, "second")
        window.page.wait_for_selector("#live")
        assert window.page.url == page
        assert window.page.input_value("#text") == "a draft"
        check_whole(window)


def test_a_message_that_is_sent_after_the_end_of_a_login_is_not_lost(visit: Window) -> None:
    accepted = {"first": "ada"}
    with served(A2AApp(Story(), auth=BearerAuth(accepted.get), console=True)) as url:
        window = visit(url)
        log_in_first(window)
        accepted.clear()
        window.send("ask")
        window.page.wait_for_selector(ENDED)
        accepted["first"] = "ada"
        window.page.click("text=Try the page again")
        window.page.wait_for_selector("h1:text-is('storyteller')")
        assert window.page.input_value("#text") == "ask"
        window.page.press("#text", "Enter")
        window.wait_state("input-required")
        window.check()


def test_a_token_that_expires_in_the_middle_of_a_stream_is_replaced(visit: Window, jwt: str) -> None:
    window = visit(jwt)
    window.go("/console/")
    log_in(window, token(600))
    begin(window)
    replace_cookie(window, "auth", _write_credentials({"authorization": f"Bearer {token(1)}"}))
    window.page.wait_for_selector(ENDED)
    log_in(window, token(600))
    check_whole(window)


def test_a_certificate_whose_owner_is_no_longer_known_ends_an_open_page_until_it_is(
    visit: Window, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("ada")
    known = {"CN=ada": "ada"}
    app = A2AApp(Story(), auth=MTLSAuth(known.get), console=True)
    with app, serving(app, authority) as url:
        shown = [{"origin": url, "certPath": certificate[0], "keyPath": certificate[1]}]
        window = visit(url, ignore_https_errors=True, client_certificates=shown)
        window.go("/console/")
        begin(window)
        known.clear()
        window.page.wait_for_selector(ENDED)
        assert "with the certificate that authenticates you" in window.page.inner_text("main")
        window.page.click("text=Try the page again")
        window.page.wait_for_selector("#ended:has-text('still refused')")
        known["CN=ada"] = "ada"
        window.page.click("text=Try the page again")
        check_whole(window)


@pytest.mark.parametrize("back", ["//evil.test/", "javascript:window.hacked=1", "/elsewhere"])
def test_a_link_to_the_login_leads_to_no_other_page(visit: Window, secured: str, back: str) -> None:
    window = visit(secured)
    window.go(f"/console/login#back={quote(back, safe='')}")
    form = window.page.locator("form:has(input[value='apiKey'])")
    assert window.page.locator("#ended").is_hidden()
    form.locator("[name=back]").evaluate("(field, value) => (field.value = value)", back)
    form.locator("[name=secret]").fill("key-of-root")
    form.locator("button").click()
    window.page.wait_for_selector("h1:text-is('storyteller')")
    window.check()


# -- agents elsewhere ---------------------------------------------------------------------------------------------------


def test_a_token_that_an_agent_revokes_in_the_middle_of_a_task_is_replaced_on_its_page(visit: Window) -> None:
    accepted = {"first": "ada"}
    agent = A2AApp(Story(), auth=BearerAuth(accepted.get), limits=BRIEF)
    with served(agent) as url:
        for address in console_for(url, "--auth", "first"):
            window = visit(address)
            window.log_in()
            begin(window)
            accepted.clear()
            window.wait_state("auth-required")
            assert "they have expired, or they were revoked" in words(window)
            accepted["second"] = "ada"
            window.page.fill("#credentials [name=secret]", "second")
            window.page.click("#credentials button")
            check_whole(window)
            with Client(url, auth="second") as client:
                (task,) = client.list_tasks().tasks
                assert [message.text for message in task.history if message.role.value == "user"] == ["wait 4000"]


def test_a_certificate_that_an_agent_refuses_in_the_middle_of_a_task_is_named_at_once_and_replaced(
    visit: Window, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    # With its key, as one file.
    shown = tmp_path / "shown.pem"

    def issue() -> str:
        certificate, key = authority.issue("ada")
        shown.write_text(Path(certificate).read_text() + Path(key).read_text())
        return certificate

    certificate = issue()
    servers: list[ssl.SSLContext] = []
    agent = A2AApp(Story(), auth=MTLSAuth(), limits=BRIEF)
    with agent, serving(agent, authority, prepare=servers.append) as url:
        for address in console_for(url, "--cert", str(shown), "--cacert", authority.ca):
            window = visit(address)
            window.log_in()
            begin(window)
            # The stream that is open goes on; the next connection is refused.
            authority.revoke(certificate, servers[0])
            window.wait_state("auth-required")
            refused = "The connection failed: the agent refused the client certificate: certificate revoked."
            assert words(window).count(refused) == 1
            window.page.wait_for_selector("#credentials")
            assert "Renew it in the file of --cert" in window.page.inner_text("#credentials")
            window.check_access()
            window.check()
            window.shoot("certificate-desktop")
            window.page.click("button:text-is('Try again')")
            window.page.wait_for_selector(f":nth-match(#live .turn:has-text('{refused}'), 2)")
            window.wait_state("auth-required")
            issue()
            window.page.click("button:text-is('Try again')")
            check_whole(window)


def test_a_certificate_that_expires_in_the_middle_of_a_task_is_named_with_its_date_and_renewed(
    visit: Window, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    shown = tmp_path / "shown.pem"

    def issue(seconds: float) -> str:
        certificate, key = authority.issue("ada", days=seconds / 86400)
        shown.write_text(Path(certificate).read_text() + Path(key).read_text())
        return f"{authority.expiry(certificate):%Y-%m-%d %H:%M:%S} UTC"

    issue(3600)
    agent = A2AApp(Story(), auth=MTLSAuth(), limits=BRIEF)
    with agent, serving(agent, authority) as url:
        for address in console_for(url, "--cert", str(shown), "--cacert", authority.ca):
            window = visit(address)
            window.log_in()
            # Each connection reads the file.
            expiry = issue(10)
            begin(window)
            # The agent cuts each stream after 0.4 s; it checks the next connection.
            window.wait_state("auth-required")
            refused = f"the agent refused the client certificate, which expired on {expiry}: certificate expired."
            assert words(window).count(refused) == 1
            assert "Renew it in the file of --cert" in window.page.inner_text("#credentials")
            window.page.click("button:text-is('Try again')")
            window.page.wait_for_selector(f":nth-match(#live .turn:has-text('{refused}'), 2)")
            window.wait_state("auth-required")
            issue(3600)
            window.page.click("button:text-is('Try again')")
            check_whole(window)


def test_a_lost_connection_to_an_agent_is_shown_until_there_is_one_again(visit: Window) -> None:
    with A2AApp(Story(), limits=BRIEF) as agent, ExitStack() as servers:
        url = servers.enter_context(listening(agent))
        for address in console_for(url):
            window = visit(address)
            window.log_in()
            begin(window)
            servers.close()
            lost = "The connection to the agent is lost; trying again. (could not connect: Connection refused)"
            window.page.wait_for_selector(f".why:has-text('{lost}')")
            assert window.page.inner_text("#live .status .pill") == "working"
            window.page.reload()
            window.page.wait_for_selector(f".why:has-text('{lost}')")
            window.shoot("lost-desktop")
            with listening(agent, urlsplit(url).port or 0):
                window.page.wait_for_selector(".why", state="detached")
                check_whole(window)
