"""A request as commands that make it again: with curl, and in Python. They read credentials from the environment."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote

from a2a_sync import urls
from a2a_sync.bindings import http_json
from a2a_sync.card import (
    AgentCard,
    AgentInterface,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
)
from a2a_sync.client.cards import InterfaceFilter, protocol_version_of, usable_interfaces
from a2a_sync.client.credentials import KeyLocation
from a2a_sync.codec import by_version
from a2a_sync.console.files import file_name
from a2a_sync.errors import InvalidParamsError, UnsafeURLError, VersionNotSupportedError
from a2a_sync.operations import GET_TASK, SEND_MESSAGE, AnyOperation
from a2a_sync.sizes import message_size, parts_size
from a2a_sync.types import FilePart, GetTaskRequest, Message, Part, Role, SendMessageRequest, TextPart

#: A longer argument of a command is refused by Linux, and a longer program is not shown.
_MAX_ARGUMENT = 100_000
#: What carries more bytes is longer in any case, and nothing is made of it: escaped it may be six times as long.
_MAX_BYTES = 4 * _MAX_ARGUMENT
#: Bytes of a file that a program contains; it reads larger ones from a file.
_MAX_INLINE = 20_000
_VARIABLE, _CERTIFICATE = "A2A_SYNC_AUTH", "A2A_SYNC_CERT"


class Credential(NamedTuple):
    """A credential of a request: its scheme in the card, where it goes under which name, and the variable that has it.

    ``place`` is header, query, cookie, basic or certificate; ``prefix`` precedes the credential.
    """

    scheme: str
    place: str
    name: str
    prefix: str = ""
    variable: str = _VARIABLE

    @property
    def curl(self) -> str:
        """The option of curl. A card chooses the name, so the shell must find nothing in it."""
        option, fixed = {
            "header": ("-H", f"{self.name}: {self.prefix}"),
            "query": ("--url-query", f"{quote(self.name)}="),
            "cookie": ("-b", f"{self.name}="),
            "basic": ("-u", ""),
            "certificate": ("-E", ""),
        }[self.place]
        return f'{option} {shlex.quote(fixed) if fixed else ""}"${self.variable}"'

    @property
    def requests(self) -> str:
        """The line that adds it to the arguments of `requests.request`."""
        if self.place in ("basic", "certificate"):
            return f"request[{'auth' if self.place == 'basic' else 'cert'!r}] = {self.value}"
        argument = {"header": "headers", "query": "params", "cookie": "cookies"}[self.place]
        prefix = f"{self.prefix!r} + " if self.prefix else ""
        return f"request.setdefault({argument!r}, {{}})[{self.name!r}] = {prefix}{self.value}"

    @property
    def value(self) -> str:
        """It as Python."""
        read = f"os.environ[{self.variable!r}]"
        return f"tuple({read}.split(':', 1))" if self.place == "basic" else read


def credentials_for(card: AgentCard, holds: Callable[[Credential], bool]) -> list[Credential]:
    """The credentials that `card` requires: of its alternatives the first whose credentials are all held, else the first.

    A card that names none gets a bearer token, or user and password, as `Client` sends them.
    """
    alternatives = [[*one.schemes] for one in card.security_requirements] or [[name] for name in card.security_schemes]
    read = [[_credential(name, card.security_schemes.get(name)) for name in names] for names in alternatives]
    usable = [[one for one in each if one is not None] for each in read if each and None not in each]
    usable = usable or [[_bearer("")], [_basic("")]]
    found = next((each for each in usable if all(map(holds, each))), usable[0])
    return [
        one._replace(variable=f"{one.variable}_{place}") if place > 1 and one.place != "certificate" else one
        for place, one in enumerate(found, 1)
    ]


def _bearer(scheme: str) -> Credential:
    return Credential(scheme, "header", "Authorization", "Bearer ")


def _basic(scheme: str) -> Credential:
    return Credential(scheme, "basic", "Authorization", "Basic ")


def _credential(name: str, scheme: Any) -> Credential | None:
    """The credential for a scheme; None for one that no request can carry."""
    if isinstance(scheme, MutualTlsSecurityScheme):
        return Credential(name, "certificate", "", variable=_CERTIFICATE)
    try:
        if isinstance(scheme, APIKeySecurityScheme):
            where = KeyLocation(scheme.location, scheme.name)
            return Credential(name, where.location, where.name)
        if isinstance(scheme, HTTPAuthSecurityScheme) and scheme.scheme.lower() != "bearer":
            if scheme.scheme.lower() == "basic":
                return _basic(name)
            KeyLocation("header", scheme.scheme)
            return Credential(name, "header", "Authorization", f"{scheme.scheme} ")
    except ValueError:
        return None
    return _bearer(name)


# -- requests -----------------------------------------------------------------------------------------------------------


class Commands:
    """The commands that call an agent.

    Parameters:
        card: of the agent.
        address: the URL that its clients are made with.
        credentials: those that its requests have.
        home: the origin that may receive them, by a URL; commands to other origins, which the card of a remote agent may name,
            have none. ``""``: every interface may.
    """

    def __init__(self, card: AgentCard, address: str, credentials: list[Credential], home: str = "") -> None:
        self._address, self._credentials = address, credentials
        self._interface = _called(card, address)
        #: Commands that call the interface have credentials. A client checks its origin itself.
        self._at_home = not home or (
            self._interface is not None and urls.may_send_credentials(home, self._interface.url)
        )

    def of_task(self, task_id: str) -> dict[str, Any]:
        """What the page of a task makes the commands of its entries from: how to read the task, and how to send a message.

        ``credentials`` are for those requests if they are ``at_home``, and for frames that are. ``instead`` says why there are no
        commands.
        """
        read = send = None
        instead = "" if task_id else "The agent has not named a task yet."
        if self._interface is None:
            get = " ".join(map(shlex.quote, ("a2a-sync", "get", self._address, task_id or "TASK")))
            instead = f"The agent has no interface that curl can call. The command line reads the task: {get}"
            if not task_id.isprintable():
                # Quoting does not hold what edits the line of a terminal.
                instead = "No command can name this task: its id has control characters."
        elif task_id:
            try:
                read = _request(self._interface, GET_TASK, GetTaskRequest(id=task_id))
            except InvalidParamsError as error:
                instead = f"No command can name this task: {error.message}"
            # The page has messages as protocol 1.0 writes them.
            if self._interface.protocol_version == "1.0":
                send = self._sending(Message(role=Role.USER, parts=(TextPart(""),)))
        credentials = [[one.curl, one.requests] for one in self._credentials]
        return {
            "read": read,
            "send": send,
            "credentials": credentials,
            "at_home": self._at_home,
            "instead": instead,
        }

    def _sending(self, message: Message) -> dict[str, Any] | None:
        if self._interface is None:
            return None
        fresh = replace(message, task_id="", context_id="")
        return _request(self._interface, SEND_MESSAGE, SendMessageRequest(message=fresh))

    def curl(self, message: Message) -> str:
        """The command that sends `message` again, to a task of its own; ``""`` where there is none."""
        if message_size(message) > _MAX_BYTES:
            return ""
        request = self._sending(message)
        if request is None or len(body := json.dumps(request["json"])) > _MAX_ARGUMENT:
            return ""
        lines = [f"curl -sS {shlex.quote(request['url'])}"]
        lines += [f"  -H {shlex.quote(f'{name}: {value}')}" for name, value in request["headers"].items()]
        lines += [f"  {one.curl}" for one in self._credentials if self._at_home]
        return " \\\n".join([*lines, f"  -d {shlex.quote(body)}"])

    def python(self, message: Message) -> str:
        """The program that sends the parts of `message` with the client; ``""`` where that would be too long."""
        if parts_size([part for part in message.parts if not _is_large_file(part)]) > _MAX_BYTES:
            return ""
        parts = [_code(part) for part in message.parts]
        sent = parts[0] if len(parts) == 1 else "\n    ".join(["[", *(f"{part}," for part in parts)]) + "\n]"
        call = f"client = Client({self._address!r}{self._auth()})\nprint(client.send({sent}).text)"
        lines = [f"import {name}" for name in ("base64", "os") if f"{name}." in call]
        lines += ["from pathlib import Path"] if "Path(" in call else []
        names = [name for name in ("Client", "DataPart", "FilePart", "TextPart") if f"{name}(" in call]
        text = "\n".join([*lines, *([""] if lines else []), f"from a2a_sync import {', '.join(names)}", "", call])
        return text if len(text) <= _MAX_ARGUMENT else ""

    def _auth(self) -> str:
        """The arguments of a client."""
        if self._credentials and not self._credentials[0].scheme:
            return f", auth={self._credentials[0].value}"
        certificates = [one for one in self._credentials if one.place == "certificate"]
        # The mapping only says that there is a certificate.
        pairs = [f"{one.scheme!r}: {one.value if one not in certificates else repr('')}" for one in self._credentials]
        auth = f", auth={{{', '.join(pairs)}}}" if pairs else ""
        return auth + "".join(f", cert={one.value}" for one in certificates)


def _called(card: AgentCard, address: str) -> AgentInterface | None:
    """The interface that a client of `address` calls, with an absolute URL and the version that the client speaks.

    Where that is gRPC, the next one that curl can call; None where there is none.
    """
    try:
        offered = usable_interfaces(card, InterfaceFilter())
    except VersionNotSupportedError:
        return None
    for one in offered:
        with suppress(UnsafeURLError):
            if one.protocol_binding.upper() in ("JSONRPC", "HTTP+JSON"):
                return replace(one, url=urls.join(address, one.url), protocol_version=protocol_version_of(one))
    return None


def _request(interface: AgentInterface, operation: AnyOperation, request: Any) -> dict[str, Any]:
    """A request as the arguments of `requests.request`."""
    binding, version = interface.protocol_binding.upper(), interface.protocol_version
    codec = by_version(version, binding)
    params = codec.dump_request(operation, request)
    headers = {"A2A-Version": version, "Content-Type": "application/json"}
    if binding == "JSONRPC":
        body = {"jsonrpc": "2.0", "id": 1, "method": codec.method(operation), "params": params}
        return {"method": "POST", "url": interface.url, "headers": headers, "json": body}
    verb, path, query, text = http_json.write_request(operation, params, version)
    base = urls.parse(interface.url)
    url = str(base._replace(path=base.path.rstrip("/") + path, query="&".join(filter(None, (base.query, query)))))
    if text is None:
        return {"method": verb, "url": url, "headers": {"A2A-Version": version}}
    headers["Content-Type"] = http_json.media_type(version)
    return {"method": verb, "url": url, "headers": headers, "json": json.loads(text)}


def _is_large_file(part: Part) -> bool:
    return isinstance(part, FilePart) and part.raw is not None and len(part.raw) > _MAX_INLINE


def _code(part: Part) -> str:
    """A part as Python. A text may look like code, but only adds an import that is not needed."""
    more = "".join(
        f", {name}={value!r}" for name in ("filename", "media_type", "metadata") if (value := getattr(part, name))
    )
    if isinstance(part, TextPart):
        return f"TextPart({part.text!r}{more})" if more else repr(part.text)
    if not isinstance(part, FilePart):
        return f"DataPart({part.data!r}{more})"
    if part.raw is None:
        return f"FilePart(url={part.url!r}{more})"
    if _is_large_file(part):
        return f"FilePart(raw=Path({file_name(part)!r}).read_bytes(){more})"
    return f"FilePart(raw=base64.b64decode({base64.b64encode(part.raw).decode()!r}){more})"
