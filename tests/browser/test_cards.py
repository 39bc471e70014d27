"""The card of an agent as its page shows it: how it is signed, and each rule that it breaks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from cryptography.hazmat.primitives.asymmetric import ec

from a2a_sync import A2AApp
from a2a_sync.signing import CardSigner
from tests.browser.agents import Story
from tests.browser.conftest import Visit, console_for, listening, served
from tests.client.peer import Asked, Line, peer
from tests.live import HOST, free_port

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]
TRUSTED = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="of-the-house")
STRANGER = CardSigner(ec.generate_private_key(ec.SECP256R1()), kid="of-the-house")
#: A card without a description, and with a skill without an id and tags.
BROKEN = {
    "name": "careless",
    "version": "1",
    "supportedInterfaces": [{"url": "http://127.0.0.1:9/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "documentationUrl": "javascript:window.hacked=1",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"name": "Guess", "description": "Guesses"}],
}


@contextmanager
def serving(signer: CardSigner) -> Iterator[str]:
    """The storyteller, whose card is signed."""
    port = free_port()
    with served(A2AApp(Story(), url=f"http://{HOST}:{port}/", card_signer=signer, console=True), port) as url:
        yield url


@pytest.fixture(scope="module")
def signed() -> Iterator[str]:
    with serving(TRUSTED) as url:
        yield url


def pills(window: Visit) -> dict[str, str]:
    """The pills of a card: their text, and their colour."""
    shown = window.page.locator(".lead + .chips .pill").all()
    return {one.inner_text(): (one.get_attribute("class") or "").split()[-1] for one in shown}


def test_the_page_of_a_signed_card_names_the_key_and_whether_a_trusted_one_has_made_it(
    visit: Window, signed: str, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [TRUSTED.public_jwk]}))
    with serving(STRANGER) as other:
        for address in console_for(signed, other, "--trust", str(keys)):
            window = visit(address)
            window.log_in()
            assert pills(window) == {
                "card is valid": "good",
                "signed with of-the-house (ES256): signature is valid": "good",
            }
            window.check_access()
            window.shoot("signed-desktop")
            window.page.click("nav li:nth-child(2) a")
            ((text, tone),) = [one for one in pills(window).items() if one[0].startswith("signed with")]
            assert "signature is not valid" in text
            assert tone == "bad"
            window.page.click("summary:text-is('Card as JSON')")
            assert '"signatures"' in window.page.inner_text("details.card pre")
            window.check()
            window.check_access()


def test_without_trusted_keys_a_signature_is_shown_as_not_verified(visit: Window, signed: str, story: str) -> None:
    for address in console_for(signed, story):
        window = visit(address)
        window.log_in()
        chips = window.page.locator(".lead + .chips")
        assert "not verified, as no keys are trusted (--trust)" in chips.inner_text()
        assert list(pills(window)) == ["card is valid"]
        window.page.click("nav li:nth-child(2) a")
        assert "not signed" in chips.inner_text()
        window.check()


def test_each_rule_that_a_card_breaks_is_on_its_page(visit: Window) -> None:
    def serve_card(asked: Asked, line: Line) -> None:
        line.answer(BROKEN)

    with peer(serve_card) as agent:
        for address in console_for(agent.url):
            for kind in ("desktop", "phone"):
                window = visit(address, phone=kind == "phone")
                window.log_in()
                assert window.page.inner_text("h1") == "careless"
                assert pills(window) == {"the card breaks 3 rules": "bad"}
                rules = window.page.locator("ul.note li").all_inner_texts()
                assert [rule.partition(":")[0] for rule in rules] == ["description", "skills[0].id", "skills[0].tags"]
                window.check()
                window.check_access()
                window.shoot(f"rules-{kind}")


def test_another_origin_that_a_card_names_is_called_only_after_a_click_and_without_credentials(visit: Window) -> None:
    called: list[str | None] = []
    port = free_port()
    with A2AApp(Story(), url=f"http://{HOST}:{port}/") as agent:

        def recording(environ: Any, start_response: Any) -> Any:
            called.append(environ.get("HTTP_AUTHORIZATION"))
            return agent(environ, start_response)

        with listening(agent) as home, listening(recording, port):
            for address in console_for(home, "--auth", "user:secret"):
                window = visit(address)
                window.log_in()
                assert window.page.inner_text("h1") == "storyteller"
                assert f"http://{HOST}:{port}/" in window.page.inner_text("main")
                window.page.click("nav >> text=Tasks")
                window.page.wait_for_selector("h1:text-is('Tasks')")
                assert called == []
                window.go("/console/")
                window.send("shirt")
                window.page.click(".option:text-is('large')")
                window.wait_state("completed")
                assert len(called) > 1
                assert set(called) == {None}
                window.check()
