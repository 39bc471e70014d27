"""Protocol 1.0 in JSON: its names, its members, its methods (spec 4, 5.5; a2a.proto).

Each type has one description for reading and writing. The module does not interpret requests.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from a2a_sync import card as c
from a2a_sync import types as t
from a2a_sync.codec import members as m
from a2a_sync.codec.base import Codec
from a2a_sync.codec.fields import (
    BASE64,
    FLAG,
    INT32,
    STRUCT,
    TEXT,
    TIMESTAMP,
    Invalid,
    Kind,
    Scalar,
    load_at,
    many,
    mapping,
    names,
)
from a2a_sync.codec.records import Member, OneOf, Record, optional, renamed, required
from a2a_sync.operations import OPERATIONS, AnyOperation

# The names and the order of the members are the proto's: a member's place is its number.
STATE_NAMES: Mapping[enum.Enum, str] = {state: f"TASK_STATE_{state.name}" for state in t.TaskState}
ROLE_NAMES: Mapping[enum.Enum, str] = {role: f"ROLE_{role.name}" for role in t.Role}
TASK_STATE = names(STATE_NAMES, t.TaskState.UNSPECIFIED)
ROLE = names(ROLE_NAMES, t.Role.UNSPECIFIED)

TENANT = Member("tenant", TEXT)
HISTORY_LENGTH = optional("history_length", INT32)

# -- parts (spec 4.1.6) -------------------------------------------------------------------------------------------------

_PART_MEMBERS = Record(t.TextPart, m.METADATA, Member("filename", TEXT), Member("media_type", TEXT))
_CONTENTS: dict[str, tuple[type, Kind]] = {
    "text": (t.TextPart, TEXT),
    "raw": (t.FilePart, BASE64),
    "url": (t.FilePart, TEXT),
}


def _load_part(value: Any, strict: bool) -> t.Part:
    value = STRUCT.load(value, strict)
    if len(value) == 1 and type(value.get("text")) is str:
        # Nearly all parts; the choice below is a quarter of the reading of a streamed chunk.
        return t.TextPart(value["text"])
    chosen = [name for name in _CONTENTS if value.get(name) is not None]
    # null is a value of `data`, and "not set" beside another content.
    if "data" in value and (value["data"] is not None or not chosen):
        chosen.append("data")
    if len(chosen) > 1:
        raise Invalid(f"has both {chosen[0]} and {chosen[1]}; a part has one content")
    found = _PART_MEMBERS.found(value, strict) if len(value) > 1 else {}
    if not chosen:
        if strict:
            raise Invalid("needs one of text, raw, url, data")
        return t.TextPart("", **found)
    name = chosen[0]
    if name == "data":
        return t.DataPart(value["data"], **found)
    cls, kind = _CONTENTS[name]
    found[name] = load_at(name, kind.load, value[name], strict)
    part: t.Part = cls(**found)
    return part


def _dump_part(part: t.Part) -> dict[str, Any]:
    content: dict[str, Any]
    if isinstance(part, t.TextPart):
        content = {"text": part.text}
    elif isinstance(part, t.DataPart):
        content = {"data": part.data}
    elif part.raw is not None:
        content = {"raw": BASE64.dump(part.raw)}  # type: ignore[misc]
    else:
        content = {"url": part.url}
    if part.metadata or part.filename or part.media_type:
        content.update(_PART_MEMBERS.dump(part))
    return content


PART = Scalar(_load_part, _dump_part)
PARTS = many(PART)

# -- tasks and messages (spec 4.1) --------------------------------------------------------------------------------------

MESSAGE = Record(t.Message, *m.message(ROLE, PARTS, m.TEXTS))
ARTIFACT = Record(t.Artifact, *m.artifact(PARTS))
TASK_STATUS = Record(t.TaskStatus, *m.status(TASK_STATE, MESSAGE))
TASK = Record(t.Task, *m.task(TASK_STATUS, ARTIFACT, MESSAGE, Member("context_id", TEXT)))

# -- events (spec 4.2) --------------------------------------------------------------------------------------------------

STATUS_UPDATE = Record(t.TaskStatusUpdateEvent, *m.status_update(TASK_STATUS))
ARTIFACT_UPDATE = Record(t.TaskArtifactUpdateEvent, *m.artifact_update(ARTIFACT))
SEND_MESSAGE_RESPONSE = OneOf(task=TASK, message=MESSAGE)
STREAM_RESPONSE = OneOf(task=TASK, message=MESSAGE, status_update=STATUS_UPDATE, artifact_update=ARTIFACT_UPDATE)

# -- push configuration (spec 4.3) --------------------------------------------------------------------------------------

AUTHENTICATION_INFO = Record(t.AuthenticationInfo, required("scheme", TEXT), Member("credentials", TEXT))
PUSH_CONFIG = Record(
    t.TaskPushNotificationConfig,
    TENANT,
    Member("id", TEXT),
    Member("task_id", TEXT),
    required("url", TEXT),
    Member("token", TEXT),
    Member("authentication", AUTHENTICATION_INFO),
    # Not part of the protocol; written only if there is a problem.
    m.METADATA,
)

# -- requests and responses (spec 3.1, 3.2) -----------------------------------------------------------------------------

SEND_MESSAGE_CONFIGURATION = Record(
    t.SendMessageConfiguration,
    Member("accepted_output_modes", m.TEXTS),
    Member("task_push_notification_config", PUSH_CONFIG),
    HISTORY_LENGTH,
    Member("return_immediately", FLAG),
)
SEND_MESSAGE_REQUEST = Record(t.SendMessageRequest, TENANT, *m.send_request(MESSAGE, SEND_MESSAGE_CONFIGURATION))

# -- security (spec 4.5) ------------------------------------------------------------------------------------------------

OAUTH_FLOW = OneOf(
    authorization_code=Record(
        c.AuthorizationCodeOAuthFlow,
        m.AUTHORIZATION_URL,
        m.TOKEN_URL,
        m.REFRESH_URL,
        m.SCOPES,
        Member("pkce_required", FLAG),
    ),
    client_credentials=Record(c.ClientCredentialsOAuthFlow, m.TOKEN_URL, m.REFRESH_URL, m.SCOPES),
    device_code=Record(
        c.DeviceCodeOAuthFlow, required("device_authorization_url", TEXT), m.TOKEN_URL, m.REFRESH_URL, m.SCOPES
    ),
    implicit=Record(
        c.ImplicitOAuthFlow, Member("authorization_url", TEXT), m.REFRESH_URL, Member("scopes", mapping(TEXT))
    ),
    password=Record(c.PasswordOAuthFlow, Member("token_url", TEXT), m.REFRESH_URL, Member("scopes", mapping(TEXT))),
)
SECURITY_SCHEME = OneOf(
    api_key_security_scheme=Record(c.APIKeySecurityScheme, *m.api_key_scheme()),
    http_auth_security_scheme=Record(c.HTTPAuthSecurityScheme, *m.HTTP_SCHEME),
    oauth2_security_scheme=Record(c.OAuth2SecurityScheme, *m.oauth2_scheme(OAUTH_FLOW)),
    open_id_connect_security_scheme=Record(c.OpenIdConnectSecurityScheme, *m.OPEN_ID_SCHEME),
    mtls_security_scheme=Record(c.MutualTlsSecurityScheme, m.DESCRIPTION),
)


def _load_string_list(value: Any, strict: bool) -> tuple[str, ...]:
    texts = STRUCT.load(value, strict).get("list")
    return () if texts is None else load_at("list", m.TEXTS.load, texts, strict)


def _dump_string_list(value: Sequence[str]) -> dict[str, Any]:
    return {"list": list(value)} if value else {}


SECURITY_REQUIREMENT = Record(
    c.SecurityRequirement, Member("schemes", mapping(Scalar(_load_string_list, _dump_string_list)))
)
SECURITY_REQUIREMENTS = Member("security_requirements", many(SECURITY_REQUIREMENT))

# -- the agent card (spec 4.4) ------------------------------------------------------------------------------------------

AGENT_INTERFACE = Record(
    c.AgentInterface,
    required("url", TEXT),
    required("protocol_binding", TEXT),
    TENANT,
    required("protocol_version", TEXT),
)
AGENT_CAPABILITIES = Record(
    c.AgentCapabilities,
    optional("streaming", FLAG),
    optional("push_notifications", FLAG),
    Member("extensions", many(m.AGENT_EXTENSION)),
    optional("extended_agent_card", FLAG),
)
AGENT_SKILL = Record(c.AgentSkill, *m.skill(SECURITY_REQUIREMENTS))
_INTERFACES = required("supported_interfaces", many(AGENT_INTERFACE))
AGENT_CARD = Record(
    c.AgentCard, *m.card(AGENT_CAPABILITIES, SECURITY_SCHEME, SECURITY_REQUIREMENTS, AGENT_SKILL, _INTERFACES)
)

_RECORDS = (
    MESSAGE,
    ARTIFACT,
    TASK_STATUS,
    TASK,
    STATUS_UPDATE,
    ARTIFACT_UPDATE,
    AUTHENTICATION_INFO,
    PUSH_CONFIG,
    SEND_MESSAGE_CONFIGURATION,
    SEND_MESSAGE_REQUEST,
    Record(t.GetTaskRequest, TENANT, required("id", TEXT), HISTORY_LENGTH),
    Record(t.ListTasksRequest, TENANT, *m.task_query(TASK_STATE, TIMESTAMP)),
    Record(t.ListTasksResponse, *m.task_page(TASK)),
    Record(t.CancelTaskRequest, TENANT, required("id", TEXT), m.METADATA),
    Record(t.SubscribeToTaskRequest, TENANT, required("id", TEXT)),
    Record(t.GetTaskPushNotificationConfigRequest, TENANT, m.TASK_ID, required("id", TEXT)),
    Record(t.ListTaskPushNotificationConfigsRequest, TENANT, m.TASK_ID, *m.PAGE),
    Record(t.ListTaskPushNotificationConfigsResponse, *m.push_configs(PUSH_CONFIG)),
    Record(t.DeleteTaskPushNotificationConfigRequest, TENANT, m.TASK_ID, required("id", TEXT)),
    Record(t.GetExtendedAgentCardRequest, TENANT),
    SECURITY_REQUIREMENT,
    AGENT_INTERFACE,
    *m.CARD_RECORDS,
    AGENT_CAPABILITIES,
    AGENT_SKILL,
    AGENT_CARD,
)
#: How each type of the model is read and written. A member of a oneof stands for its union: a scheme is always written
#: under its key.
KINDS: dict[Any, Kind] = {
    **{record.cls: record for record in _RECORDS},
    **dict.fromkeys((t.Part, t.TextPart, t.FilePart, t.DataPart), PART),
    **dict.fromkeys((c.SecurityScheme, *SECURITY_SCHEME.classes), SECURITY_SCHEME),
    **dict.fromkeys((c.OAuthFlow, *OAUTH_FLOW.classes), OAUTH_FLOW),
    t.SendMessageResponse: SEND_MESSAGE_RESPONSE,
    t.StreamResponse: STREAM_RESPONSE,
}

METHODS: Mapping[AnyOperation, str] = {operation: operation.name for operation in OPERATIONS.values()}


def derive(version: str, names: Mapping[tuple[type, str], str], methods: Mapping[AnyOperation, str] = METHODS) -> Codec:
    """The codec of a later 1.x version, which differs from 1.0 in names on the wire.

    Parameters:
        version: ``Major.Minor``, as in the A2A-Version header.
        names: the new names of members, by dataclass and attribute; see `renamed`.
        methods: the method names of JSON-RPC by operation.
    """
    return Codec(version, {cls: renamed(kind, names) for cls, kind in KINDS.items()}, methods)


CODEC = Codec("1.0", KINDS, METHODS)
