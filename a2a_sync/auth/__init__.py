"""Who is calling: credentials, checked from what the card declares (spec 4.5, 7).

`policy` has what all ways to authenticate share, and how they are combined; `schemes` and `tokens` have the ways themselves;
`admission` is an app's door. The names for users are those of `a2a_sync`. An app without ``auth=`` loads none but `policy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from a2a_sync.auth.policy import Auth, Scopes
from a2a_sync.telemetry.logs import get_logger

if TYPE_CHECKING:
    from a2a_sync.auth.admission import Admission
    from a2a_sync.card import AgentCard

logger = get_logger(__name__)


def admission_of(auth: Auth | None, scopes: Scopes | None, card: AgentCard) -> Admission | None:
    """The door that ``A2AApp(auth=…, required_scopes=…)`` asks for; None: it stands open. `card` is what the app's author wrote.

    Raises:
        TypeError, ValueError: nothing can be made of these.
    """
    if auth is None:
        if scopes:
            raise ValueError("scopes= needs auth=: nobody's scopes are known without it")
        if card.security_requirements:
            logger.warning(
                "the card of %r asks for credentials, and this app looks at none: give it auth=, unless what is in front of it does",
                card.name,
            )
        return None
    from a2a_sync.auth.admission import Admission

    return Admission(auth, scopes)
