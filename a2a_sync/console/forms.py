"""The forms for the credentials of a remote agent: one for each security scheme of its card, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from a2a_sync.card import (
    AgentCard,
    APIKeySecurityScheme,
    ClientCredentialsOAuthFlow,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
)
from a2a_sync.client import ApiKey, ClientCredentials


@dataclass(frozen=True, slots=True)
class CredentialForm:
    """A form: the scheme that it is for, its fields by name with their labels, and what happens with them."""

    scheme: str
    fields: Mapping[str, str]
    note: str = ""


# Labels of fields, not secrets.
_TOKEN = {"secret": "Token"}  # nosec B105
_PASSWORD = {"user": "User", "secret": "Password"}  # nosec B105
_CLIENT = {"token_url": "Token URL", "user": "Client id", "secret": "Client secret"}  # nosec B105

#: Forms of a page, and the characters of a scheme's name, which its form sends back.
_MAX_FORMS, _MAX_NAME = 50, 200

CERTIFICATE_FORM = CredentialForm(
    "Client certificate", {}, "Renew it in the file of --cert, or start the console with --cert FILE."
)


def credential_forms(card: AgentCard) -> list[CredentialForm]:
    """The forms for the schemes that `card` declares, as many as a page shows; for none, one for a token and one for a password."""
    schemes = ((name, scheme) for name, scheme in card.security_schemes.items() if len(name) <= _MAX_NAME)
    forms = list(islice((form for name, scheme in schemes for form in _forms(name, scheme)), _MAX_FORMS))
    return forms or [CredentialForm("", _TOKEN, "Sent as a bearer token."), CredentialForm("", _PASSWORD)]


def _forms(name: str, scheme: Any) -> list[CredentialForm]:
    if isinstance(scheme, APIKeySecurityScheme):
        note = f"Sent as the {scheme.location} {scheme.name}."
        return [CredentialForm(name, {"secret": "Key"}, note)]  # nosec B105
    if isinstance(scheme, HTTPAuthSecurityScheme) and scheme.scheme.lower() == "basic":
        return [CredentialForm(name, _PASSWORD)]
    if isinstance(scheme, MutualTlsSecurityScheme):
        return [replace(CERTIFICATE_FORM, scheme=name)]
    token = CredentialForm(name, _TOKEN, "Sent as a bearer token.")
    if isinstance(scheme, OAuth2SecurityScheme) and isinstance(scheme.flow, ClientCredentialsOAuthFlow):
        note = f"The card names {scheme.flow.token_url}; the secret is sent to the URL that you enter."
        return [token, CredentialForm(name, _CLIENT, note)]
    return [token]


def credentials_of(form: Mapping[str, str], card: AgentCard, known: Any) -> Any:
    """The argument ``auth`` of a client with the credentials of a filled form, added to those of other schemes.

    Raises:
        ValueError: they cannot be sent, or the form is of no scheme of the card.
    """
    name, user, secret = (form.get(field, "") for field in ("scheme", "user", "secret"))
    if not secret or not secret.isascii() or not secret.isprintable():
        raise ValueError("credentials are printable ASCII characters")
    if name and name not in card.security_schemes:
        raise ValueError("the card of the agent has no such security scheme; load the page again")
    made: Any = secret
    if form.get("token_url"):
        made = ClientCredentials(form["token_url"], user, secret)
    elif user:
        made = (user, secret)
    elif isinstance(card.security_schemes.get(name), APIKeySecurityScheme):
        made = ApiKey(secret)
    if not name:
        return made
    return {**(known if isinstance(known, Mapping) else {}), name: made}
