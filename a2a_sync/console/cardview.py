"""What the page of an agent shows of its card beside the texts: broken rules, its signature, and security schemes in words."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from a2a_sync.card import AgentCard, validate_card
from a2a_sync.console.markup import clean, cut
from a2a_sync.errors import FieldViolation, InvalidCardError

if TYPE_CHECKING:
    from a2a_sync.console.remote import RemoteAgent

#: Characters of the name of an agent, which each page has several times.
_MAX_NAME = 200


def card_name(card: AgentCard) -> str:
    """The name of an agent as pages show it."""
    return cut(clean(card.name), _MAX_NAME)


def card_violations(card: AgentCard) -> tuple[FieldViolation, ...]:
    """The rules that a card breaks."""
    try:
        validate_card(card)
    except InvalidCardError as error:
        return error.violations
    return ()


def signature_state(card: AgentCard, remote: RemoteAgent | None) -> tuple[str, str]:
    """How the card is signed, in words, and its colour.

    The card of an app of this process is signed by the app itself. Others are verified if keys are trusted.
    """
    if not card.signatures:
        return "not signed", ""
    keys = ", ".join(dict.fromkeys(_key(one.protected) for one in card.signatures))
    checked = remote.signature() if remote is not None else ""
    if checked:
        return f"signed with {keys}: {checked}", "good" if checked == "signature is valid" else "bad"
    return f"signed with {keys}" + (
        "; not verified, as no keys are trusted (--trust)" if remote is not None else ""
    ), ""


def _key(protected: str) -> str:
    """The key id and the algorithm in the protected header of a signature."""
    try:
        header = json.loads(base64.urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))
        return f"{header['kid']} ({header['alg']})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "an unreadable header"


def describe_scheme(scheme: Any) -> str:
    """A security scheme in a few words."""
    words = type(scheme).__name__.removesuffix("SecurityScheme").removesuffix("Auth")
    details = [getattr(scheme, name, "") for name in ("scheme", "location", "name", "open_id_connect_url")]
    return " ".join([words, *(str(one) for one in details if one)])
