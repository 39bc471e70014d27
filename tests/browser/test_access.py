"""Logging in with each kind of credential, until it expires; the console behind nginx; and the console without a pointer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jwt", reason="PyJWT is not installed")
pytest.importorskip("playwright.sync_api", reason="Playwright is missing (make console-tests)")

import jwt as pyjwt
from playwright.sync_api import Error as PlaywrightError

from a2a_sync import A2AApp
from a2a_sync.auth import MTLSAuth
from a2a_sync.console import sessions
from a2a_sync.console.access import _write_credentials
from a2a_sync.console.sessions import SESSION_AGE, Sessions
from tests.auth.test_certificates import serving
from tests.browser.agents import Story
from tests.browser.conftest import INTRANET, KEY, Visit, serve, task_id, wait_until, words
from tests.certificates import Authority
from tests.console.payloads import SIGNING_KEY
from tests.live import HOST
from tests.servers.nginx import make_certificate, needs_nginx, nginx
from tests.stopwatch import set_clock

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]


def test_forms_work_over_plain_http_at_a_host_name(visit: Window) -> None:
    """The browser does not say there that a form is the console's own, but for the origin."""
    for url in serve("named"):
        window = visit(url.replace(HOST, INTRANET))
        window.log_in()
        window.send("show")
        window.wait_state("completed")
        window.follow(".logout button")
        assert window.page.url.endswith("/console/login")
        window.check()


def begin_a_dialogue(window: Visit) -> str:
    """Begin a task, which asks something; returns the address of its page."""
    window.send("ask")
    window.wait_state("input-required")
    window.page.wait_for_selector("#link:text-is('live')")
    url: str = window.page.url
    return url


def replace_cookie(window: Visit, kind: str, value: str) -> None:
    """Replace the value of a cookie of the console, as time does."""
    (cookie,) = [one for one in window.page.context.cookies() if one["name"].startswith(f"a2a_console_{kind}_")]
    window.page.context.add_cookies([{**cookie, "value": value}])


def expect_login(window: Visit, page: str) -> None:
    """The page leads to the login, and so does its address."""
    window.page.wait_for_selector("h1:has-text('Log in')")
    window.page.goto(page)
    assert window.page.url.endswith("/console/login")


# -- logging in, expiry, logging out ------------------------------------------------------------------------------------


