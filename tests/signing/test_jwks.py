"""Key sets at URLs: which calls wait for an issuer."""

from __future__ import annotations

import json
import threading

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from a2a_sync.errors import UnavailableError
from a2a_sync.signing import CardSigner
from a2a_sync.signing.jwks import KeySet

OLD, NEW = (CardSigner(ec.generate_private_key(ec.SECP256R1()), kid=kid).public_jwk for kid in ("old", "new"))


class HangingIssuer:
    """A key set that is read at once the first time, and from then on when `answer` is called."""

    def __init__(self) -> None:
        self.keys = [OLD]
        self.readings = self.ended = 0
        self._answer = threading.Event()

    def fetch(self, url: str) -> bytes:
        self.readings += 1
        if self.readings > 1:
            self._answer.wait(10)
            self.ended += 1
        return json.dumps({"keys": self.keys}).encode()

    def answer(self) -> None:
        self._answer.set()

    def key_set(self, **options: float) -> KeySet:
        found = KeySet("https://issuer.test/keys", self.fetch, refresh=0.0, pause=0.0, failure_pause=0.0, **options)
        assert found.keys("old")
        return found


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> HangingIssuer:
    monkeypatch.setattr("a2a_sync.signing.jwks._PATIENCE", 0.01, raising=False)
    return HangingIssuer()


def test_a_call_with_a_known_key_does_not_wait_for_an_issuer_that_hangs(issuer: HangingIssuer) -> None:
    keys = issuer.key_set()

    assert [key.kid for key in keys.keys("old")] == ["old"]
    assert keys.keys("old")

    assert (issuer.readings, issuer.ended) == (2, 0)
    issuer.answer()


def test_a_call_with_an_unknown_key_is_refused_while_they_are_read(issuer: HangingIssuer) -> None:
    keys = issuer.key_set()
    assert keys.keys("old")

    with pytest.raises(UnavailableError, match="are being read"):
        keys.keys("new")
    issuer.answer()


def test_a_key_that_was_removed_is_refused_by_the_call_that_reads_the_keys_again(
    issuer: HangingIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_sync.signing.jwks._PATIENCE", 60)
    keys = issuer.key_set()
    issuer.keys = [NEW]
    issuer.answer()

    assert keys.keys("old") == ()


def test_keys_are_read_by_the_call_itself_if_they_are_too_old_to_be_used(issuer: HangingIssuer) -> None:
    keys = issuer.key_set(max_stale=0.0)
    issuer.keys = [NEW]
    issuer.answer()

    assert keys.keys("new")
    assert issuer.ended == 1


def test_keys_are_read_by_the_call_itself_if_there_is_no_thread(
    issuer: HangingIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = issuer.key_set()
    issuer.keys = [NEW]
    issuer.answer()
    monkeypatch.setattr("a2a_sync.signing.jwks.start_thread", lambda *given: None)

    assert keys.keys("old") == ()
