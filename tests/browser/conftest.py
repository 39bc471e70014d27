"""A real Chromium in front of real servers. Tests without a browser are skipped with the reason; in CI none may be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.types import WSGIApplication

import pytest
from werkzeug.serving import make_server

from a2a_sync import A2AApp, Client
from a2a_sync.console.sessions import KEY_VARIABLE, Sessions
from tests.live import HOST, free_port, gunicorn, live_server

#: The key of all servers of these tests, so that a test can make a login link.
KEY = "the key of the tests of the console"  # of no other server
#: Where screenshots go; those of the documentation are made with docs/images/console here.
SHOTS = os.environ.get("A2A_SCREENSHOTS")
HERE = Path(__file__).parent
#: A host name of this machine in these browsers, which treat plain HTTP to it as insecure, unlike that to a loopback address.
INTRANET = "intranet.test"
DESKTOP, PHONE = {"width": 1300, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def playwright() -> Iterator[Any]:
    library = pytest.importorskip("playwright.sync_api", reason="Playwright is missing (make console-tests)")
    with library.sync_playwright() as running:
        yield running


def launch(playwright: Any, *names: str) -> Iterator[Any]:
    """The browser that ``A2A_CHROMIUM`` names, or the first of these that is installed."""
    path = os.environ.get("A2A_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not path:
        pytest.skip(f"there is no Chromium: apt-get install {names[0]}, or name one in A2A_CHROMIUM")
    arguments = ["--no-sandbox", f"--host-resolver-rules=MAP {INTRANET} {HOST}"]
    opened = playwright.chromium.launch(executable_path=path, args=arguments)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def browser(playwright: Any) -> Iterator[Any]:
    # The build without windows takes two thirds of the processor time.
    yield from launch(playwright, "chromium-headless-shell", "chromium", "chromium-browser")


@pytest.fixture(scope="session")
def browser_with_viewer(playwright: Any) -> Iterator[Any]:
    """The build that shows PDF documents."""
    yield from launch(playwright, "chromium", "chromium-browser")


class Visit:
    """A page of a browser, and what went wrong in it: errors, dialogs, and requests to other sites."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        # The viewer for PDF is a part of the browser.
        own = (url, "chrome-extension://", "chrome://resources/")
        page.on("request", lambda request: None if request.url.startswith(own) else self.foreign.append(request.url))

    def go(self, path: str) -> Any:
        """Open a path of the server."""
        return self.page.goto(self.url + path)

    def follow(self, link: str) -> None:
        """Click what opens another page, and wait until it is loaded."""
        with self.page.expect_navigation():
            self.page.click(link)

    def log_in(self) -> None:
        """Open a fresh login link."""
        self.go(f"/console/login#{Sessions(KEY.encode()).token()}")
        self.page.wait_for_selector("h1:not(:text('Log in'))")

    def send(self, text: str) -> None:
        """Type a message and send it."""
        self.page.fill("#text", text)
        self.page.click("#send")

    def wait_state(self, state: str) -> None:
        """Wait until the page of a task shows a state."""
        self.page.wait_for_selector(f"#live .status .pill:text-is('{state}')")

    def shoot(self, name: str, *, whole: bool = True) -> None:
        """A picture of the whole page or of what the window shows, where pictures are wanted."""
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(SHOTS, f"{name}.png")), full_page=whole)

    def check(self) -> None:
        """Nothing of an agent has run, loaded or led anywhere, and the page is not wider than the window."""
        assert self.errors == []
        assert self.foreign == []
        assert self.page.evaluate("window.hacked") is None
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")

    def check_access(self) -> None:
        """axe-core has no finding."""
        path = HERE / "node_modules" / "axe-core" / "axe.min.js"
        if not path.exists():
            pytest.skip("axe-core is not installed (make console-tests)")
        self.page.evaluate(path.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical", "moderate")]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in serious] == []


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Opens a window of its own at the server with an address: ``visit(url, dark=True)``."""
    yield from windows(browser)


@pytest.fixture
def visit_with_viewer(browser_with_viewer: Any) -> Iterator[Callable[..., Visit]]:
    """Like `visit`, in a browser that shows PDF documents."""
    yield from windows(browser_with_viewer)


def windows(browser: Any) -> Iterator[Callable[..., Visit]]:
    contexts = []

    def open_window(
        url: str, *, dark: bool = False, phone: bool = False, scripts: bool = True, **options: Any
    ) -> Visit:
        context = browser.new_context(
            viewport=PHONE if phone else DESKTOP,
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            **options,
        )
        contexts.append(context)
        return Visit(context.new_page(), url)

    yield open_window
    for context in contexts:
        context.close()


def serve(name: str, *, workers: int = 1, **environment: str) -> Iterator[str]:
    """The address of one of the apps of `tests.browser.agents`."""
    variables = {KEY_VARIABLE: KEY, **environment}
    with gunicorn(f"tests.browser.agents:{name}", threads=32, workers=workers, environment=variables) as server:
        yield server.url


@contextmanager
def listening(app: WSGIApplication, port: int = 0) -> Iterator[str]:
    """The address of an app of this process, which goes on when it is no longer served."""
    server = make_server(HOST, port, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


@contextmanager
def served(app: A2AApp, port: int = 0) -> Iterator[str]:
    """The address of an app of this process, whose state the test can change."""
    with listening(app, port) as url:
        try:
            yield url
        finally:
            app.close(1.0)


def console_for(*arguments: str) -> Iterator[str]:
    """The address of ``a2a-sync console`` for these agents, with these options."""
    port = free_port()
    command = [sys.executable, "-m", "a2a_sync", "console", *arguments, "--port", str(port)]
    with live_server(command, f"http://{HOST}:{port}/console/login", environment={KEY_VARIABLE: KEY}):
        yield f"http://{HOST}:{port}"


@pytest.fixture(scope="module")
def story() -> Iterator[str]:
    yield from serve("app")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two workers of the storyteller over one store."""
    store = tmp_path_factory.mktemp("console") / "tasks.db"
    yield from serve("app", workers=2, A2A_TEST_STORE=f"sqlite:///{store}")


@pytest.fixture(scope="module")
def narrow() -> Iterator[str]:
    yield from serve("narrow")


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    yield from serve("hostile")


@pytest.fixture(scope="module")
def replying() -> Iterator[str]:
    """An agent that attacks the page without tasks."""
    yield from serve("replying")


@pytest.fixture(scope="module")
def hooked() -> Iterator[str]:
    """The storyteller with webhooks, which it gives up on after two tries."""
    yield from serve("hooked")


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    yield from serve("host")


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    yield from serve("secured")


@pytest.fixture(scope="module")
def rest() -> Iterator[str]:
    yield from serve("rest")


@pytest.fixture(scope="module")
def brief() -> Iterator[str]:
    """The storyteller, which cuts each stream of a page after 0.4 s."""
    yield from serve("brief")


@pytest.fixture(scope="module")
def jwt() -> Iterator[str]:
    yield from serve("jwt")


@pytest.fixture(scope="module")
def oauth() -> Iterator[str]:
    yield from serve("oauth")


@pytest.fixture(scope="module")
def openid() -> Iterator[str]:
    yield from serve("openid")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """A web site in Flask with a login of its own, and the storyteller below ``/agents/story``."""
    yield from serve("site")


def words(visit: Visit) -> str:
    """The text of the conversation."""
    text: str = visit.page.inner_text("#live .talk")
    return text


def wait_until(visit: Visit, holds: Callable[[], object]) -> None:
    """Wait until something of the browser holds that no selector can name."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        visit.page.wait_for_timeout(50)


def workers_listed(visit: Visit, url: str) -> int:
    """The workers with a lease on the page "Operate", read again after one more send to `url`.

    A worker is listed once it has work, and the browser may keep its connections to one of them.
    """
    with Client(url) as client:
        client.send("show")
    visit.page.reload()
    return visit.page.locator("#workers td:has-text('in ')").count()


def copied_commands(visit: Visit, rows: str) -> list[tuple[str, str]]:
    """The commands that the buttons of some rows copy, and those that send the first message again, by their language."""
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.click("summary:has-text('Send the first message again')")
    buttons = [("curl", "[data-copy=curl]"), ("Python", "[data-copy=python]")]
    for number in range(visit.page.locator(rows).count()):
        row = f"{rows} >> nth={number}"
        visit.page.click(f"{row} >> summary")
        buttons += [(label, f"{row} >> button:text-is('Copy as {label}')") for label in ("curl", "Python")]
    copied = []
    for label, button in buttons:
        element = visit.page.locator(button).element_handle()
        element.click()
        wait_until(visit, lambda element=element: element.inner_text() == "Copied")
        copied.append((label, visit.page.evaluate("navigator.clipboard.readText()")))
    return copied


def run_command(label: str, command: str, **variables: str) -> str:
    """What a copied command prints."""
    program = ["bash", "-c"] if label == "curl" else [sys.executable, "-c"]
    environment = {**os.environ, **variables}
    done = subprocess.run([*program, command], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, (command, done)
    return done.stdout


def task_id(visit: Visit) -> str:
    """The id of the task whose page is open."""
    found = re.search(r"/t/([^/?#]+)", visit.page.url)
    assert found, visit.page.url
    return found[1]
