"""Protocol 0.3 in JSON, in the objects of 1.0: its names, its members, its methods (A2A 0.3.0, types.ts).

This is the dialect of JSON-RPC, of cards and of webhooks, in which objects name their ``kind``. What one version can say
and the other cannot is left out here, silently; docs/explanation/versions.md lists it. What follows from the data
(``kind``, ``final``) is written and hardly looked at when it is read: peers are careless with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from a2a_sync import card as c
from a2a_sync import operations as op
from a2a_sync import types as t
from a2a_sync.codec.fields import (
    BASE64,
    FLAG,
    INT32,
    MOMENT,
    STRUCT,
    TEXT,
    Invalid,
    Kind,
    Scalar,
    many,
    mapping,
    names,
    shown,
    unexpected,
)
from a2a_sync.codec.records import Member, Record, Tagged, Variants
from a2a_sync.codec.table import TableCodec
from a2a_sync.errors import A2AError, ExtensionSupportRequiredError, UnsupportedOperationError
from a2a_sync.lifecycle import ends_run

_S = t.TaskState

TASK_STATE = names(
    {
        _S.SUBMITTED: "submitted",
        _S.WORKING: "working",
        _S.INPUT_REQUIRED: "input-required",
        _S.COMPLETED: "completed",
        _S.CANCELED: "canceled",
        _S.FAILED: "failed",
        _S.REJECTED: "rejected",
        _S.AUTH_REQUIRED: "auth-required",
        _S.UNSPECIFIED: "unknown",
    },
    _S.UNSPECIFIED,
    numbered=False,
    unsaid="unknown",
)
ROLE = names({t.Role.USER: "user", t.Role.AGENT: "agent"}, t.Role.UNSPECIFIED, numbered=False, unsaid="agent")
TEXTS = many(TEXT)


def _required(attribute: str, kind: Kind, json: str = "") -> Member:
    return Member(attribute, kind, json, required=True)


def _optional(attribute: str, kind: Kind, json: str = "") -> Member:
    return Member(attribute, kind, json, optional=True)


METADATA = Member("metadata", STRUCT)
EXTENSIONS = Member("extensions", TEXTS)
# 0 is "all" in 0.3, as is nothing at all.
HISTORY_LENGTH = _optional("history_length", Scalar(lambda value, strict: INT32.load(value, strict) or None))

# -- parts --------------------------------------------------------------------------------------------------------------

#: Marks a data part whose value is not an object: 0.3 knows objects only, so it travels as ``{"value": …}``.
_WRAPPED = "data_part_compat"
_ABOUT = Record(t.TextPart, METADATA)
_FILE = Record(
    t.FilePart,
    _optional("raw", BASE64, "bytes"),
    _optional("url", TEXT, "uri"),
    Member("media_type", TEXT, "mimeType"),
    Member("filename", TEXT, "name"),
)


def _load_text(value: dict[str, Any], strict: bool, about: dict[str, Any]) -> t.Part:
    return t.TextPart(_content(value, "text", TEXT, strict) or "", **about)


def _load_file(value: dict[str, Any], strict: bool, about: dict[str, Any]) -> t.Part | None:
    found = _content(value, "file", _FILE_MEMBERS, strict)
    return t.FilePart(**found, **about) if found else None


def _load_file_members(value: Any, strict: bool) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        raise unexpected("an object", value)
    found = _FILE.found(value, strict)
    if "raw" in found and "url" in found:
        if strict:
            raise Invalid("has both bytes and uri; a file has one of them")
        del found["url"]
    if "raw" in found or "url" in found:
        return found
    if strict:
        raise Invalid("needs one of bytes, uri")
    return None


_FILE_MEMBERS = Scalar(_load_file_members)
_ANYTHING = Scalar(lambda value, strict: value)


def _load_data(value: dict[str, Any], strict: bool, about: dict[str, Any]) -> t.Part:
    # The schema says objects. The official kit sends an array, so arrays come in; what goes out is wrapped.
    lists = isinstance(value.get("data"), list)
    data = _content(value, "data", STRUCT if strict and not lists else _ANYTHING, strict)
    metadata = about.get("metadata", {})
    if metadata.get(_WRAPPED) is True and _is_wrapped(data):
        data = data["value"]
        about["metadata"] = {key: item for key, item in metadata.items() if key != _WRAPPED}
    return t.DataPart(data, **about)


def _is_wrapped(data: Any) -> bool:
    return isinstance(data, dict) and data.keys() == {"value"} and not isinstance(data["value"], dict)


def _content(value: dict[str, Any], name: str, kind: Kind, strict: bool) -> Any:
    """The content of a part; None where a lenient reader finds none."""
    content = value.get(name)
    try:
        if content is None:
            if strict:
                raise Invalid("is required")
            return None
        return kind.load(content, strict)
    except Invalid as invalid:
        raise invalid.below(name) from None


_LoadContent = Callable[[dict[str, Any], bool, dict[str, Any]], t.Part | None]
_CONTENTS: dict[str, _LoadContent] = {"text": _load_text, "file": _load_file, "data": _load_data}


def _load_part(value: Any, strict: bool) -> t.Part | None:
    if not isinstance(value, dict):
        raise unexpected("an object", value)
    # 0.1 called it type. A request that says what a part is, in a word that nobody knows, means no other part.
    said = "type" if strict and value.get("kind") is None else "kind"
    kind = value.get(said)
    if kind is None:
        kind = next((name for name in _CONTENTS if name in value), None)
    load = _CONTENTS.get(kind) if isinstance(kind, str) else None
    if load is not None:
        return load(value, strict, _ABOUT.found(value, strict))
    if strict:
        if kind is None:
            raise Invalid("needs one of text, file, data")
        raise Invalid(f"{shown(str(kind))} is none of text, file, data", said)
    return None


def _dump_part(part: t.Part) -> dict[str, Any]:
    metadata = part.metadata
    content: dict[str, Any]
    if isinstance(part, t.TextPart):
        content = {"kind": "text", "text": part.text}
    elif isinstance(part, t.FilePart):
        content = {"kind": "file", "file": _FILE.dump(part)}
    elif isinstance(part.data, dict):
        content = {"kind": "data", "data": part.data}
    else:
        content = {"kind": "data", "data": {"value": part.data}}
        metadata = {**metadata, _WRAPPED: True}
    if metadata:
        content["metadata"] = STRUCT.dump(metadata)  # type: ignore[misc]
    return content


PART = Scalar(_load_part, _dump_part)
PARTS = many(PART)

# -- tasks and messages -------------------------------------------------------------------------------------------------

MESSAGE = Tagged(
    "kind",
    "message",
    t.Message,
    _required("message_id", TEXT),
    _required("role", ROLE),
    _required("parts", PARTS),
    Member("context_id", TEXT),
    Member("task_id", TEXT),
    METADATA,
    EXTENSIONS,
    Member("reference_task_ids", TEXTS),
)
ARTIFACT = Record(
    t.Artifact,
    _required("artifact_id", TEXT),
    Member("name", TEXT),
    Member("description", TEXT),
    _required("parts", PARTS),
    METADATA,
    EXTENSIONS,
)
TASK_STATUS = Record(
    t.TaskStatus, _required("state", TASK_STATE), Member("message", MESSAGE), Member("timestamp", MOMENT)
)
TASK = Tagged(
    "kind",
    "task",
    t.Task,
    _required("id", TEXT),
    _required("context_id", TEXT),
    _required("status", TASK_STATUS),
    Member("artifacts", many(ARTIFACT)),
    Member("history", many(MESSAGE)),
    METADATA,
)

# -- events -------------------------------------------------------------------------------------------------------------


class _StatusUpdate(Tagged):
    def dump(self, obj: Any) -> dict[str, Any]:
        return {**super().dump(obj), "final": ends_run(obj)}


STATUS_UPDATE = _StatusUpdate(
    "kind",
    "status-update",
    t.TaskStatusUpdateEvent,
    _required("task_id", TEXT),
    _required("context_id", TEXT),
    _required("status", TASK_STATUS),
    METADATA,
)
ARTIFACT_UPDATE = Tagged(
    "kind",
    "artifact-update",
    t.TaskArtifactUpdateEvent,
    _required("task_id", TEXT),
    _required("context_id", TEXT),
    _required("artifact", ARTIFACT),
    Member("append", FLAG),
    Member("last_chunk", FLAG),
    METADATA,
)
_MARKS = {"messageId": "message", "artifact": "artifact-update", "taskId": "status-update", "id": "task"}
SEND_MESSAGE_RESPONSE = Variants("kind", TASK, MESSAGE, marks=_MARKS)
STREAM_RESPONSE = Variants("kind", TASK, MESSAGE, STATUS_UPDATE, ARTIFACT_UPDATE, marks=_MARKS)

# -- push configuration -------------------------------------------------------------------------------------------------


def _load_first(value: Any, strict: bool) -> str:
    schemes = TEXTS.load(value, strict)
    return schemes[0] if schemes else ""


AUTHENTICATION_INFO = Record(
    t.AuthenticationInfo,
    _required("scheme", Scalar(_load_first, lambda scheme: [scheme], empty=""), "schemes"),
    Member("credentials", TEXT),
)
_WEBHOOK = Record(
    t.TaskPushNotificationConfig,
    Member("id", TEXT),
    _required("url", TEXT),
    Member("token", TEXT),
    Member("authentication", AUTHENTICATION_INFO),
)
_WEBHOOK_OF = Record(t.TaskPushNotificationConfig, _required("task_id", TEXT))


def _load_push_config(value: Any, strict: bool) -> t.TaskPushNotificationConfig:
    if not isinstance(value, dict):
        raise unexpected("an object", value)
    task_id = _WEBHOOK_OF.found(value, strict).get("task_id", "")
    if strict and not task_id:
        raise Invalid("is required", "taskId")
    config = _content(value, "pushNotificationConfig", _WEBHOOK, strict) or t.TaskPushNotificationConfig(url="")
    # Servers of 0.3 keep one webhook per task for clients that give it no id: setting it twice replaces it.
    return replace(config, task_id=task_id, id=config.id or (task_id if strict else ""))


def _dump_push_config(config: t.TaskPushNotificationConfig) -> dict[str, Any]:
    return {"taskId": config.task_id, "pushNotificationConfig": _WEBHOOK.dump(config)}


PUSH_CONFIG = Scalar(_load_push_config, _dump_push_config)


def _load_push_configs(value: Any, strict: bool) -> t.ListTaskPushNotificationConfigsResponse:
    return t.ListTaskPushNotificationConfigsResponse(configs=many(PUSH_CONFIG).load(value, strict))


def _dump_push_configs(response: t.ListTaskPushNotificationConfigsResponse) -> list[Any]:
    return [_dump_push_config(config) for config in response.configs]


# -- requests -----------------------------------------------------------------------------------------------------------

SEND_MESSAGE_CONFIGURATION = Record(
    t.SendMessageConfiguration,
    Member("accepted_output_modes", TEXTS),
    Member("task_push_notification_config", _WEBHOOK, "pushNotificationConfig"),
    HISTORY_LENGTH,
    # Always said: servers of 0.3 differ on what its absence means.
    Member(
        "return_immediately",
        Scalar(lambda value, strict: not FLAG.load(value, strict), lambda at_once: not at_once, empty=False),
        "blocking",
        always=True,
    ),
)
_SEND_MESSAGE_REQUEST = Record(
    t.SendMessageRequest,
    _required("message", MESSAGE),
    Member("configuration", SEND_MESSAGE_CONFIGURATION),
    METADATA,
)


def _dump_send_message_request(request: t.SendMessageRequest) -> dict[str, Any]:
    if request.configuration is None:
        request = replace(request, configuration=t.SendMessageConfiguration())
    return _SEND_MESSAGE_REQUEST.dump(request)


# -- security -----------------------------------------------------------------------------------------------------------

DESCRIPTION = Member("description", TEXT)
REFRESH_URL = Member("refresh_url", TEXT)
SCOPES = Member("scopes", mapping(TEXT), always=True)
AUTHORIZATION_URL = _required("authorization_url", TEXT)
TOKEN_URL = _required("token_url", TEXT)
#: In the order in which one is chosen where a card offers several: the objects hold one.
_FLOWS: dict[str, Record] = {
    "authorizationCode": Record(c.AuthorizationCodeOAuthFlow, AUTHORIZATION_URL, TOKEN_URL, REFRESH_URL, SCOPES),
    "clientCredentials": Record(c.ClientCredentialsOAuthFlow, TOKEN_URL, REFRESH_URL, SCOPES),
    "implicit": Record(c.ImplicitOAuthFlow, AUTHORIZATION_URL, REFRESH_URL, SCOPES),
    "password": Record(c.PasswordOAuthFlow, TOKEN_URL, REFRESH_URL, SCOPES),
}


def _load_flow(value: Any, strict: bool) -> c.OAuthFlow | None:
    if not isinstance(value, dict):
        raise unexpected("an object", value)
    name = next((name for name in _FLOWS if value.get(name) is not None), None)
    if name is None:
        if strict:
            raise Invalid(f"needs one of {', '.join(_FLOWS)}")
        return None
    try:
        flow: c.OAuthFlow = _FLOWS[name].load(value[name], strict)
    except Invalid as invalid:
        raise invalid.below(name) from None
    return flow


def _dump_flow(flow: c.OAuthFlow) -> dict[str, Any]:
    # Device code came with 1.0: its scheme is written without a flow.
    return {name: record.dump(flow) for name, record in _FLOWS.items() if record.cls is type(flow)}


OAUTH_FLOW = Scalar(_load_flow, _dump_flow)
SECURITY_SCHEME = Variants(
    "type",
    Tagged(
        "type",
        "apiKey",
        c.APIKeySecurityScheme,
        DESCRIPTION,
        _required("location", TEXT, "in"),
        _required("name", TEXT),
    ),
    Tagged(
        "type",
        "http",
        c.HTTPAuthSecurityScheme,
        DESCRIPTION,
        _required("scheme", TEXT),
        Member("bearer_format", TEXT),
    ),
    Tagged(
        "type",
        "oauth2",
        c.OAuth2SecurityScheme,
        DESCRIPTION,
        _required("flow", OAUTH_FLOW, "flows"),
        Member("oauth2_metadata_url", TEXT),
    ),
    Tagged(
        "type",
        "openIdConnect",
        c.OpenIdConnectSecurityScheme,
        DESCRIPTION,
        _required("open_id_connect_url", TEXT),
    ),
    Tagged("type", "mutualTLS", c.MutualTlsSecurityScheme, DESCRIPTION),
)
_SCOPES_BY_SCHEME = mapping(TEXTS)


def _load_requirement(value: Any, strict: bool) -> c.SecurityRequirement:
    return c.SecurityRequirement(schemes=_SCOPES_BY_SCHEME.load(value, strict))


def _dump_requirement(requirement: c.SecurityRequirement) -> dict[str, list[str]]:
    return {name: list(scopes) for name, scopes in requirement.schemes.items()}


SECURITY_REQUIREMENT = Scalar(_load_requirement, _dump_requirement)
SECURITY = Member("security_requirements", many(SECURITY_REQUIREMENT), "security")

# -- the agent card -----------------------------------------------------------------------------------------------------

_VERSION = "0.3"


def _load_interface(value: Any, strict: bool, version: str = _VERSION) -> c.AgentInterface:
    if not isinstance(value, dict):
        raise unexpected("an object", value)
    url, transport = (_content(value, name, TEXT, strict) or "" for name in ("url", "transport"))
    return c.AgentInterface(url=url, protocol_binding=transport, protocol_version=version)


def _dump_interface(interface: c.AgentInterface) -> dict[str, str]:
    return {"url": interface.url, "transport": interface.protocol_binding}


INTERFACE = Scalar(_load_interface, _dump_interface)
AGENT_PROVIDER = Record(c.AgentProvider, _required("url", TEXT), _required("organization", TEXT))
AGENT_EXTENSION = Record(
    c.AgentExtension, _required("uri", TEXT), DESCRIPTION, Member("required", FLAG), Member("params", STRUCT)
)
AGENT_CAPABILITIES = Record(
    c.AgentCapabilities,
    _optional("streaming", FLAG),
    _optional("push_notifications", FLAG),
    Member("extensions", many(AGENT_EXTENSION)),
)
AGENT_CARD_SIGNATURE = Record(
    c.AgentCardSignature, _required("protected", TEXT), _required("signature", TEXT), Member("header", STRUCT)
)
AGENT_SKILL = Record(
    c.AgentSkill,
    _required("id", TEXT),
    _required("name", TEXT),
    _required("description", TEXT),
    _required("tags", TEXTS),
    Member("examples", TEXTS),
    Member("input_modes", TEXTS),
    Member("output_modes", TEXTS),
    SECURITY,
)


class _Card(Record):
    """A card whose address stands at its top; further ones, and the promise of an extended card, stand beside it."""

    def load(self, value: Any, strict: bool) -> Any:
        card: c.AgentCard = super().load(value, strict)
        extended = _AT_THE_TOP.found(value, strict).get("extended_agent_card")
        return replace(
            card,
            supported_interfaces=_load_interfaces(value, strict),
            capabilities=replace(card.capabilities, extended_agent_card=extended),
        )

    def dump(self, obj: Any) -> dict[str, Any]:
        spoken = [one for one in obj.supported_interfaces if not one.protocol_version or _is_old(one.protocol_version)]
        if not spoken:
            raise ValueError("the card names no interface of protocol 0.3")
        written = {
            "protocolVersion": f"{_VERSION}.0",
            **super().dump(obj),
            "url": spoken[0].url,
            "preferredTransport": spoken[0].protocol_binding,
            "additionalInterfaces": [_dump_interface(interface) for interface in spoken],
        }
        if obj.capabilities.extended_agent_card:
            written["supportsAuthenticatedExtendedCard"] = True
        # They are made over the card of 1.0 and would not verify over this one.
        written.pop("signatures", None)
        return written


def _is_old(version: str) -> bool:
    return version.startswith("0.")


_AT_THE_TOP = Record(c.AgentCapabilities, _optional("extended_agent_card", FLAG, "supportsAuthenticatedExtendedCard"))


def _load_interfaces(value: dict[str, Any], strict: bool) -> tuple[c.AgentInterface, ...]:
    """The main address and then the others, each once."""
    version = ".".join((_optional_text(value, "protocolVersion", strict) or _VERSION).split(".")[:2])
    main = c.AgentInterface(
        url=_content(value, "url", TEXT, strict) or "",
        protocol_binding=_optional_text(value, "preferredTransport", strict) or "JSONRPC",
        protocol_version=version,
    )
    others = many(Scalar(lambda item, strict: _load_interface(item, strict, version)))
    try:
        further = others.load(value.get("additionalInterfaces") or [], strict)
    except Invalid as invalid:
        raise invalid.below("additionalInterfaces") from None
    return tuple(dict.fromkeys((main, *further)))


def _optional_text(value: dict[str, Any], name: str, strict: bool) -> str:
    text: str = _content(value, name, TEXT, strict) if value.get(name) is not None else ""
    return text


AGENT_CARD = _Card(
    c.AgentCard,
    _required("name", TEXT),
    _required("description", TEXT),
    Member("provider", AGENT_PROVIDER),
    _required("version", TEXT),
    _optional("documentation_url", TEXT),
    _optional("icon_url", TEXT),
    _required("capabilities", AGENT_CAPABILITIES),
    Member("security_schemes", mapping(SECURITY_SCHEME)),
    SECURITY,
    _required("default_input_modes", TEXTS),
    _required("default_output_modes", TEXTS),
    _required("skills", many(AGENT_SKILL)),
    Member("signatures", many(AGENT_CARD_SIGNATURE)),
)

# -- the tables ---------------------------------------------------------------------------------------------------------

_TASK_ID = _required("task_id", TEXT, "id")
_CONFIG_ID = "pushNotificationConfigId"
_RECORDS = (
    MESSAGE,
    ARTIFACT,
    TASK_STATUS,
    TASK,
    STATUS_UPDATE,
    ARTIFACT_UPDATE,
    AUTHENTICATION_INFO,
    SEND_MESSAGE_CONFIGURATION,
    Record(t.GetTaskRequest, _required("id", TEXT), HISTORY_LENGTH),
    Record(t.CancelTaskRequest, _required("id", TEXT), METADATA),
    Record(t.SubscribeToTaskRequest, _required("id", TEXT)),
    # Without an id of its own it asks for the task's first, as old clients do.
    Record(t.GetTaskPushNotificationConfigRequest, _TASK_ID, Member("id", TEXT, _CONFIG_ID)),
    Record(t.ListTaskPushNotificationConfigsRequest, _TASK_ID),
    Record(t.DeleteTaskPushNotificationConfigRequest, _TASK_ID, _required("id", TEXT, _CONFIG_ID)),
    Record(t.GetExtendedAgentCardRequest),
    AGENT_PROVIDER,
    AGENT_EXTENSION,
    AGENT_CAPABILITIES,
    AGENT_CARD_SIGNATURE,
    AGENT_SKILL,
    AGENT_CARD,
)
#: How each type of the model is read and written; ListTasks is not among them.
KINDS: Mapping[Any, Kind] = {
    **{record.cls: record for record in _RECORDS},
    **dict.fromkeys((t.Part, t.TextPart, t.FilePart, t.DataPart), PART),
    **dict.fromkeys((c.SecurityScheme, *SECURITY_SCHEME.classes), SECURITY_SCHEME),
    **dict.fromkeys((c.OAuthFlow, c.DeviceCodeOAuthFlow, *(flow.cls for flow in _FLOWS.values())), OAUTH_FLOW),
    t.SendMessageRequest: Scalar(_SEND_MESSAGE_REQUEST.load, _dump_send_message_request),
    t.SendMessageResponse: SEND_MESSAGE_RESPONSE,
    t.StreamResponse: STREAM_RESPONSE,
    t.TaskPushNotificationConfig: PUSH_CONFIG,
    t.ListTaskPushNotificationConfigsResponse: Scalar(_load_push_configs, _dump_push_configs),
    c.SecurityRequirement: SECURITY_REQUIREMENT,
    c.AgentInterface: INTERFACE,
}
METHODS = {
    op.SEND_MESSAGE: "message/send",
    op.SEND_STREAMING_MESSAGE: "message/stream",
    op.GET_TASK: "tasks/get",
    op.CANCEL_TASK: "tasks/cancel",
    op.SUBSCRIBE_TO_TASK: "tasks/resubscribe",
    op.CREATE_PUSH_CONFIG: "tasks/pushNotificationConfig/set",
    op.GET_PUSH_CONFIG: "tasks/pushNotificationConfig/get",
    op.LIST_PUSH_CONFIGS: "tasks/pushNotificationConfig/list",
    op.DELETE_PUSH_CONFIG: "tasks/pushNotificationConfig/delete",
    op.GET_EXTENDED_CARD: "agent/getAuthenticatedExtendedCard",
}


class _V03(TableCodec):
    """See `Codec`."""

    def ends_stream(self, value: Any) -> bool:
        return isinstance(value, dict) and value.get("final") is True

    def dump_error(self, error: A2AError) -> dict[str, Any]:
        written = super().dump_error(error)
        if isinstance(error, ExtensionSupportRequiredError):
            # 0.3 has no code for it; the details still say what it is.
            written["code"] = UnsupportedOperationError.code
        return written


CODEC = _V03(_VERSION, KINDS, METHODS)
