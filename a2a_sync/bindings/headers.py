"""The protocol's own HTTP headers, for both sides of the wire: versions and extensions (spec 3.6, 3.2.6, 14.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from a2a_sync.codec.fields import shown
from a2a_sync.errors import VersionNotSupportedError

#: The protocol version of a request; a query parameter of this name has the same meaning.
VERSION = "A2A-Version"
#: The id of a push notification (the same when it is posted again), the token of its receiver, and its signature.
NOTIFICATION_ID = "X-A2A-Notification-Id"
NOTIFICATION_TOKEN = "X-A2A-Notification-Token"  # the name of a header  # nosec B105
NOTIFICATION_SIGNATURE = "X-A2A-Notification-Signature"
#: The version of a request that names none (spec 3.6.2).
UNNAMED = "0.3"
#: How many versions of a list are read, by a loop in Python; what follows them counts as one.
_MAX_VERSIONS = 16


def major_minor(version: str) -> str:
    """A version without its patch part, which has no meaning (spec 3.6)."""
    return ".".join(version.strip().split(".", 2)[:2])


def named_versions(value: str) -> set[str]:
    """The versions that a header names: one, if all is well. A header that was sent twice arrives as a list."""
    return {major_minor(part) for part in value.split(",", _MAX_VERSIONS) if part.strip()}


def only_version(value: str) -> str:
    """The one version that a header value names; ``""`` where it names several."""
    versions = named_versions(value) or {UNNAMED}
    return versions.pop() if len(versions) == 1 else ""


def wrong_version(what: str, named: str, wanted: str, served: Iterable[str]) -> VersionNotSupportedError:
    """The error of a request that calls `what`, which belongs to another version than the `named` one (spec 3.6.2)."""
    versions = ", ".join(served)
    asked = f"version {shown(named)}" if named else "no version"
    return VersionNotSupportedError(
        f"{what}, and the request names {asked}; send the header 'A2A-Version: {wanted}' (served: {versions})",
        metadata={"supportedVersions": versions},
    )


def extension_headers(version: str) -> tuple[str, ...]:
    """The headers in which a request of this protocol version names extensions: its own name first.

    The name lost its prefix with 1.0; agents of 0.3 may be built on either.
    """
    return ("X-A2A-Extensions", "A2A-Extensions") if version == "0.3" else ("A2A-Extensions",)


def named_extensions(headers: Mapping[str, str], version: str) -> tuple[str, ...]:
    """The extensions that a request names, as URIs. `headers` have lower-case names."""
    # Most requests name none, and every request comes through here.
    if "a2a-extensions" not in headers and "x-a2a-extensions" not in headers:
        return ()
    values = (headers.get(name.lower(), "") for name in extension_headers(version))
    return tuple(dict.fromkeys(uri.strip() for value in values for uri in value.split(",") if uri.strip()))
