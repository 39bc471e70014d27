"""The canonical bytes that the signature of a card covers (spec 8.4.1).

Implementations differ in empty members: the specification keeps the required ones, the official SDKs remove all of
them. For 0.3 no form is specified. A card therefore has up to two forms. For 1.0 they are equal if no member is empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from a2a_sync import jsontext
from a2a_sync.card import AgentCard
from a2a_sync.codec import DecodeError, by_version

#: The largest integer that is exact as a double, which is the type of all JSON numbers of the protocol.
_MAX_EXACT_INTEGER = 2**53 - 1
#: Default values of members of a 0.3 card. The official SDK does not sign members that have these values.
_DEFAULTS = {"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}


def version_of(document: Mapping[str, Any]) -> str:
    """The version whose codec reads the JSON of a card.

    Cards for both versions are read as 1.0, which has more members.
    """
    return "1.0" if "supportedInterfaces" in document else "0.3"


def document_of(form: bytes, version: str) -> dict[str, Any]:
    """The JSON of the card in `form`, one of `canonical_forms`: exactly the members that a signature over it covers."""
    document: dict[str, Any] = jsontext.loads(form)
    schemes = document.get("securitySchemes")
    if version == "0.3" and isinstance(schemes, dict):
        document["securitySchemes"] = {name: _with_type(scheme) for name, scheme in schemes.items()}
    return document


def canonical_forms(document: Mapping[str, Any], version: str) -> tuple[bytes, ...]:
    """The forms that signatures of this card may cover: that of the specification and, if different, that of the SDKs.

    For a card of 1.0 they hold only members that 1.0 defines.

    Raises:
        ValueError: `document` is not a card, or holds a value that has no canonical form.
    """
    unsigned = {name: value for name, value in document.items() if name != "signatures"}
    try:
        forms = _forms_of_1_0(unsigned) if version == "1.0" else _forms_of_0_3(unsigned)
        return tuple(dict.fromkeys(forms))
    except DecodeError as error:
        raise ValueError(f"the card cannot be read: {error}") from None
    except RecursionError:
        raise ValueError("the card is nested too deeply") from None
    except OverflowError:
        raise ValueError("the card holds a number that is too large") from None


def _forms_of_1_0(unsigned: dict[str, Any]) -> tuple[bytes, ...]:
    codec = by_version("1.0")
    # Decoded and encoded again, so that members are present or absent by the presence rules of the specification.
    known = _large_integers_as_floats(codec.dump(codec.load(AgentCard, unsigned, strict=False)))
    return _jcs(known), _jcs(_without_empty(known) or {})


def _forms_of_0_3(unsigned: dict[str, Any]) -> tuple[bytes, ...]:
    short = {name: value for name, value in unsigned.items() if _DEFAULTS.get(name) != value}
    schemes = short.get("securitySchemes")
    if isinstance(schemes, dict):
        short["securitySchemes"] = {name: _without_type(scheme) for name, scheme in schemes.items()}
    return _jcs(_large_integers_as_floats(unsigned)), json.dumps(
        _without_empty(short) or {}, separators=(",", ":"), sort_keys=True
    ).encode()


def _without_type(scheme: Any) -> Any:
    return {name: value for name, value in scheme.items() if name != "type"} if isinstance(scheme, dict) else scheme


#: The type of a 0.3 security scheme by a member that only this type has. Schemes for client certificates have no such
#: member.
_TYPES = {"scheme": "http", "flows": "oauth2", "openIdConnectUrl": "openIdConnect", "name": "apiKey", "in": "apiKey"}


def _with_type(scheme: Any) -> Any:
    if not isinstance(scheme, dict) or "type" in scheme:
        return scheme
    return {**scheme, "type": next((_TYPES[name] for name in _TYPES if name in scheme), "mutualTLS")}


def _jcs(value: Any) -> bytes:
    """`value` in the canonical form of RFC 8785."""
    import rfc8785

    written: bytes = rfc8785.dumps(value)
    return written


def _map_scalars(value: Any, scalar: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _map_scalars(item, scalar) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_scalars(item, scalar) for item in value]
    return scalar(value)


def _large_integers_as_floats(value: Any) -> Any:
    return _map_scalars(value, lambda one: float(one) if type(one) is int and abs(one) > _MAX_EXACT_INTEGER else one)


def _without_empty(value: Any) -> Any:
    """`value` without empty strings, lists and objects; None if nothing is left."""
    if isinstance(value, dict):
        return {name: left for name, item in value.items() if (left := _without_empty(item)) is not None} or None
    if isinstance(value, list):
        return [left for item in value if (left := _without_empty(item)) is not None] or None
    return None if value == "" else value
