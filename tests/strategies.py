"""Hypothesis strategies for the whole data model: valid objects, as servers and clients hold them.

`EVERY_TYPE` maps each type that is encoded to its strategy.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from datetime import UTC, datetime

from hypothesis import strategies as st

from a2a_sync import card as c
from a2a_sync import operations as o
from a2a_sync import types as t

TEXT = st.text(max_size=12)
NAME = st.text(min_size=1, max_size=12)
INT32 = st.integers(-(2**31), 2**31 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
STRUCT = st.dictionaries(TEXT, JSON, max_size=3)
MOMENT = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
MILLISECONDS = MOMENT.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000))
STATES = st.sampled_from([state for state in t.TaskState if state is not t.TaskState.UNSPECIFIED])
ROLES = st.sampled_from([t.Role.USER, t.Role.AGENT])


def tuples(items, min_size=0, max_size=3):
    return st.lists(items, min_size=min_size, max_size=max_size).map(tuple)


def maybe(strategy):
    return st.none() | strategy


TEXTS = tuples(TEXT)
NAMES = tuples(NAME, min_size=1)
ABOUT = {"metadata": STRUCT, "filename": TEXT, "media_type": TEXT}

PARTS = st.one_of(
    st.builds(t.TextPart, TEXT, **ABOUT),
    st.builds(t.FilePart, raw=st.binary(max_size=20), **ABOUT),
    st.builds(t.FilePart, url=TEXT, **ABOUT),
    st.builds(t.DataPart, JSON, **ABOUT),
)
MESSAGES = st.builds(
    t.Message,
    role=ROLES,
    parts=tuples(PARTS, min_size=1),
    message_id=NAME,
    context_id=TEXT,
    task_id=TEXT,
    metadata=STRUCT,
    extensions=TEXTS,
    reference_task_ids=TEXTS,
)
ARTIFACTS = st.builds(
    t.Artifact,
    parts=tuples(PARTS, min_size=1),
    artifact_id=NAME,
    name=TEXT,
    description=TEXT,
    metadata=STRUCT,
    extensions=TEXTS,
)
STATUSES = st.builds(t.TaskStatus, state=STATES, message=maybe(MESSAGES), timestamp=maybe(MOMENT))
TASKS = st.builds(
    t.Task,
    id=NAME,
    status=STATUSES,
    context_id=TEXT,
    artifacts=tuples(ARTIFACTS, max_size=2),
    history=tuples(MESSAGES, max_size=2),
    metadata=STRUCT,
)
STATUS_UPDATES = st.builds(t.TaskStatusUpdateEvent, task_id=NAME, context_id=NAME, status=STATUSES, metadata=STRUCT)
ARTIFACT_UPDATES = st.builds(
    t.TaskArtifactUpdateEvent,
    task_id=NAME,
    context_id=NAME,
    artifact=ARTIFACTS,
    append=st.booleans(),
    last_chunk=st.booleans(),
    metadata=STRUCT,
)
EVENTS = st.one_of(TASKS, MESSAGES, STATUS_UPDATES, ARTIFACT_UPDATES)

AUTHENTICATION = st.builds(t.AuthenticationInfo, scheme=NAME, credentials=TEXT)
PUSH_CONFIGS = st.builds(
    t.TaskPushNotificationConfig,
    url=NAME,
    id=TEXT,
    task_id=TEXT,
    tenant=TEXT,
    token=TEXT,
    authentication=maybe(AUTHENTICATION),
)
CONFIGURATIONS = st.builds(
    t.SendMessageConfiguration,
    accepted_output_modes=TEXTS,
    task_push_notification_config=maybe(PUSH_CONFIGS),
    history_length=maybe(INT32),
    return_immediately=st.booleans(),
)

#: The values of simple members by their type, as annotations of `a2a_sync.types` write it.
_MEMBERS = {
    "str": TEXT,
    "int": INT32,
    "int | None": maybe(INT32),
    "bool | None": maybe(st.booleans()),
    "datetime | None": maybe(MOMENT),
    "TaskState": st.sampled_from(t.TaskState),
    "Metadata": STRUCT,
}


def simple(cls):
    """Objects of a dataclass whose members have one of these types; text is not empty where it is required."""
    return st.builds(
        cls,
        **{item.name: NAME if _required(item) and item.type == "str" else _MEMBERS[item.type] for item in fields(cls)},
    )


def _required(item):
    return item.default is MISSING and item.default_factory is MISSING


REQUESTS = {
    t.SendMessageRequest: st.builds(
        t.SendMessageRequest, message=MESSAGES, configuration=maybe(CONFIGURATIONS), metadata=STRUCT, tenant=TEXT
    ),
    t.TaskPushNotificationConfig: PUSH_CONFIGS,
    # Its id may be empty in 0.3 only.
    t.GetTaskPushNotificationConfigRequest: st.builds(
        t.GetTaskPushNotificationConfigRequest, task_id=NAME, id=NAME, tenant=TEXT
    ),
}
REQUESTS |= {one.request: simple(one.request) for one in o.OPERATIONS.values() if one.request not in REQUESTS}

SCOPES = st.dictionaries(TEXT, TEXT, max_size=3)
FLOWS = st.one_of(
    st.builds(
        c.AuthorizationCodeOAuthFlow,
        authorization_url=NAME,
        token_url=NAME,
        refresh_url=TEXT,
        scopes=SCOPES,
        pkce_required=st.booleans(),
    ),
    st.builds(c.ClientCredentialsOAuthFlow, token_url=NAME, refresh_url=TEXT, scopes=SCOPES),
    st.builds(c.DeviceCodeOAuthFlow, device_authorization_url=NAME, token_url=NAME, refresh_url=TEXT, scopes=SCOPES),
    st.builds(c.ImplicitOAuthFlow, authorization_url=TEXT, refresh_url=TEXT, scopes=SCOPES),
    st.builds(c.PasswordOAuthFlow, token_url=TEXT, refresh_url=TEXT, scopes=SCOPES),
)
SCHEMES = st.one_of(
    st.builds(c.APIKeySecurityScheme, location=NAME, name=NAME, description=TEXT),
    st.builds(c.HTTPAuthSecurityScheme, scheme=NAME, bearer_format=TEXT, description=TEXT),
    st.builds(c.OAuth2SecurityScheme, flow=FLOWS, oauth2_metadata_url=TEXT, description=TEXT),
    st.builds(c.OpenIdConnectSecurityScheme, open_id_connect_url=NAME, description=TEXT),
    st.builds(c.MutualTlsSecurityScheme, description=TEXT),
)
REQUIREMENTS = st.builds(c.SecurityRequirement, schemes=st.dictionaries(TEXT, TEXTS, max_size=3))
INTERFACES = st.builds(c.AgentInterface, url=NAME, protocol_binding=NAME, protocol_version=NAME, tenant=TEXT)
EXTENSIONS = st.builds(c.AgentExtension, uri=NAME, description=TEXT, required=st.booleans(), params=STRUCT)
CAPABILITIES = st.builds(
    c.AgentCapabilities,
    streaming=maybe(st.booleans()),
    push_notifications=maybe(st.booleans()),
    extensions=tuples(EXTENSIONS),
    extended_agent_card=maybe(st.booleans()),
)
SIGNATURES = st.builds(c.AgentCardSignature, protected=NAME, signature=NAME, header=STRUCT)
SKILLS = st.builds(
    c.AgentSkill,
    id=NAME,
    name=NAME,
    description=NAME,
    tags=NAMES,
    examples=TEXTS,
    input_modes=TEXTS,
    output_modes=TEXTS,
    security_requirements=tuples(REQUIREMENTS),
)
PROVIDERS = st.builds(c.AgentProvider, organization=NAME, url=NAME)
CARDS = st.builds(
    c.AgentCard,
    name=NAME,
    description=NAME,
    version=NAME,
    supported_interfaces=tuples(INTERFACES, min_size=1),
    capabilities=CAPABILITIES,
    default_input_modes=NAMES,
    default_output_modes=NAMES,
    skills=tuples(SKILLS, min_size=1),
    provider=maybe(PROVIDERS),
    documentation_url=maybe(TEXT),
    icon_url=maybe(TEXT),
    security_schemes=st.dictionaries(TEXT, SCHEMES, max_size=2),
    security_requirements=tuples(REQUIREMENTS),
    signatures=tuples(SIGNATURES, max_size=2),
)

#: A strategy for each type that is encoded, unions included.
EVERY_TYPE = {
    **REQUESTS,
    t.Part: PARTS,
    t.Message: MESSAGES,
    t.Artifact: ARTIFACTS,
    t.TaskStatus: STATUSES,
    t.Task: TASKS,
    t.TaskStatusUpdateEvent: STATUS_UPDATES,
    t.TaskArtifactUpdateEvent: ARTIFACT_UPDATES,
    t.AuthenticationInfo: AUTHENTICATION,
    t.SendMessageConfiguration: CONFIGURATIONS,
    t.ListTasksResponse: st.builds(
        t.ListTasksResponse,
        tasks=tuples(TASKS, max_size=2),
        next_page_token=TEXT,
        page_size=INT32,
        total_size=INT32,
    ),
    t.ListTaskPushNotificationConfigsResponse: st.builds(
        t.ListTaskPushNotificationConfigsResponse, configs=tuples(PUSH_CONFIGS), next_page_token=TEXT
    ),
    c.SecurityScheme: SCHEMES,
    c.OAuthFlow: FLOWS,
    c.SecurityRequirement: REQUIREMENTS,
    c.AgentInterface: INTERFACES,
    c.AgentProvider: PROVIDERS,
    c.AgentExtension: EXTENSIONS,
    c.AgentCapabilities: CAPABILITIES,
    c.AgentCardSignature: SIGNATURES,
    c.AgentSkill: SKILLS,
    c.AgentCard: CARDS,
}

#: The result types of each operation.
RESULTS = {
    operation.name: (
        TASKS | MESSAGES
        if operation.response == t.SendMessageResponse
        else EVENTS
        if operation.response == t.StreamResponse
        else st.none()
        if operation.response is None
        else EVERY_TYPE[operation.response]
        if operation.response in EVERY_TYPE
        else simple(operation.response)
    )
    for operation in o.OPERATIONS.values()
}

HEADERS = st.dictionaries(st.text("abcdefgh-", min_size=1, max_size=8), TEXT, max_size=3)
PRINCIPALS = st.builds(o.Principal, id=TEXT, scopes=TEXTS, claims=STRUCT)
RUN_REQUESTS = st.builds(
    o.RunRequest,
    message=MESSAGES,
    configuration=maybe(CONFIGURATIONS),
    metadata=STRUCT,
    principal=maybe(PRINCIPALS),
    tenant=TEXT,
    extensions=TEXTS,
    trace=HEADERS,
    headers=HEADERS,
)