def test_a_session_of_a_link_ends_after_twelve_hours_also_in_an_open_page(
    visit: Window, brief: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = visit(brief)
    window.log_in()
    page = begin_a_dialogue(window)
    set_clock(monkeypatch, sessions, time=time.time() - SESSION_AGE)
    replace_cookie(window, "session", Sessions(KEY.encode()).cookie())
    expect_login(window, page)
    window.check()


def token(expires: float) -> str:
    """A token for Ada that expires in so many seconds."""
    claims = {"iss": "tests", "aud": "story", "sub": "ada", "exp": time.time() + expires}
    return pyjwt.encode(claims, SIGNING_KEY, "HS256")


def test_a_json_web_token_logs_in_until_it_expires(visit: Window, jwt: str) -> None:
    window = visit(jwt)
    window.go("/console/")
    window.page.fill("[name=secret]", token(-1))
    window.page.press("[name=secret]", "Enter")
    window.page.wait_for_selector("[role=alert]:visible")
    window.page.fill("[name=secret]", token(600))
    window.page.press("[name=secret]", "Enter")
    page = begin_a_dialogue(window)
    replace_cookie(window, "auth", _write_credentials({"authorization": f"Bearer {token(-1)}"}))
    expect_login(window, page)
    window.page.fill("[name=secret]", token(600))
    window.page.press("[name=secret]", "Enter")
    window.page.wait_for_selector("h1:text-is('storyteller')")
    # The task is Ada's, whichever of her tokens she has.
    window.page.goto(page)
    window.send("Ada")
    window.wait_state("completed")
    window.page.click("text=Log out")
    expect_login(window, page)
    window.check()


def test_the_login_of_a_web_site_is_that_of_the_console(visit: Window, site: str) -> None:
    window = visit(f"{site}/agents/story")
    window.go("/console/")
    assert "no credentials that a form can send" in window.page.inner_text("main")
    window.page.goto(f"{site}/login/ada")
    window.go("/console/")
    page = begin_a_dialogue(window)
    # Another user of the site sees nothing of it.
    window.page.request.get(f"{site}/login/eve")
    window.page.goto(page)
    assert window.page.inner_text("h1") != "ask"
    window.page.request.get(f"{site}/login/ada")
    window.page.goto(page)
    window.page.wait_for_selector("#link:text-is('live')")
    window.page.request.get(f"{site}/logout")
    expect_login(window, page)


def test_a_client_certificate_is_the_login(visit: Window, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    valid, expired = authority.issue("ada"), authority.issue("eve", days=-1)
    with A2AApp(Story(), auth=MTLSAuth(), console=True) as app, serving(app, authority) as url:

        def with_certificate(paths: tuple[str, str] | None) -> Visit:
            shown = [] if paths is None else [{"origin": url, "certPath": paths[0], "keyPath": paths[1]}]
            return visit(url, ignore_https_errors=True, client_certificates=shown)

        window = with_certificate(valid)
        window.go("/console/")
        begin_a_dialogue(window)
        window.send("Ada")
        window.wait_state("completed")
        assert "Hello, Ada." in words(window)
        stranger = with_certificate(None)
        stranger.go("/console/")
        assert stranger.page.url.endswith("/console/login")
        late = with_certificate(expired)
        # TLS refuses it, so the page is an error of the browser or of the proxy with the certificate.
        with suppress(PlaywrightError):
            late.go("/console/")
        assert not late.page.url.startswith(f"{url}/console/a/")
        assert "storyteller" not in late.page.content()


# -- behind a proxy -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def behind_nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The storyteller below ``/x`` of an nginx with TLS, set up as docs/howto/proxies.md shows."""
    folder = tmp_path_factory.mktemp("nginx")
    headers = (
        "proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;"
        " proxy_set_header X-Forwarded-Host $http_host; proxy_set_header X-Forwarded-Prefix /x;"
        ' proxy_http_version 1.1; proxy_set_header Connection "";'
    )
    for server in serve("proxied"):
        location = f"location /x/ {{ proxy_pass {server}/; {headers} }}"
        with nginx(folder, location, certificate=make_certificate(folder)) as proxy:
            yield f"{proxy.url}/x"


@needs_nginx()
def test_every_link_stays_below_the_prefix_of_a_proxy_and_tokens_stream_through_it(
    visit: Window, behind_nginx: str
) -> None:
    window = visit(behind_nginx, ignore_https_errors=True)
    window.log_in()
    (cookie,) = window.page.context.cookies()
    assert (cookie["path"], cookie["secure"], cookie["httpOnly"]) == ("/x/console", True, True)
    window.send("wait 60")
    window.page.wait_for_selector("#live .talk:has-text('piece-5')")
    assert window.page.inner_text("#live .status .pill") == "working"
    window.page.reload()
    window.wait_state("completed")
    assert words(window).split()[-60:] == [f"piece-{number}" for number in range(60)]
    window.page.click("summary:has-text('Send the first message again')")
    assert behind_nginx in window.page.inner_text("#curl")
    for name in ("Tasks", "Operate", "Side by side", "storyteller"):
        window.page.click(f"nav >> text={name}")
        assert window.page.url.startswith(f"{behind_nginx}/console/")
        links = [one.evaluate("one => one.href") for one in window.page.locator("a").all()]
        assert all(link.startswith(behind_nginx) for link in links), links
        window.check()
    window.go("/")
    window.page.click("text=Open the console")
    window.page.wait_for_selector("h1:text-is('storyteller')")
    window.page.click("text=Log out")
    window.page.wait_for_selector("h1:has-text('Log in')")
    assert window.page.url == f"{behind_nginx}/console/login"


def test_streams_that_are_cut_again_and_again_lose_and_repeat_nothing(visit: Window, brief: str) -> None:
    window = visit(brief)
    window.log_in()
    opened: list[str] = []
    window.page.on("request", lambda request: opened.append(request.url) if "/events?" in request.url else None)
    window.send("wait 500")
    wait_until(window, lambda: len(opened) > 3)
    window.page.click("#cancel")
    window.page.wait_for_selector("#cancel", state="hidden")
    pieces = [word for word in words(window).split() if word.startswith("piece-")]
    assert pieces == [f"piece-{number}" for number in range(len(pieces))]
    numbers = [int(text) for text in window.page.locator("#rows tr > td:first-child").all_text_contents()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > len(pieces) > 5
    window.check()


# -- the keyboard alone -----------------------------------------------------------------------------------------------------


def tab_to(window: Visit, selector: str, key: str = "Tab") -> None:
    """Press the tabulator until an element has the focus; it must be visible there."""
    for _ in range(80):
        if window.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            # The outline of a picker of files is that of its label.
            shown = "selector => getComputedStyle(document.querySelector(selector)).outlineStyle"
            assert window.page.evaluate(shown, "label[for=files]" if selector == "#files" else ":focus") != "none"
            return
        window.page.keyboard.press(key)
    raise AssertionError(f"no way to {selector} with the tabulator")


def press(window: Visit, selector: str, key: str = "Enter") -> None:
    """Go to an element with the tabulator, and press a key there."""
    tab_to(window, selector)
    window.page.keyboard.press(key)


def test_every_view_is_used_with_the_keyboard_alone(visit: Window, secured: str, tmp_path: Path) -> None:
    window = visit(secured)
    keyboard = window.page.keyboard
    window.go("/console/")
    tab_to(window, "input[name=user]")
    keyboard.type("bob")
    keyboard.press("Tab")
    keyboard.type("pass-of-bob")
    keyboard.press("Enter")
    window.page.wait_for_selector("h1:text-is('storyteller')")
    # A file, and an example of a skill as text.
    (tmp_path / "notes.txt").write_text("hello")
    tab_to(window, "#files")
    # Of the key presses that open a window of the system, Chromium ignores some on a loaded machine.
    opened: list[Any] = []
    window.page.on("filechooser", lambda chooser: opened.append(chooser))
    wait_until(window, lambda: opened or keyboard.press("Enter"))
    opened[0].set_files(str(tmp_path / "notes.txt"))
    press(window, "#attached button")
    assert window.page.inner_text("#attached") == ""
    press(window, ".example")
    assert window.page.evaluate("document.activeElement.id") == "text"
    keyboard.press("Enter")
    window.wait_state("completed")
    # The log, an entry of it, and its commands.
    press(window, "#log > summary")
    press(window, "#rows tr:first-child summary")
    window.page.wait_for_selector("#rows tr:first-child button")
    # Another task, cancelled.
    tab_to(window, "#text", "Shift+Tab")
    keyboard.type("wait 500")
    keyboard.press("Enter")
    window.page.wait_for_selector("#live .talk:has-text('piece-2')")
    cancelled = task_id(window)
    press(window, "#cancel")
    window.wait_state("canceled")
    # The list, its filter, and the task again.
    press(window, "nav a[href$='/tasks']")
    window.page.wait_for_selector("h1:text-is('Tasks')")
    tab_to(window, "#state")
    keyboard.type("canc")
    press(window, ".filters button")
    window.page.wait_for_selector("td .pill:text-is('canceled')")
    press(window, f"td a[href*='{cancelled}']")
    window.wait_state("canceled")
    # Several conversations, one of them closed.
    press(window, ".beside")
    window.page.wait_for_selector(".pane")
    count = window.page.locator(".pane").count()
    press(window, "#add [data-add]")
    assert window.page.locator(".pane").count() == count + 1
    press(window, ".pane:first-child .pane-close")
    assert window.page.locator(".pane").count() == count
    press(window, ".logout button")
    window.page.wait_for_selector("h1:has-text('Log in')")
    window.check()


# -- without scripts ------------------------------------------------------------------------------------------------------


def test_without_scripts_one_logs_in_and_reads_everything(visit: Window, shared: str) -> None:
    window = visit(shared)
    window.log_in()
    window.send("A story about the clock")
    window.wait_state("completed")
    page = window.page.url
    window.go("/console/")
    window.send("wait 250")
    window.wait_state("completed")
    long = task_id(window)
    plain = visit(shared, scripts=False)
    plain.go("/console/")
    plain.page.fill("#token", Sessions(KEY.encode()).token())
    plain.page.click("#token-form button")
    assert plain.page.inner_text("h1") == "storyteller"
    assert "Sending needs scripts" in plain.page.inner_text("noscript")
    plain.page.click("nav >> text=Tasks")
    plain.page.select_option("#state", "completed")
    plain.page.click(".filters button")
    assert set(plain.page.locator("td .pill").all_inner_texts()) == {"completed"}
    plain.page.click(f"td a[href*='{long}']")
    assert words(plain).split()[-1] == "piece-249"
    assert plain.page.locator(".band rect.fill-completed").count() == 2
    plain.page.click("#log > summary")
    plain.page.click("#log >> text=Later entries")
    numbers = plain.page.locator("#rows tr > td:first-child").all_inner_texts()
    assert numbers[0] == "201"
    plain.page.click("#rows tr:first-child summary")
    assert "artifact" in plain.page.inner_text("#rows tr:first-child pre")
    plain.page.click("nav >> text=Operate")
    assert plain.page.locator(".plot rect").count() > 0
    plain.page.goto(page)
    assert plain.page.inner_text("#live .prose h2") == "The penguin and the clock"
    plain.page.click("text=Log out")
    wait_until(plain, lambda: plain.page.url.endswith("/console/login"))
